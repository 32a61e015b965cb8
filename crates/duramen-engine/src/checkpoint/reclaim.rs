//! Reclaims the pages of dropped trees, a slice per checkpoint. Dropping a huge tree is one small commit.

use std::sync::Arc;

use super::Store;
use crate::allocator::DeferredExtent;
use crate::data_file::{PageKind, PagePointer};
use crate::error::Result;
use crate::ids::CommitSeq;
use crate::tree::{BigRef, Body, Node, Slot};

struct Reclaimer<'a> {
    store: &'a Store,
    has_big_values: bool,
    extents: Vec<DeferredExtent>,
    unused_since: CommitSeq,
}

/// Defers the free of a dropped tree's pages from key `start` on. Returns where to go on; `None` at the end.
pub(super) fn reclaim(
    store: &Store,
    root: &Slot,
    start: &[u8],
    has_big_values: bool,
    unused_since: CommitSeq,
) -> Result<Option<Vec<u8>>> {
    let mut reclaimer = Reclaimer { store, has_big_values, extents: Vec::new(), unused_since };
    let next = reclaimer.slot(root, start)?;
    store.space.defer_free(reclaimer.extents);
    Ok(next)
}

impl Reclaimer<'_> {
    fn slot(&mut self, slot: &Slot, start: &[u8]) -> Result<Option<Vec<u8>>> {
        let pointer = slot.pointer().expect("a dropped tree was written before it is reclaimed");
        if pointer.page.is_inner() {
            let Some(node) = self.load(slot)? else {
                // Corrupt: the space below it is lost, but no data, and the checkpoint completes.
                self.node(&pointer.page);
                return Ok(None);
            };
            let Body::Inner(inner) = node.body() else {
                unreachable!("the pointer says it is an inner node")
            };
            let first = inner.separators().child_of(start);
            for child in first..inner.len() {
                if self.extents.len() >= self.store.give_back.reclaimed_pages_max && child > 0 {
                    return Ok(Some(inner.separators().get(child - 1)));
                }
                let start = if child == first { start } else { &[] };
                if let Some(next) = self.slot(inner.slot(child), start)? {
                    return Ok(Some(next));
                }
            }
        } else if self.has_big_values {
            self.values(slot)?;
        }
        self.node(&pointer.page);
        Ok(None)
    }

    /// Loads a node; `None` if it is corrupt.
    fn load(&self, slot: &Slot) -> Result<Option<Arc<Node>>> {
        match slot.load(&self.store.pages, true) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.is_corruption() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn values(&mut self, slot: &Slot) -> Result<()> {
        let Some(node) = self.load(slot)? else { return Ok(()) };
        let Body::Leaf(leaf) = node.body() else { unreachable!("the pointer says it is a leaf") };
        for index in (0..leaf.len()).filter(|index| leaf.value(*index).big) {
            let value = BigRef::decode(leaf.value(index).bytes);
            match value.and_then(|value| value.pages(&self.store.pages)) {
                Ok(pages) => pages.iter().for_each(|page| self.page(page)),
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The page of a node that may not have been read: a hostile pointer may name any blocks. These are not
    /// freed.
    fn node(&mut self, pointer: &PagePointer) {
        let kind = if pointer.is_inner() { PageKind::Inner } else { PageKind::Leaf };
        if self.store.pages.data().check(pointer, kind).is_ok() {
            self.page(pointer);
        }
    }

    fn page(&mut self, pointer: &PagePointer) {
        let (block, block_count) = pointer.extent();
        // The commit that made the page is unknown without reading it: any older snapshot may hold it.
        let birth = CommitSeq(0);
        self.extents.push(DeferredExtent { block, block_count, birth, unused_since: self.unused_since });
    }
}
