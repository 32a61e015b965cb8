//! Separators: the keys between the children of an inner node, in one block after a common prefix. Pure
//! functions.

use std::ops::Range;

use super::heads::Heads;
use crate::alarm::invariant;

/// Sorted separators: child `i` holds keys at or after separator `i - 1` and before separator `i`.
#[derive(Debug, Default)]
pub(crate) struct Separators {
    prefix: Box<[u8]>,
    bytes: Box<[u8]>,
    /// Where each separator ends in `bytes`.
    ends: Box<[u32]>,
    heads: Heads,
}

impl Separators {
    /// Packs sorted keys.
    pub(crate) fn pack(keys: &[Vec<u8>]) -> Separators {
        let shared = match keys {
            [] => 0,
            [only] => only.len(),
            [first, .., last] => first.iter().zip(last).take_while(|(a, b)| a == b).count(),
        };
        let mut bytes = Vec::with_capacity(keys.iter().map(|k| k.len() - shared).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for key in keys {
            bytes.extend_from_slice(&key[shared..]);
            ends.push(position(&bytes));
        }
        let prefix = keys.first().map_or(&[][..], |k| &k[..shared]);
        let packed = Separators::of(prefix, bytes, ends);
        debug_assert!(packed.are_ordered(), "{} keys to pack are sorted and unique", keys.len());
        packed
    }

    /// Separators from the bytes after a common prefix.
    pub(crate) fn of(prefix: &[u8], bytes: Vec<u8>, ends: Vec<u32>) -> Separators {
        let starts = std::iter::once(&0).chain(&ends);
        let heads = Heads::of(starts.zip(&ends).map(|(from, to)| &bytes[*from as usize..*to as usize]));
        Separators { prefix: prefix.into(), bytes: bytes.into(), ends: ends.into(), heads }
    }

    /// The separators with more keys. Each comes with the number of existing keys before it, in order. `None`
    /// if one lacks the common prefix.
    pub(crate) fn with(&self, added: &[(usize, &[u8])]) -> Option<Separators> {
        let mut bytes =
            Vec::with_capacity(self.bytes.len() + added.iter().map(|(_, key)| key.len()).sum::<usize>());
        let mut ends = Vec::with_capacity(self.len() + added.len());
        let mut next = 0;
        for (before, key) in added {
            self.copy(next..*before, &mut bytes, &mut ends);
            bytes.extend_from_slice(key.strip_prefix(&*self.prefix)?);
            ends.push(position(&bytes));
            next = *before;
        }
        self.copy(next..self.len(), &mut bytes, &mut ends);
        let with = Separators::of(&self.prefix, bytes, ends);
        for (index, (before, _)) in added.iter().enumerate() {
            let at = before + index;
            invariant!(with.fits_in(at), "separator {at} of {} lies between its neighbours", with.len());
        }
        debug_assert!(with.are_ordered(), "{} separators are sorted after an addition", with.len());
        Some(with)
    }

    /// Whether a separator lies between the one before it and the one after it.
    fn fits_in(&self, index: usize) -> bool {
        let suffix = self.suffix(index);
        (index == 0 || self.suffix(index - 1) < suffix)
            && (index + 1 == self.len() || suffix < self.suffix(index + 1))
    }

    fn copy(&self, which: Range<usize>, bytes: &mut Vec<u8>, ends: &mut Vec<u32>) {
        let (start, end) = (self.start(which.start), self.start(which.end));
        // Keys are only added: none moves towards the front.
        let moved = position(bytes) - start;
        bytes.extend_from_slice(&self.bytes[start as usize..end as usize]);
        ends.extend(self.ends[which].iter().map(|end| end + moved));
    }

    fn start(&self, index: usize) -> u32 {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Whether each separator is larger than the one before it.
    pub(crate) fn are_ordered(&self) -> bool {
        self.heads.are_ordered(|index| self.suffix(index - 1) < self.suffix(index))
    }

    /// The prefix of all separators.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Bytes of all separators after the prefix.
    pub(crate) fn suffix_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of separators.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Separator `index` after the prefix.
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index) as usize..self.ends[index] as usize]
    }

    /// Whether `key` is before separator `index`.
    pub(crate) fn is_before(&self, key: &[u8], index: usize) -> bool {
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => rest < self.suffix(index),
            None => key < &*self.prefix,
        }
    }

    /// Separator `index`, with the prefix.
    pub(crate) fn get(&self, index: usize) -> Vec<u8> {
        [&self.prefix, self.suffix(index)].concat()
    }

    /// The child that holds `key`: the number of separators at or before it.
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        let shared = key.len().min(self.prefix.len());
        match key[..shared].cmp(&self.prefix[..shared]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.len(),
            std::cmp::Ordering::Equal if key.len() < self.prefix.len() => return 0,
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[self.prefix.len()..];
        let Range { start: mut low, end: mut high } = self.heads.candidates(rest);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.suffix(middle) <= rest { low = middle + 1 } else { high = middle }
        }
        debug_assert!(
            (low == 0 || self.suffix(low - 1) <= rest) && (low == self.len() || rest < self.suffix(low)),
            "a key belongs to child {low} of {}",
            self.len() + 1
        );
        low
    }

    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.prefix.len() + self.bytes.len() + 4 * self.ends.len() + self.heads.heap_bytes()
    }
}

fn position(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("an inner node is far below 4 GiB (limits.rs)")
}

#[cfg(test)]
mod tests {
    //! Keys added later are where they would have been from the beginning.
    use super::*;

    #[test]
    fn keys_are_added_in_their_places() {
        let mut random = duramen_disk::memory::Random::new(3);
        for _ in 0..500 {
            let mut key = || -> Vec<u8> {
                let tail = (0..random.below(5)).map(|_| [0, 7, 0xff][random.below(3)]);
                b"stem".iter().copied().chain(tail).collect()
            };
            let mut keys: Vec<Vec<u8>> = (0..40).map(|_| key()).collect();
            keys.sort();
            keys.dedup();
            let (old, new): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(|_| random.below(3) > 0);
            let before = |key: &Vec<u8>| old.partition_point(|old| old < key);
            let added: Vec<(usize, &[u8])> = new.iter().map(|key| (before(key), key.as_slice())).collect();
            let packed = Separators::pack(&old);
            match packed.with(&added) {
                None => assert!(new.iter().any(|key| !key.starts_with(packed.prefix()))),
                Some(with) => {
                    let found: Vec<_> = (0..with.len()).map(|index| with.get(index)).collect();
                    assert_eq!(found, keys);
                    for (index, key) in keys.iter().enumerate() {
                        assert_eq!(with.child_of(key), index + 1);
                        for other in &keys {
                            assert_eq!(with.is_before(other, index), other < key);
                        }
                    }
                }
            }
        }
    }
}
