//! Lookup by key and by position: no locks, no writes to memory shared by all readers, at most one page read
//! per level.

use std::sync::Arc;

use super::node::{Body, Node};
use super::slot::Slot;
use super::stored_patch::{StoredPatch, Told};
use super::{Cursor, Direction, KeyRange, StoredValue};
use crate::error::Result;
use crate::page_cache::Pages;

/// Looks `key` up and hands its value, still in its leaf, to `use_value`, which may be slow.
///
/// # Errors
/// `Corrupt` or `Io` if a page on the way cannot be read.
pub(crate) fn find<T>(
    pages: &Pages,
    root: Option<&Slot>,
    key: &[u8],
    use_value: impl FnOnce(StoredValue<'_>) -> T,
) -> Result<Option<T>> {
    let Some(root) = root else { return Ok(None) };
    let node = match end_of(pages, root, key)? {
        End::Leaf(node) => node,
        End::Patch(patch) => {
            let Told::Value(value) = patch.told(key) else { return Ok(None) };
            return Ok(Some(use_value(value)));
        }
    };
    let Body::Leaf(leaf) = node.body() else { unreachable!("a path ends with a leaf") };
    Ok(leaf.find(key).ok().map(|index| use_value(leaf.value(index))))
}

/// Where a lookup ends.
enum End {
    /// In a leaf.
    Leaf(Arc<Node>),
    /// In the patch of a leaf that is not in memory: it tells about the key.
    Patch(Arc<StoredPatch>),
}

/// The end of the path to `key`, with a counted reference: no freeing of evicted nodes waits for its use.
fn end_of(pages: &Pages, root: &Slot, key: &[u8]) -> Result<End> {
    let pin = pages.meter().pin();
    let mut slot = root;
    loop {
        let patch = slot.unread().and_then(|pointer| pointer.patch.as_ref());
        if let Some(patch) = patch.filter(|patch| !matches!(patch.told(key), Told::Nothing)) {
            return Ok(End::Patch(Arc::clone(patch)));
        }
        match slot.load_in(pages, false, &pin)?.body() {
            Body::Inner(inner) => slot = inner.slot(inner.separators().child_of(key)),
            Body::Leaf(_) => return slot.share_in(pages, &pin).map(End::Leaf),
        }
    }
}

/// The leaf that `key` belongs to, with a counted reference: no freeing of evicted nodes waits for its use.
fn leaf_of(pages: &Pages, root: &Slot, key: &[u8]) -> Result<Arc<Node>> {
    let pin = pages.meter().pin();
    let mut slot = root;
    while let Body::Inner(inner) = slot.load_in(pages, false, &pin)?.body() {
        slot = inner.slot(inner.separators().child_of(key));
    }
    slot.share_in(pages, &pin)
}

/// The first key of a range.
///
/// # Errors
/// `Corrupt` or `Io` if a page on the way cannot be read.
pub(crate) fn first_key(pages: &Pages, root: Option<&Slot>, range: &KeyRange) -> Result<Option<Vec<u8>>> {
    let Some(slot) = root.filter(|_| !range.is_empty()) else { return Ok(None) };
    let node = leaf_of(pages, slot, &range.from)?;
    let Body::Leaf(leaf) = node.body() else { unreachable!("a path ends with a leaf") };
    let at = leaf.lower_bound(&range.from);
    if at == leaf.len() {
        // It begins a later leaf, if there is one.
        let mut cursor = Cursor::new(root, range.clone(), Direction::Forward);
        return Ok(cursor.next(pages)?.map(|(key, _)| key.to_vec()));
    }
    let mut key = Vec::new();
    leaf.key_into(at, &mut key);
    Ok(range.contains(&key).then_some(key))
}

/// How many keys are before `key`.
///
/// # Errors
/// `Corrupt` or `Io` if a page on the way cannot be read.
pub(super) fn rank(pages: &Pages, root: Option<&Slot>, key: &[u8]) -> Result<u64> {
    let Some(root) = root else { return Ok(0) };
    let pin = pages.meter().pin();
    let mut node = root.load_in(pages, false, &pin)?;
    let mut before = 0;
    loop {
        node = match node.body() {
            Body::Leaf(leaf) => return Ok(before + leaf.lower_bound(key) as u64),
            Body::Inner(inner) => {
                let child = inner.separators().child_of(key);
                before += inner.slots().take(child).map(|slot| slot.count).sum::<u64>();
                inner.slot(child).load_in(pages, false, &pin)?
            }
        };
    }
}

/// How many keys a range holds.
///
/// # Errors
/// `Corrupt` or `Io` if a page on the way cannot be read.
pub(crate) fn count(pages: &Pages, root: Option<&Slot>, range: &KeyRange) -> Result<u64> {
    let Some(slot) = root else { return Ok(0) };
    if range.is_empty() {
        return Ok(0);
    }
    let before = if range.from.is_empty() { 0 } else { rank(pages, root, &range.from)? };
    let until = match &range.to {
        Some(to) => rank(pages, root, to)?,
        None => slot.count,
    };
    debug_assert!(before <= until, "{before} keys are before a range that ends with key {until}");
    debug_assert!(until <= slot.count, "{until} keys are among {}", slot.count);
    Ok(until.saturating_sub(before))
}

/// The entry with `index` keys before it, handed to `use_entry` as key and value.
///
/// # Errors
/// `Corrupt` or `Io` if a page on the way cannot be read.
pub(crate) fn nth<T>(
    pages: &Pages,
    root: Option<&Slot>,
    index: u64,
    use_entry: impl FnOnce(Vec<u8>, StoredValue<'_>) -> T,
) -> Result<Option<T>> {
    let Some(root) = root.filter(|slot| index < slot.count) else { return Ok(None) };
    let mut left = index;
    let pin = pages.meter().pin();
    let mut node = root.load_in(pages, false, &pin)?;
    loop {
        node = match node.body() {
            Body::Leaf(leaf) => {
                let at = usize::try_from(left).expect("the position is within a leaf");
                return Ok(Some(use_entry(leaf.entry(at).key(), leaf.value(at))));
            }
            Body::Inner(inner) => {
                let child = inner.slots().find(|slot| {
                    let is_here = left < slot.count;
                    left -= if is_here { 0 } else { slot.count };
                    is_here
                });
                child.expect("a node counts what its children do").load_in(pages, false, &pin)?
            }
        };
    }
}
