//! Rows of one input with the same key: which earlier line had it.
//!
//! The memory is bounded: it holds the hashes of the latest keys. While keys come in order it holds only the
//! first and the latest, since a repeat is then the latest key.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Keys of one generation. Two are remembered, in 5 MB: the size is the most that a table of 2 MB takes.
const GENERATION: usize = 114_688;

/// Keys that are remembered at most while each is larger than the one before.
const ORDERED_KEYS_MAX: usize = 20_000;

/// A row with the key of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    /// Its index in its batch.
    pub(super) index: usize,
    pub(super) line: u64,
    /// The line of the latest row before it with the same key.
    pub(super) earlier: u64,
}

/// The keys of the rows so far.
#[derive(Default)]
pub(super) struct Keys {
    lines: HashMap<u64, u64>,
    /// The generation before.
    older: HashMap<u64, u64>,
    hasher: RandomState,
    latest: Vec<u8>,
    latest_line: u64,
    /// Whether some key was smaller than the one before.
    is_unordered: bool,
    /// Whether some key was not remembered.
    has_forgotten: bool,
}

impl Keys {
    /// Whether a repeat may have been missed: keys that only grow repeat nothing but the latest.
    pub(super) fn may_have_missed(&self) -> bool {
        self.has_forgotten && self.is_unordered
    }

    /// The rows of a batch, which begin on these lines, that repeat a key.
    pub(super) fn repeats<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>, lines: &[u64]) -> Vec<Repeat> {
        let repeat = |(index, (key, line)): (usize, (&[u8], &u64))| {
            let earlier = self.remember(key, *line)?;
            Some(Repeat { index, line: *line, earlier })
        };
        keys.zip(lines).enumerate().filter_map(repeat).collect()
    }

    /// Adds a key. Returns the latest line before with the same key.
    fn remember(&mut self, key: &[u8], line: u64) -> Option<u64> {
        self.is_unordered |= key < self.latest.as_slice();
        let is_latest = self.latest_line > 0 && key == self.latest;
        let earlier_latest = is_latest.then_some(self.latest_line);
        self.latest.clear();
        self.latest.extend_from_slice(key);
        self.latest_line = line;
        let hash = self.hasher.hash_one(key);
        let known = self.lines.get(&hash).or_else(|| self.older.get(&hash)).copied();
        if self.is_unordered || self.lines.len() < ORDERED_KEYS_MAX {
            self.insert(hash, line);
        } else {
            self.has_forgotten |= known.is_none();
        }
        earlier_latest.or(known)
    }

    fn insert(&mut self, hash: u64, line: u64) {
        if self.lines.len() == GENERATION {
            self.has_forgotten |= !self.older.is_empty();
            self.older.clear();
            std::mem::swap(&mut self.lines, &mut self.older);
        }
        self.lines.insert(hash, line);
    }
}

#[cfg(test)]
mod tests {
    //! What is remembered of keys in order, and of keys without order.
    use super::*;

    fn check(keys: impl Iterator<Item = u64>, wanted: &[(u64, u64)], may_have_missed: bool) {
        let mut known = Keys::default();
        let mut found = Vec::new();
        for (line, key) in (2..).zip(keys) {
            let key = key.to_be_bytes();
            let repeats = known.repeats([key.as_slice()].into_iter(), &[line]);
            found.extend(repeats.iter().map(|repeat| (repeat.earlier, repeat.line)));
        }
        assert_eq!((found.as_slice(), known.may_have_missed()), (wanted, may_have_missed));
    }

    #[test]
    fn a_key_that_comes_again_is_found() {
        check([7, 3, 7, 7, 3].into_iter(), &[(2, 4), (4, 5), (3, 6)], false);
        check([0, 0].into_iter(), &[(2, 3)], false);
    }

    #[test]
    fn memory_is_bounded() {
        let many = ORDERED_KEYS_MAX as u64 + 10;
        check((0..many).chain([many - 1]), &[(many + 1, many + 2)], false);
        check((0..many).chain([5, many - 2]), &[(7, many + 2)], true);
        let more = 3 * GENERATION as u64;
        check((0..more).rev().chain([more - 1, 0]), &[(more + 1, more + 3)], true);
        check(
            (0..GENERATION as u64).rev().chain([7]),
            &[(GENERATION as u64 - 6, GENERATION as u64 + 2)],
            false,
        );
    }
}
