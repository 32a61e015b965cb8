//! The row that each commit stores about itself.
//!
//! Owns its format: what only the commit itself knew, with a checksum.

use duramen_disk::memory::mixed;

use crate::releases::Release;

/// The data of a commit in its own row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) release: Release,
    pub(crate) now_ms: u64,
    pub(crate) ticket: Option<u64>,
}

impl Row {
    /// With a checksum that covers writer and number.
    pub(crate) fn encode(self, writer: u32, number: u64) -> Vec<u8> {
        let mut bytes = vec![self.release as u8];
        bytes.extend_from_slice(&self.now_ms.to_le_bytes());
        bytes.extend_from_slice(&self.ticket.unwrap_or(u64::MAX).to_le_bytes());
        let sum = checksum(&bytes, writer, number);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], writer: u32, number: u64) -> Option<Row> {
        let (fields, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(fields, writer, number) != u64::from_le_bytes(*sum) || fields.len() != 17 {
            return None;
        }
        let word = |at: usize| fields[at..].first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let ticket = word(9).filter(|ticket| *ticket != u64::MAX);
        Some(Row { release: Release::of_byte(fields[0])?, now_ms: word(1)?, ticket })
    }
}

fn checksum(bytes: &[u8], writer: u32, number: u64) -> u64 {
    let start = mixed(u64::from(writer) << 40 ^ number);
    bytes.iter().fold(start, |sum, byte| mixed(sum.rotate_left(8) ^ u64::from(*byte)))
}
