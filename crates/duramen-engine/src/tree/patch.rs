//! A patch: entries of a leaf in memory that are not on its page, so that changing one entry does not copy
//! the page.

use super::heads::Heads;
use super::leaf::{ENTRY_FIXED_BYTES, Entry, START_BYTES, StoredValue};
use crate::alarm::invariant;

/// Flag in the index: the entry is in the patch, not on the page.
const PATCHED: u16 = 0x8000;

const _: () = assert!(
    (u16::MAX as usize + 1) / ENTRY_FIXED_BYTES <= PATCHED as usize,
    "the index of an entry on a page leaves room for the flag"
);

/// One change to a leaf.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    /// The index of the entry (`Ok`), or where it would be inserted (`Err`).
    pub at: Result<usize, usize>,
    /// Its key after the leaf's prefix.
    pub suffix: &'a [u8],
    /// The new value; `None` to delete the entry.
    pub value: Option<StoredValue<'a>>,
}

/// Changes to a leaf since its page was built.
#[derive(Debug)]
pub(super) struct Patch {
    /// For each entry of the leaf, in key order, where it is; then for each entry of the patch where it ends.
    index: Box<[u16]>,
    /// Entries of the leaf.
    len: usize,
    /// The entries of the patch, as stored on pages; some may be replaced already.
    bytes: Box<[u8]>,
    entry_bytes: usize,
}

impl Edit<'_> {
    /// Bytes that the edit adds to a page.
    pub(super) fn bytes(&self) -> usize {
        self.value.map_or(0, |value| self.entry(value).cost())
    }

    fn entry<'a>(&'a self, value: StoredValue<'a>) -> Entry<'a> {
        Entry { head: self.suffix, tail: &[], value }
    }
}

impl Patch {
    /// A patch and heads after sorted edits to a leaf with these heads and perhaps a patch. `None` if the
    /// patch would exceed `bytes_max`. `entry_bytes` is what all entries of the leaf will take in a page.
    pub(super) fn of(
        before: Option<&Patch>,
        heads: &Heads,
        edits: &[Edit<'_>],
        entry_bytes: usize,
        bytes_max: usize,
    ) -> Option<(Heads, Patch)> {
        let (old_ends, old_bytes) = before.map_or((&[][..], &[][..]), |patch| (patch.ends(), &*patch.bytes));
        let new_bytes = old_bytes.len() + edits.iter().map(Edit::bytes).sum::<usize>();
        if new_bytes > bytes_max {
            return None;
        }
        let mut bytes = Vec::with_capacity(new_bytes);
        bytes.extend_from_slice(old_bytes);
        let mut index = Vec::with_capacity(heads.len() + 2 * edits.len() + old_ends.len());
        let keep = |index: &mut Vec<u16>, from: usize, to: usize| match before {
            Some(patch) => index.extend_from_slice(&patch.index[from..to]),
            None => index.extend((from..to).map(short)),
        };
        let (mut next, mut number) = (0, old_ends.len());
        for edit in edits {
            let (Ok(until) | Err(until)) = edit.at;
            keep(&mut index, next, until);
            next = until + usize::from(edit.at.is_ok());
            if edit.value.is_some() {
                index.push(PATCHED | short(number));
                number += 1;
            }
        }
        keep(&mut index, next, heads.len());
        let len = index.len();
        index.extend_from_slice(old_ends);
        for edit in edits {
            if let Some(value) = edit.value {
                edit.entry(value).encode(0, &mut bytes);
                index.push(short(bytes.len()));
            }
        }
        let counted = bytes.len() + START_BYTES * (number - old_ends.len());
        invariant!(counted == new_bytes, "a patch takes the {new_bytes} bytes that its entries cost");
        let heads = heads.edited(edits);
        invariant!(heads.len() == len, "{len} entries of a patched leaf have {} heads", heads.len());
        let (index, bytes) = (index.into(), bytes.into());
        Some((heads, Patch { index, len, bytes, entry_bytes }))
    }

    fn ends(&self) -> &[u16] {
        &self.index[self.len..]
    }

    /// The bytes of entry `index` of the leaf; its index on the page if it is there (`Err`).
    pub(super) fn entry(&self, index: usize) -> Result<&[u8], usize> {
        let place = self.index[index];
        if place & PATCHED == 0 {
            return Err(place.into());
        }
        let number = usize::from(place & !PATCHED);
        let start = number.checked_sub(1).map_or(0, |before| self.ends()[before]);
        Ok(&self.bytes[start.into()..self.ends()[number].into()])
    }

    /// Bytes that all entries of the leaf take in a page.
    pub(super) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// Bytes of memory on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        2 * self.index.len() + self.bytes.len()
    }
}

