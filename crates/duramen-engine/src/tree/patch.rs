//! A patch: entries of a leaf that are not on its page, so that changing one entry neither copies nor writes
//! the page.

use std::ops::Range;
use std::sync::Arc;

use super::heads::Heads;
use super::leaf::{ENTRY_FIXED_BYTES, Entry, StoredValue};
use super::stored_patch::{PatchBuilder, StoredPatch};
use crate::alarm::invariant;
use crate::page_cache::{Meter, PatchCharge};

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
    /// For each entry of the leaf, in key order, where it is.
    index: Box<[u16]>,
    /// The changes, deletes included.
    stored: Arc<StoredPatch>,
    entry_bytes: usize,
}

/// What a patch is made for.
#[derive(Clone, Copy)]
pub(super) struct PatchFor<'a> {
    /// The prefix of the page.
    pub prefix: &'a [u8],
    /// Bytes that all entries of the leaf will take in a page.
    pub entry_bytes: usize,
    /// The patch is no longer than this.
    pub bytes_max: usize,
    /// The meter that the patch is charged to, if it is kept with the node above the leaf.
    pub kept: Option<&'a Arc<Meter>>,
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

/// The changes of one patch with sorted edits.
struct Merged {
    changes: PatchBuilder,
    /// The place of each edit.
    places: Vec<Place>,
}

/// Where an edit is among the changes of a patch.
struct Place {
    /// The number of changes before it in the patch that it was made to.
    before: usize,
    /// Whether that patch has a change to the same key.
    replaces: bool,
    /// The number of changes before it in the new patch.
    after: usize,
}

impl Merged {
    fn of(stored: Option<&StoredPatch>, edits: &[Edit<'_>], prefix: &[u8]) -> Merged {
        let (count, bytes) = stored.map_or((0, 0), |stored| (stored.len(), stored.bytes().len()));
        let mut places = places(stored, edits);
        let added = places.iter().filter(|place| !place.replaces).count();
        let edit_bytes =
            |edit: &Edit<'_>| edit.suffix.len() + edit.value.map_or(0, |value| value.bytes.len()) + 2;
        let new_bytes = bytes + edits.iter().map(edit_bytes).sum::<usize>();
        let mut changes = PatchBuilder::new(prefix, count + added, new_bytes);
        let mut next = 0;
        for (edit, place) in edits.iter().zip(&mut places) {
            let mut is_on_page = edit.at.is_ok();
            if let Some(stored) = stored {
                changes.copy(stored, next..place.before);
                next = place.before + usize::from(place.replaces);
                if place.replaces {
                    is_on_page = stored.is_on_page(place.before);
                }
            }
            place.after = changes.len();
            match edit.value {
                Some(value) => changes.put(&edit.entry(value), is_on_page),
                None if is_on_page => changes.delete(edit.suffix),
                None => {}
            }
        }
        if let Some(stored) = stored {
            changes.copy(stored, next..count);
        }
        Merged { changes, places }
    }
}

/// The places of sorted edits in a patch.
fn places(stored: Option<&StoredPatch>, edits: &[Edit<'_>]) -> Vec<Place> {
    let mut next = 0;
    let place = |edit: &Edit<'_>| {
        let found = stored.map_or(Err(0), |stored| stored.find(edit.suffix, next));
        let (Ok(before) | Err(before)) = found;
        next = before + usize::from(found.is_ok());
        Place { before, replaces: found.is_ok(), after: 0 }
    };
    edits.iter().map(place).collect()
}

impl Patch {
    /// A patch and heads after sorted edits to a leaf with these heads and perhaps a patch. `None` if the
    /// patch would exceed its bound.
    pub(super) fn of(
        before: Option<&Patch>,
        heads: &Heads,
        edits: &[Edit<'_>],
        patch: PatchFor<'_>,
    ) -> Option<(Heads, Patch)> {
        let PatchFor { prefix, entry_bytes, bytes_max, kept } = patch;
        if edits.iter().map(Edit::bytes).sum::<usize>() > bytes_max {
            return None;
        }
        let Merged { changes, places } = Merged::of(before.map(|patch| &*patch.stored), edits, prefix);
        if changes.bytes() > bytes_max {
            return None;
        }
        let mut index = Vec::with_capacity(heads.len() + edits.len());
        // Changes from one edit to the next keep their distance to it.
        let keep = |index: &mut Vec<u16>, entries: Range<usize>, (old, new): (usize, usize)| match before {
            Some(patch) => index.extend(patch.index[entries].iter().map(|place| match place & PATCHED {
                0 => *place,
                _ => PATCHED | short(usize::from(place & !PATCHED) + new - old),
            })),
            None => index.extend(entries.map(short)),
        };
        let mut next = 0;
        for (edit, place) in edits.iter().zip(&places) {
            let (Ok(until) | Err(until)) = edit.at;
            keep(&mut index, next..until, (place.before, place.after));
            next = until + usize::from(edit.at.is_ok());
            if edit.value.is_some() {
                index.push(PATCHED | short(place.after));
            }
        }
        let old_len = before.map_or(0, |patch| patch.stored.len());
        keep(&mut index, next..heads.len(), (old_len, changes.len()));
        let heads = heads.edited(edits);
        let len = index.len();
        invariant!(heads.len() == len, "{len} entries of a patched leaf have {} heads", heads.len());
        let charge = kept.map(|meter| PatchCharge::new(meter, changes.bytes()));
        let stored = changes.finish(charge);
        let stored = match before {
            Some(before) => stored.with_filter_of(&before.stored),
            None => stored,
        };
        Some((heads, Patch { index: index.into(), stored: Arc::new(stored), entry_bytes }))
    }

    /// The bytes of entry `index` of the leaf; its index on the page if it is there (`Err`).
    pub(super) fn entry(&self, index: usize) -> Result<&[u8], usize> {
        let place = self.index[index];
        if place & PATCHED == 0 {
            return Err(place.into());
        }
        Ok(self.stored.change(usize::from(place & !PATCHED)))
    }

    /// Bytes that all entries of the leaf take in a page.
    pub(super) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// The changes.
    pub(super) fn stored(&self) -> &Arc<StoredPatch> {
        &self.stored
    }

    /// The same patch, with the changes in memory that another one has.
    pub(super) fn sharing(self, stored: Arc<StoredPatch>) -> Patch {
        Patch { stored, ..self }
    }

    /// Bytes of memory on the heap, but for changes that are charged by themselves.
    pub(super) fn heap_bytes(&self) -> usize {
        2 * self.index.len() + if self.stored.is_charged() { 0 } else { self.stored.bytes().len() }
    }
}

/// A patch with sorted edits: of entries that it changes, and of new ones, which the page does not have.
pub(super) fn extended(stored: &StoredPatch, edits: &[Edit<'_>], meter: &Arc<Meter>) -> StoredPatch {
    let changes = Merged::of(Some(stored), edits, stored.prefix()).changes;
    let charge = PatchCharge::new(meter, changes.bytes());
    changes.finish(Some(charge)).with_filter_of(stored)
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
            let edits = (0..=random.below(3))
                .map(|_| (key(random), (random.below(100) < 55).then(|| value(random))))
                .collect();
            if let Some(next) = edited(&leaf, &mut model, edits, (BYTES_MAX, None)) {
                patched += 1;
                leaf = next;
            } else {
                rebuilt += 1;
                leaf = build(&pages, &model);
            }
            check(&pages, &leaf, &model, random);
        }
        assert!(patched > 1000 && rebuilt > 1000, "{patched} patched, {rebuilt} rebuilt");
    }

