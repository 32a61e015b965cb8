//! Leaves after the changes of a transaction, built before the order lock is taken.
//!
//! A transaction of many rows may lead to more leaves than memory has room for. Each is read once, and what
//! is kept of it is the patch that it has after the changes. Under the lock that takes its place, if the leaf
//! is still the one that it was built from.

use std::collections::BTreeMap;

use super::super::bounds::Bounds;
use super::super::inner::Inner;
use super::super::node::Body;
use super::super::slot::Slot;
use super::super::write::known_reduction;
use super::{Apply, Change, has_room_for_patches, next_child};
use crate::error::Error;
use crate::ids::TreeId;
use crate::page_cache::Pages;
use crate::threads::side_by_side;

/// The leaves of all trees that were built for a transaction, by tree, each in order of keys.
pub(crate) type Prebuilt = BTreeMap<TreeId, Vec<PrebuiltLeaf>>;

/// A leaf after changes: a patch to a page that is not in memory.
#[derive(Debug, Clone)]
pub(crate) struct PrebuiltLeaf {
    /// The key of the first change, and the number of changes.
    of: (Vec<u8>, usize),
    old: Slot,
    new: Slot,
    dropped_values: Vec<Vec<u8>>,
}

impl PrebuiltLeaf {
    fn copied(&self, pages: &Pages) -> PrebuiltLeaf {
        let PrebuiltLeaf { of, old, new, dropped_values } = self;
        let new = new.copied(pages.meter());
        PrebuiltLeaf { of: of.clone(), old: old.clone(), new, dropped_values: dropped_values.clone() }
    }
}

/// Fewer changes are not shared among threads.
const THREADS_CHANGES_MIN: usize = 64;

impl<'a> Apply<'a> {
    /// Uses these leaves where they fit.
    #[must_use]
    pub(crate) fn with_prebuilt(mut self, prebuilt: Option<&'a Vec<PrebuiltLeaf>>) -> Apply<'a> {
        self.prebuilt = prebuilt.map_or(&[], Vec::as_slice);
        self
    }

    /// Builds leaves also where they need not be read. Such a leaf may have to be joined with its neighbour,
    /// and what is read for that must stay.
    #[must_use]
    pub(crate) fn building_known(mut self, builds_known: bool) -> Apply<'a> {
        self.builds_known = builds_known;
        self
    }

