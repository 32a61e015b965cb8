//! Changes to a leaf that is not in memory, without reading its page.
//!
//! They go into its patch, if the patch and the filter of the page tell which of the keys the leaf has: its
//! count stays exact then. Its reduction is the old one joined with those of the new entries, where the order
//! of joins does not matter. All other changes need the page, and it is read for them.

use super::super::leaf::kept_patch_bytes_max;
use super::super::patch::{Edit, extended};
use super::super::pointer::{NodePointer, Reduction};
use super::super::reduce::with_entries;
use super::super::reducer::Reducer;
use super::super::slot::Slot;
use super::super::stored_patch::{StoredPatch, Told};
use super::{Apply, Change};

/// Changes that can be made without the page.
struct Known<'c, 'p> {
    edits: Vec<Edit<'c>>,
    pointer: &'p NodePointer,
    patch: &'p StoredPatch,
    /// Edits of keys that the leaf does not have.
    new: u64,
    dropped_values: Vec<Vec<u8>>,
}

impl Apply<'_> {
    /// The leaf in a slot after changes. `None` if it is in memory, or its page must be read for them.
    pub(super) fn unread(&mut self, slot: &Slot, changes: &[Change<'_>]) -> Option<Slot> {
        let known = self.known(slot, changes)?;
        let reduction = self.reduction_after(&known, changes)?;
        self.dropped_values.extend(known.dropped_values);
        let patch = extended(known.patch, &known.edits, self.pages.meter());
        Some(slot.repatched(slot.count + known.new, reduction, patch))
    }

    /// Whether changes can be made without reading the leaf.
    pub(super) fn is_known(&self, slot: &Slot, changes: &[Change<'_>]) -> bool {
        self.known(slot, changes).is_some()
    }

    fn known<'c, 'p>(&self, slot: &'p Slot, changes: &[Change<'c>]) -> Option<Known<'c, 'p>> {
        let pointer = slot.unread().filter(|_| self.patches)?;
        let patch = pointer.patch.as_deref()?;
        let is_joined =
            |reducer: &dyn Reducer| reducer.is_commutative() && pointer.reduction.bytes().is_some();
        if !self.reducer.is_none_or(is_joined) {
            return None;
        }
        let edits = Vec::with_capacity(changes.len());
        let mut known = Known { edits, pointer, patch, new: 0, dropped_values: Vec::new() };
        for change in changes {
            let value = change.value?;
            // What a large value adds to a reduction may have to be read.
            if value.big && self.reducer.is_some() {
                return None;
            }
            let suffix = change.key.strip_prefix(patch.prefix())?;
            match patch.told(change.key) {
                Told::Nothing => return None,
                Told::Absent => known.new += 1,
                // The value that it had is part of the reduction.
                Told::Value(_) if self.reducer.is_some() => return None,
                Told::Value(old) if old.big => known.dropped_values.push(old.bytes.to_vec()),
                Told::Value(_) => {}
            }
            known.edits.push(Edit { at: Err(0), suffix, value: Some(value) });
        }
        let patch_bytes = patch.bytes().len() + known.edits.iter().map(Edit::bytes).sum::<usize>();
        let leaf_bytes = pointer.page.raw_bytes as usize + patch_bytes;
        let leaf_bytes_max = self.geometry.leaf_bytes_max;
        let fits = patch_bytes <= kept_patch_bytes_max(leaf_bytes_max) && leaf_bytes <= leaf_bytes_max;
        fits.then_some(known)
    }

    /// The reduction after changes that add entries; `None` if the reducer refuses one.
    fn reduction_after(&self, known: &Known<'_, '_>, changes: &[Change<'_>]) -> Option<Reduction> {
        let Some(reducer) = self.reducer else { return Some(Reduction::UNKNOWN) };
        let before = known.pointer.reduction.bytes()?;
        let added = changes.iter().filter_map(|change| Some((change.key, change.value?.bytes)));
        // A reducer that refuses an entry is asked again once the leaf is read.
        let after = with_entries(reducer, before, added).ok()?;
        Some(Reduction::of(&after))
    }
}