    /// Many edits at once to a patch of hundreds of changes, as transactions of many rows make them.
    #[test]
    fn a_long_patch_holds_what_the_model_holds() {
        let pages = pages(&MemDisk::new(2));
        let random = &mut Random::new(12);
        let key = |random: &mut Random| format!("stem {:03}", random.below(900)).into_bytes();
        let mut model: Model = (0..600).map(|_| (key(random), value(random))).collect();
        let mut leaf = build(&pages, &model);
        let (mut longest, mut rebuilt) = (0, 0);
        for _ in 0..600 {
            let edits = (0..=random.below(120))
                .map(|_| (key(random), (random.below(100) < 55).then(|| value(random))))
                .collect();
            if let Some(next) = edited(&leaf, &mut model, edits, (40_000, Some(pages.meter()))) {
                longest = longest.max(next.stored_patch().unwrap().len());
                leaf = next;
            } else {
                rebuilt += 1;
                leaf = build(&pages, &model);
            }
            check(&pages, &leaf, &model, random);
        }
        assert!(longest > 300 && rebuilt > 10, "at most {longest} changes, {rebuilt} rebuilt");
    }

    /// The leaf after edits, which the model takes, too; `None` if a page must be built.
    fn edited(
        leaf: &Leaf,
        model: &mut Model,
        edits: BTreeMap<Vec<u8>, Option<(bool, Vec<u8>)>>,
        (bytes_max, kept): (usize, Option<&Arc<Meter>>),
    ) -> Option<Leaf> {
        let stored = |(big, bytes)| StoredValue { big, bytes };
        let changes: Vec<Change<'_>> = edits
            .iter()
            .map(|(key, value)| Change { key, value: value.as_ref().map(|(big, b)| stored((*big, b))) })
            .collect();
        let mut dropped = Vec::new();
        let next = leaf.patched(&changes, bytes_max, kept, &mut dropped);
        let mut replaced = Vec::new();
        for (key, value) in edits {
            let old = match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
            replaced.extend(old.filter(|(big, _)| *big).map(|(_, bytes)| bytes));
        }
        assert_eq!(dropped, if next.is_some() { replaced } else { Vec::new() });
        next
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
