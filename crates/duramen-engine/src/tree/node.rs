//! A node: a leaf or an inner node, immutable once built.
//!
//! What is learnt later is kept in cells: its page pointer, its reduction, and that it was replaced.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::inner::Inner;
use super::leaf::{Entry, Leaf};
use super::pointer::{NodePointer, Reduction};
use super::slot::Slot;
use crate::alarm::invariant;
use crate::data_file::{PageKind, PagePointer};
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::page_cache::{Charge, Pages};

const HAS_PAGE: u8 = 1;
const UNUSED: u8 = 2;

/// What a node holds.
#[derive(Debug)]
pub(crate) enum Body {
    /// Entries.
    Leaf(Leaf),
    /// Children.
    Inner(Inner),
}

/// A node of a tree. Fields that lookups read come first, to touch few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Node {
    recent: AtomicBool,
    state: AtomicU8,
    body: Body,
    count: u64,
    birth: CommitSeq,
    reduction: OnceLock<Reduction>,
    pointer: OnceLock<NodePointer>,
    unused_since: AtomicU64,
    charge: Charge,
}

/// A page that a newer version of its tree does not use: snapshots from `birth` to before `unused_since` do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeferredPage {
    /// The page.
    pub pointer: PagePointer,
    /// The commit that made it.
    pub birth: CommitSeq,
    /// The commit that replaced it.
    pub unused_since: CommitSeq,
}