fn short(number: usize) -> u16 {
    u16::try_from(number)
        .ok()
        .filter(|number| number & PATCHED == 0)
        .expect("half of a leaf's bytes (limits.rs)")
}

#[cfg(test)]
mod tests {
    //! A leaf patched many times holds what a model holds, and so does the page rebuilt from it.
    use std::collections::BTreeMap;

    use duramen_disk::MemDisk;
    use duramen_disk::memory::Random;

    use super::super::leaf::Leaf;
    use super::super::tests::pages;
    use super::super::{Change, StoredValue};
    use super::*;

    type Model = BTreeMap<Vec<u8>, (bool, Vec<u8>)>;

    const BYTES_MAX: usize = 2048;

    #[test]
    fn a_patched_leaf_holds_what_the_model_holds() {
        let pages = pages(&MemDisk::new(1));
        let random = &mut Random::new(11);
        let mut model: Model = (0..20).map(|_| (key(random), value(random))).collect();
        let mut leaf = build(&pages, &model);
        let (mut patched, mut rebuilt) = (0, 0);
        for _ in 0..20_000 {
            let edits: BTreeMap<Vec<u8>, Option<(bool, Vec<u8>)>> = (0..=random.below(3))
                .map(|_| (key(random), (random.below(100) < 55).then(|| value(random))))
                .collect();
            let stored = |(big, bytes)| StoredValue { big, bytes };
            let changes: Vec<Change<'_>> = edits
                .iter()
                .map(|(key, value)| Change { key, value: value.as_ref().map(|(big, b)| stored((*big, b))) })
                .collect();
            let mut dropped = Vec::new();
            let next = leaf.patched(&changes, BYTES_MAX, &mut dropped);
            let mut replaced = Vec::new();
            for (key, value) in edits {
                let old = match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
                replaced.extend(old.filter(|(big, _)| *big).map(|(_, bytes)| bytes));
            }
            leaf = if let Some(next) = next {
                patched += 1;
                assert_eq!(dropped, replaced);
                next
            } else {
                rebuilt += 1;
                assert!(dropped.is_empty());
                build(&pages, &model)
            };
            check(&pages, &leaf, &model, random);
        }
        assert!(patched > 1000 && rebuilt > 1000, "{patched} patched, {rebuilt} rebuilt");
    }

    fn key(random: &mut Random) -> Vec<u8> {
        let stem = if random.below(50) == 0 { b"a".to_vec() } else { b"stem".to_vec() };
        let tail = (0..random.below(4)).map(|_| [0, b'x', 0xff][random.below(3)]);
        stem.into_iter().chain(tail).collect()
    }

    fn value(random: &mut Random) -> (bool, Vec<u8>) {
        (random.below(5) == 0, vec![7; random.below(40)])
    }

    fn build(pages: &crate::page_cache::Pages, model: &Model) -> Leaf {
        let entries: Vec<Entry<'_>> = model
            .iter()
            .map(|(key, (big, bytes))| Entry {
                head: key,
                tail: &[],
                value: StoredValue { big: *big, bytes },
            })
            .collect();
        Leaf::build(pages, &entries, 1)
    }

    fn check(pages: &crate::page_cache::Pages, leaf: &Leaf, model: &Model, random: &mut Random) {
        let again = leaf.rebuilt(pages, 1);
        assert!(again.page().unwrap().bytes().len() <= leaf.page_bytes_max());
        for leaf in [leaf, &again] {
            let held = (0..leaf.len()).map(|index| {
                let value = leaf.value(index);
                (leaf.entry(index).key(), (value.big, value.bytes.to_vec()))
            });
            assert!(held.eq(model.clone()));
        }
        let wanted = key(random);
        let before = model.range(..wanted.clone()).count();
        let expected = if model.contains_key(&wanted) { Ok(before) } else { Err(before) };
        assert_eq!(leaf.find(&wanted), expected);
    }
}
