//! Bytes that no layer holds already. A file system or a drive may skip a write that changes nothing, or
//! store it as a reference to an equal block.
//!
//! Owns the number that makes all records of this process distinct, over turns, trials, rounds, files and
//! threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Layers that look for equal bytes compare at least whole sectors.
const SECTOR_BYTES: usize = 512;

/// Not 0, because files are filled with zeroes.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Gives each sector of a record contents that were never written before.
pub(super) fn freshen(record: &mut [u8]) {
    let sectors = record.as_chunks_mut::<SECTOR_BYTES>().0;
    let first = NEXT.fetch_add(sectors.len() as u64, Ordering::Relaxed);
    for (sector, number) in sectors.iter_mut().zip(first..) {
        sector[..8].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    //! A skipped write is not measured.
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_sectors_are_alike_however_many_were_written() {
        let mut seen = HashSet::from([[0_u8; SECTOR_BYTES]]);
        let mut record = vec![0_u8; 4 * SECTOR_BYTES];
        for turn in 0..1000 {
            // A turn may begin with a record of its own.
            if turn % 300 == 0 {
                record.fill(0);
            }
            freshen(&mut record);
            for sector in record.as_chunks::<SECTOR_BYTES>().0 {
                assert!(seen.insert(*sector), "turn {turn} writes what was written");
            }
        }
    }
}