impl Node {
    /// A leaf of sorted entries, made by commit `birth`.
    ///
    /// A node that will never be written is not charged as dirty.
    pub(crate) fn new_leaf(
        pages: &Pages,
        entries: &[Entry<'_>],
        birth: CommitSeq,
        to_be_written: bool,
    ) -> Node {
        Node::of_leaf(pages, Leaf::build(pages, entries, birth.0), birth, to_be_written)
    }

    /// A leaf that commit `birth` made from another one; `to_be_written` as in [`Node::new_leaf`].
    pub(crate) fn of_leaf(pages: &Pages, leaf: Leaf, birth: CommitSeq, to_be_written: bool) -> Node {
        Node::new(pages, Body::Leaf(leaf), birth, None, to_be_written)
    }

    /// An inner node made by commit `birth`; `to_be_written` as in [`Node::new_leaf`].
    pub(crate) fn new_inner(pages: &Pages, inner: Inner, birth: CommitSeq, to_be_written: bool) -> Node {
        Node::new(pages, Body::Inner(inner), birth, None, to_be_written)
    }

    fn new(
        pages: &Pages,
        body: Body,
        birth: CommitSeq,
        pointer: Option<NodePointer>,
        to_be_written: bool,
    ) -> Node {
        let (count, bytes, page_bytes) = match &body {
            Body::Leaf(leaf) => (leaf.len() as u64, leaf.heap_bytes(), leaf.page_bytes_max()),
            Body::Inner(inner) => {
                (inner.slots().map(|s| s.count).sum(), inner.heap_bytes(), inner.page_bytes_about())
            }
        };
        let dirty = pointer.is_none();
        let block_bytes = pages.data().block_bytes();
        let dirty_bytes = if to_be_written { page_bytes.next_multiple_of(block_bytes) } else { 0 };
        Node {
            body,
            count,
            birth,
            reduction: OnceLock::new(),
            state: AtomicU8::new(if dirty { 0 } else { HAS_PAGE }),
            pointer: pointer.map_or_else(OnceLock::new, OnceLock::from),
            unused_since: AtomicU64::new(0),
            recent: AtomicBool::new(dirty),
            charge: Charge::new(pages.meter(), bytes + size_of::<Node>(), dirty_bytes),
        }
    }

    /// Reads a node and verifies its checksum and structure (D4).
    pub(crate) fn read(pages: &Pages, pointer: &NodePointer, cold: bool) -> Result<Node> {
        let at = &pointer.page;
        let corrupt =
            |what: &str| Error::corrupt_data(pages.data().path(), pages.data().offset(at.block), what);
        let (body, birth) = if at.is_inner() {
            let page = pages.read(at, PageKind::Inner)?;
            let inner = Inner::from_page(pages.meter(), &page).map_err(corrupt)?;
            (Body::Inner(inner), page.generation())
        } else {
            let page = pages.read(at, PageKind::Leaf)?;
            let birth = page.generation();
            (Body::Leaf(Leaf::from_page(pages.meter(), page).map_err(corrupt)?), birth)
        };
        let node = Node::new(pages, body, CommitSeq(birth), Some(pointer.clone()), false);
        if pointer.reduction.bytes().is_some() {
            drop(node.reduction.set(pointer.reduction.clone()));
        }
        node.recent.store(!cold, Ordering::Relaxed);
        Ok(node)
    }

    /// The entries or children.
    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Entries below it.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The commit that made the node.
    pub(crate) fn birth(&self) -> CommitSeq {
        self.birth
    }

    /// Height above the leaves; a leaf is 0.
    pub(crate) fn level(&self) -> u8 {
        match &self.body {
            Body::Leaf(_) => 0,
            Body::Inner(inner) => inner.level,
        }
    }

    /// The cell that keeps its reduction once it is computed.
    pub(crate) fn reduction(&self) -> &OnceLock<Reduction> {
        &self.reduction
    }

    /// Marks the node as used recently. Writes only when the mark is not set.
    pub(crate) fn touch(&self) {
        if !self.recent.load(Ordering::Relaxed) {
            self.recent.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the node was used recently.
    pub(crate) fn is_touched(&self) -> bool {
        self.recent.load(Ordering::Relaxed)
    }

    /// Clears the mark of recent use; returns whether it was set.
    pub(crate) fn take_touch(&self) -> bool {
        self.recent.load(Ordering::Relaxed) && self.recent.swap(false, Ordering::Relaxed)
    }

    /// The node was evicted: it is no longer charged as resident while the last readers use it.
    pub(crate) fn leave_memory(&self) {
        self.charge.leave();
        match &self.body {
            Body::Leaf(leaf) => leaf.leave_memory(),
            Body::Inner(inner) => inner.slots_of_its_own().for_each(Slot::leave_memory),
        }
    }

    /// Where the node lies on disk.
    pub(crate) fn pointer(&self) -> Option<&NodePointer> {
        self.pointer.get()
    }

    /// Sets the page pointer, once. If the node was replaced before, its page is freed later: it is returned
    /// for the pending-free list.
    pub(crate) fn set_pointer(&self, pointer: NodePointer) -> Option<DeferredPage> {
        let (page, level) = (pointer.page, self.level());
        let is_inner = page.is_inner();
        invariant!(is_inner == (level > 0), "the page of a node of height {level} is inner: {is_inner}");
        invariant!(self.charge.is_dirty(), "a node to be written is charged as dirty, and not yet written");
        invariant!(self.pointer.set(pointer).is_ok(), "a node is written once, now to block {}", page.block);
        self.charge.clean();
        let before = self.state.fetch_or(HAS_PAGE, Ordering::AcqRel);
        (before & UNUSED != 0).then(|| self.deferred_page(page))
    }

    /// Notes that commit `at` replaced the node. If it has a page, that is returned for the pending-free
    /// list. Otherwise [`Node::set_pointer`] returns it, if the node is ever written.
    pub(crate) fn defer_free(&self, at: CommitSeq) -> Option<DeferredPage> {
        self.unused_since.store(at.0, Ordering::Release);
        let before = self.state.fetch_or(UNUSED, Ordering::AcqRel);
        if before & HAS_PAGE == 0 {
            return None;
        }
        let pointer = self.pointer.get().expect("the flag follows the pointer");
        Some(self.deferred_page(pointer.page))
    }

    fn deferred_page(&self, pointer: PagePointer) -> DeferredPage {
        let unused_since = CommitSeq(self.unused_since.load(Ordering::Acquire));
        DeferredPage { pointer, birth: self.birth, unused_since }
    }
}
