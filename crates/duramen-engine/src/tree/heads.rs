//! Heads: the first bytes of sorted keys as an array of numbers, so that a search reads few cache lines. Pure
//! functions.

use std::ops::Range;

use super::patch::Edit;

/// A range of heads that is scanned instead of halved: a few cache lines, and no branches to predict.
const COUNTED: usize = 64;

/// The first four bytes of each of some sorted keys; shorter keys are padded with zeroes.
#[derive(Debug, Default)]
pub(super) struct Heads(Box<[u32]>);

impl Heads {
    /// Heads of keys in order.
    pub(super) fn of<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Heads {
        Heads(keys.map(head).collect())
    }

    /// The heads after sorted edits.
    pub(super) fn edited(&self, edits: &[Edit<'_>]) -> Heads {
        let mut heads = Vec::with_capacity(self.0.len() + edits.len());
        let mut next = 0;
        for edit in edits {
            let (Ok(until) | Err(until)) = edit.at;
            heads.extend_from_slice(&self.0[next..until]);
            next = until + usize::from(edit.at.is_ok());
            heads.extend(edit.value.map(|_| head(edit.suffix)));
        }
        heads.extend_from_slice(&self.0[next..]);
        Heads(heads.into())
    }

    /// Whether these are the heads of the keys.
    pub(super) fn are_of<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> bool {
        keys.map(head).eq(self.0.iter().copied())
    }

    /// Whether each key is larger than the one before it; `is_larger` compares keys with equal heads.
    pub(super) fn are_ordered(&self, is_larger: impl Fn(usize) -> bool) -> bool {
        let mut pairs = self.0.windows(2).enumerate();
        pairs.all(|(index, pair)| pair[0] < pair[1] || pair[0] == pair[1] && is_larger(index + 1))
    }

    /// Number of heads.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of memory.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// The range of keys that may equal `key`: keys before it are smaller, keys after it are larger.
    pub(super) fn candidates(&self, key: &[u8]) -> Range<usize> {
        let wanted = head(key);
        let (mut from, mut to) = (0, self.0.len());
        while to - from > COUNTED {
            let middle = usize::midpoint(from, to);
            if self.0[middle] < wanted { from = middle + 1 } else { to = middle }
        }
        // Summed in the width of the heads, of which the processor compares several at a time.
        let smaller: u32 = self.0[from..to].iter().map(|head| u32::from(*head < wanted)).sum();
        let low = from + smaller as usize;
        let same = match self.0.get(low + 1) {
            Some(next) if *next == wanted => self.0[low..].partition_point(|head| *head == wanted),
            _ => usize::from(self.0.get(low) == Some(&wanted)),
        };
        debug_assert!(
            (low == 0 || self.0[low - 1] < wanted)
                && self.0.get(low + same).is_none_or(|next| *next > wanted),
            "heads {low} to {} are those that equal {wanted:#x}",
            low + same
        );
        low..low + same
    }
}

fn head(key: &[u8]) -> u32 {
    match key.first_chunk() {
        Some(first) => u32::from_be_bytes(*first),
        None => key.iter().chain(&[0; 4]).take(4).fold(0, |head, byte| head << 8 | u32::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    //! For any keys: keys before the candidates are smaller, keys after them larger.
    use super::*;

    #[test]
    fn candidates_are_between_the_smaller_and_the_larger() {
        let mut random = duramen_disk::memory::Random::new(4);
        for round in 0..2_000 {
            let key = |random: &mut duramen_disk::memory::Random| -> Vec<u8> {
                let length = random.below(7);
                (0..length).map(|_| [0, 0, 1, 0xff][random.below(4)]).collect()
            };
            let mut keys: Vec<Vec<u8>> = (0..round % 150).map(|_| key(&mut random)).collect();
            keys.sort();
            keys.dedup();
            let heads = Heads::of(keys.iter().map(Vec::as_slice));
            let wanted = key(&mut random);
            let found = heads.candidates(&wanted);
            assert!(keys[..found.start].iter().all(|key| *key < wanted), "{wanted:?} in {keys:?}");
            assert!(keys[found.end..].iter().all(|key| *key > wanted), "{wanted:?} in {keys:?}");
        }
    }
}