    /// Reads the leaves that `changes` lead to and that are not in memory, and builds what they will be. A
    /// leaf that cannot become a patch is brought into memory, and so are the nodes above all leaves.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read.
    pub(crate) fn prebuild(
        self,
        root: &Slot,
        changes: &[Change<'_>],
        threads: usize,
    ) -> Result<Vec<PrebuiltLeaf>, Error> {
        if threads == 1 || changes.len() < THREADS_CHANGES_MIN {
            return self.prebuild_part(root, changes);
        }
        let mut parts: Vec<&[Change<'_>]> = Vec::with_capacity(threads);
        let mut rest = changes;
        while !rest.is_empty() {
            let least = changes.len().div_ceil(threads).min(rest.len());
            // The changes of one leaf stay together.
            let end = least - 1 + self.changes_of_first_leaf(root, &rest[least - 1..])?;
            let (part, later) = rest.split_at(end);
            parts.push(part);
            rest = later;
        }
        let (pages, geometry, birth) = (self.pages, self.geometry, self.birth);
        let (loading, reducer, patches) = (self.loading, self.reducer, self.patches);
        let (earlier, builds_known) = (self.prebuilt, self.builds_known);
        let built = side_by_side(&parts, |part| {
            let mut apply = Apply::new(pages, geometry, birth, loading).reduced_by(reducer);
            (apply.patches, apply.prebuilt, apply.builds_known) = (patches, earlier, builds_known);
            apply.prebuild_part(root, part)
        });
        let mut parts = built.into_iter();
        let mut all = parts.next().transpose()?.unwrap_or_default();
        for part in parts {
            // Patches stay for long. Allocators keep memory by thread, and with those of many threads more of
            // it is unused.
            all.extend(part?.iter().map(|leaf| leaf.copied(self.pages)));
        }
        Ok(all)
    }

    fn prebuild_part(mut self, root: &Slot, changes: &[Change<'_>]) -> Result<Vec<PrebuiltLeaf>, Error> {
        let mut built = Vec::with_capacity(changes.len());
        self.prebuild_below(root, changes, Bounds::default(), &mut built)?;
        Ok(built)
    }

    fn prebuild_below(
        &mut self,
        slot: &Slot,
        changes: &[Change<'_>],
        bounds: Bounds<'_>,
        built: &mut Vec<PrebuiltLeaf>,
    ) -> Result<(), Error> {
        let node = slot.load(self.pages, false)?;
        let Body::Inner(inner) = node.body() else { return Ok(()) };
        let mut rest = changes;
        let makes_patches = has_room_for_patches(inner, self.geometry);
        while let Some((child, here, later)) = next_child(inner, rest) {
            rest = later;
            let (slot, bounds) = (inner.slot(child), bounds.of_child(inner, child));
            match inner.level {
                1 if slot.is_resident() => {}
                1 if makes_patches => built.extend(self.prebuild_leaf(inner, child, here, bounds)?),
                1 => drop(slot.load(self.pages, true)?),
                _ => self.prebuild_below(slot, here, bounds, built)?,
            }
        }
        Ok(())
    }

    fn prebuild_leaf(
        &mut self,
        inner: &Inner,
        child: usize,
        changes: &[Change<'_>],
        bounds: Bounds<'_>,
    ) -> Result<Option<PrebuiltLeaf>, Error> {
        let slot = inner.slot(child);
        if let Some(leaf) = self.prebuilt_for(slot, changes) {
            return Ok(Some(leaf.clone()));
        }
        if !self.builds_known && self.is_known(slot, changes) {
            // Its patch is made when the changes are applied.
            return Ok(None);
        }
        let new = match self.unread(slot, changes) {
            Some(new) => Some(new),
            None => self.patched_slot(inner, child, changes, bounds)?,
        };
        let Some(new) = new else { return slot.load(self.pages, true).map(|_| None) };
        let dropped_values = std::mem::take(&mut self.dropped_values);
        let of = (changes[0].key.to_vec(), changes.len());
        Ok(Some(PrebuiltLeaf { of, old: slot.clone(), new, dropped_values }))
    }

    /// The leaf of a child after changes, as a patch; `None` if it cannot be one.
    fn patched_slot(
        &mut self,
        inner: &Inner,
        child: usize,
        changes: &[Change<'_>],
        bounds: Bounds<'_>,
    ) -> Result<Option<Slot>, Error> {
        let node = inner.slot(child).pass_through(self.pages)?;
        bounds.check(self.pages, &node)?;
        let Body::Leaf(leaf) = node.body() else { return Ok(None) };
        let Some(patch) = self.patch(&node, leaf, changes) else { return Ok(None) };
        let reduction = known_reduction(self.pages, &patch, self.reducer)?;
        let pointer = patch.settle(reduction).clone();
        // The next change of the leaf need not read it.
        patch.make_filter();
        Ok(Some(Slot::below(self.pages.meter(), patch.count(), pointer, inner.level)))
    }

    /// How many of the changes lead to the same leaf as the first.
    fn changes_of_first_leaf(&self, root: &Slot, changes: &[Change<'_>]) -> Result<usize, Error> {
        let node = root.load(self.pages, false)?;
        match node.body() {
            Body::Leaf(_) => Ok(changes.len()),
            Body::Inner(inner) => {
                let (child, here, _) = next_child(inner, changes).expect("there is a first change");
                match inner.level {
                    1 => Ok(here.len()),
                    _ => self.changes_of_first_leaf(inner.slot(child), here),
                }
            }
        }
    }

    /// The leaf in a slot after changes, if it was built before and is not in memory.
    pub(super) fn prebuilt(&mut self, slot: &Slot, changes: &[Change<'_>]) -> Option<Slot> {
        if self.prebuilt.is_empty() || slot.is_resident() {
            return None;
        }
        let leaf = self.prebuilt_for(slot, changes)?;
        self.dropped_values.extend_from_slice(&leaf.dropped_values);
        Some(leaf.new.clone())
    }

    fn prebuilt_for(&self, slot: &Slot, changes: &[Change<'_>]) -> Option<&'a PrebuiltLeaf> {
        let (first, count) = (changes.first()?.key, changes.len());
        let at = self.prebuilt.binary_search_by(|leaf| leaf.of.0.as_slice().cmp(first)).ok()?;
        let leaf = &self.prebuilt[at];
        if leaf.of.1 != count || !leaf.old.same_as(slot) {
            return None;
        }
        Some(leaf)
    }
}
