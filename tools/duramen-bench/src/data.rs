//! Keys and values, derived from a seed and a row's number, so that answers are known without an engine.
//!
//! A key is 16 to 24 random bytes, different for every row and in random order. A value is incompressible
//! random bytes; its first eight are a number. Owns the digest by which results are compared.

use duramen_disk::memory::mixed;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const KEY_BYTES_MIN: usize = 16;
const KEY_BYTES_MAX: usize = 24;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl Key {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The rows of one data set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    seed: u64,
    value_bytes: usize,
    in_key_order: bool,
}

impl Rows {
    /// Rows with values of this many bytes.
    pub(crate) fn new(seed: u64, value_bytes: usize) -> Rows {
        Rows { seed: mixed(seed ^ value_bytes as u64), value_bytes, in_key_order: false }
    }

    /// The same with keys in the order of the rows' numbers, of which there are at most 2^32.
    pub(crate) fn in_key_order(self) -> Rows {
        Rows { in_key_order: true, ..self }
    }

    /// The first eight bytes of a row's key as a big-endian number: unique, and in key order.
    pub(crate) fn head(&self, row: u64) -> u64 {
        let drawn = mixed(row.wrapping_add(self.seed).wrapping_mul(GOLDEN));
        if self.in_key_order { row << 32 | drawn >> 32 } else { drawn }
    }

    /// The upper bound of the heads of the first rows.
    pub(crate) fn heads_end(&self, rows: u64) -> u64 {
        if self.in_key_order { rows << 32 } else { u64::MAX }
    }

    /// A row's key.
    pub(crate) fn key(&self, row: u64) -> Key {
        let head = self.head(row);
        let middle = mixed(head ^ self.seed);
        let tail = mixed(middle);
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..8].copy_from_slice(&head.to_be_bytes());
        bytes[8..16].copy_from_slice(&middle.to_le_bytes());
        bytes[16..].copy_from_slice(&tail.to_le_bytes());
        let spread = (KEY_BYTES_MAX - KEY_BYTES_MIN + 1) as u64;
        Key { bytes, len: KEY_BYTES_MIN + usize::try_from(tail % spread).unwrap_or_default() }
    }

    /// The number in a row's value.
    pub(crate) fn number(&self, row: u64) -> i64 {
        let bits = mixed(row.wrapping_mul(GOLDEN) ^ self.seed.rotate_left(32));
        i64::try_from(bits >> 24).unwrap_or_default() - (1 << 39)
    }

    /// A row's value.
    pub(crate) fn value(&self, row: u64, into: &mut Vec<u8>) {
        self.value_with(row, self.number(row), into);
    }

    /// A row's value with another number in it.
    pub(crate) fn value_with(&self, row: u64, number: i64, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&number.to_le_bytes());
        let mut state = self.head(row);
        while into.len() < self.value_bytes {
            state = state.wrapping_add(GOLDEN);
            let bytes = mixed(state).to_le_bytes();
            let wanted = bytes.len().min(self.value_bytes - into.len());
            into.extend_from_slice(&bytes[..wanted]);
        }
    }

    /// Bytes of key and value of the first `rows` rows.
    pub(crate) fn user_bytes(&self, rows: u64) -> u64 {
        (0..rows).map(|row| (self.key(row).bytes().len() + self.value_bytes) as u64).sum()
    }
}

/// A digest of rows read: it detects missing, repeated, changed and misordered rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Digest {
    rows: u64,
    mixed: u64,
    last: Option<u64>,
    out_of_order: bool,
}

impl Digest {
    /// Adds the next row.
    pub(crate) fn see(&mut self, key: &[u8], value: &[u8]) {
        let head = key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.out_of_order |= self.last.is_some_and(|last| head <= last);
        self.last = Some(head);
        self.add(head, value);
    }

    /// Adds a row whose position in the order does not matter.
    pub(crate) fn add(&mut self, head: u64, value: &[u8]) {
        self.rows += 1;
        self.mixed = self.mixed.wrapping_add(xxh3_64_with_seed(value, head));
    }

    /// How many rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The hash in results.
    pub(crate) fn answer(&self) -> u64 {
        mixed(self.mixed ^ mixed(self.rows) ^ u64::from(self.out_of_order))
    }

    /// The digest of the first rows of a data set, without an engine.
    pub(crate) fn of_first(rows: &Rows, count: u64) -> Digest {
        let mut digest = Digest::default();
        let mut value = Vec::new();
        for row in 0..count {
            rows.value(row, &mut value);
            digest.add(rows.head(row), &value);
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    //! A digest that misses a fault would let a wrong engine win.
    use super::*;

    #[test]
    fn a_row_that_lacks_is_twice_differs_or_is_out_of_order_changes_the_answer() {
        let rows = Rows::new(7, 100);
        let mut sorted: Vec<u64> = (0..100).collect();
        sorted.sort_by_key(|row| rows.head(*row));
        let answer = |order: &[u64], flipped: Option<usize>| {
            let (mut digest, mut value) = (Digest::default(), Vec::new());
            for (index, row) in order.iter().enumerate() {
                rows.value(*row, &mut value);
                value[50] ^= u8::from(flipped == Some(index));
                digest.see(rows.key(*row).bytes(), &value);
            }
            digest.answer()
        };
        let right = answer(&sorted, None);
        assert_eq!(right, Digest::of_first(&rows, 100).answer());
        let mut swapped = sorted.clone();
        swapped.swap(3, 4);
        let mut twice = sorted.clone();
        twice[5] = twice[4];
        for (order, flipped) in [(&sorted[1..], None), (&swapped, None), (&twice, None), (&sorted, Some(9))] {
            assert_ne!(answer(order, flipped), right);
        }
    }
}
