//! A node: a leaf or an inner node, immutable once built.
//!
//! What is learnt later is kept in cells: its page pointer, its reduction, and that it was replaced.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::inner::Inner;
use super::leaf::{Entry, Leaf};
use super::pointer::{NodePointer, Reduction};
use super::slot::Slot;
use super::stored_patch::StoredPatch;
use crate::alarm::invariant;
use crate::data_file::{PageKind, PagePointer};
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::page_cache::{Charge, Dirty, Pages};

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
    /// The page of a leaf that is a patch to it; its pointer is set once its reduction is known.
    base: Option<PagePointer>,
    unused_since: AtomicU64,
    charge: Charge,
}

/// Where a node lies when it is made.
enum Home {
    /// In memory alone. If it is to be written, it is charged as dirty.
    Nowhere { to_be_written: bool },
    /// It is a patch to a page.
    Base(PagePointer),
    /// It was read from there.
    Page(NodePointer),
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
        Node::new(pages, Body::Leaf(leaf), birth, Home::Nowhere { to_be_written })
    }

    /// A leaf that is a patch to the page of another one, which stays in use.
    pub(crate) fn of_patch(pages: &Pages, leaf: Leaf, (page, birth): (PagePointer, CommitSeq)) -> Node {
        invariant!(leaf.stored_patch().is_some(), "a leaf over the page at block {} has a patch", page.block);
        Node::new(pages, Body::Leaf(leaf), birth, Home::Base(page))
    }

    /// An inner node made by commit `birth`; `to_be_written` as in [`Node::new_leaf`].
    pub(crate) fn new_inner(pages: &Pages, inner: Inner, birth: CommitSeq, to_be_written: bool) -> Node {
        Node::new(pages, Body::Inner(inner), birth, Home::Nowhere { to_be_written })
    }

    fn new(pages: &Pages, body: Body, birth: CommitSeq, home: Home) -> Node {
        let to_be_written = matches!(home, Home::Nowhere { to_be_written: true });
        let whole_blocks = |bytes: usize| bytes.next_multiple_of(pages.data().block_bytes());
        let (count, bytes, dirty) = match &body {
            Body::Leaf(leaf) => {
                (leaf.len() as u64, leaf.heap_bytes(), Dirty::Leaf(whole_blocks(leaf.page_bytes_max())))
            }
            Body::Inner(inner) => {
                let (count, patch_bytes) = (inner.slots().map(|s| s.count).sum(), inner.patch_bytes());
                let bytes = whole_blocks(inner.page_bytes_about() + patch_bytes);
                (count, inner.heap_bytes(), Dirty::Inner { bytes, patch_bytes })
            }
        };
        let dirty = if to_be_written { dirty } else { Dirty::No };
        if matches!(home, Home::Base(_)) {
            pages.meter().evictable(bytes);
        }
        let (state, is_read) = match home {
            Home::Nowhere { .. } => (0, false),
            Home::Base(_) => (HAS_PAGE, false),
            Home::Page(_) => (HAS_PAGE, true),
        };
        let (base, pointer) = match home {
            Home::Nowhere { .. } => (None, OnceLock::new()),
            Home::Base(page) => (Some(page), OnceLock::new()),
            Home::Page(pointer) => (None, OnceLock::from(pointer)),
        };
        Node {
            body,
            count,
            birth,
            reduction: OnceLock::new(),
            state: AtomicU8::new(state),
            pointer,
            base,
            unused_since: AtomicU64::new(0),
            recent: AtomicBool::new(!is_read),
            charge: Charge::new(pages.meter(), bytes + size_of::<Node>(), dirty),
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
            let leaf = Leaf::from_page(pages.meter(), page).map_err(corrupt)?;
            let leaf = match &pointer.patch {
                Some(patch) => leaf.with_stored(patch).map_err(corrupt)?,
                None => leaf,
            };
            (Body::Leaf(leaf), birth)
        };
        let node = Node::new(pages, body, CommitSeq(birth), Home::Page(pointer.clone()));
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

    /// The commit that made the node; of a patch, the one that made its page.
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

    /// Whether the node was evicted. What is read below it is charged as resident all the same.
    pub(crate) fn has_left(&self) -> bool {
        self.charge.has_left()
    }

    /// Notes that the node was read, and is kept in memory.
    pub(crate) fn note_kept(&self) {
        let besides = match &self.body {
            Body::Leaf(leaf) => leaf.page_bytes_max(),
            // Its slots are charged by themselves.
            Body::Inner(inner) => inner.patch_bytes() + inner.len() * Slot::BYTES,
        };
        self.charge.meter().evictable(besides + self.charge.bytes());
    }

    /// Where the node lies on disk.
    pub(crate) fn pointer(&self) -> Option<&NodePointer> {
        self.pointer.get()
    }

    /// The page that it needs on disk, if it has one.
    pub(crate) fn page(&self) -> Option<PagePointer> {
        self.base.or_else(|| self.pointer.get().map(|pointer| pointer.page))
    }

    /// The page on disk that a leaf in memory has its page from. A leaf that was written anew has none.
    pub(crate) fn base_page(&self) -> Option<PagePointer> {
        let Body::Leaf(leaf) = &self.body else { return None };
        let is_base = |pointer: &&NodePointer| pointer.patch.is_some() || leaf.stored_patch().is_none();
        self.base.or_else(|| self.pointer.get().filter(is_base).map(|pointer| pointer.page))
    }

    /// Bytes of the patch that the node above this leaf keeps.
    pub(crate) fn patch_bytes(&self) -> usize {
        match self.base {
            Some(_) => self.own_patch().map_or(0, |patch| patch.bytes().len()),
            None => self.pointer.get().map_or(0, NodePointer::patch_bytes),
        }
    }

    /// The patch that was made with the node, unless what it changed was changed back.
    fn own_patch(&self) -> Option<&Arc<StoredPatch>> {
        let Body::Leaf(leaf) = &self.body else { return None };
        leaf.stored_patch().filter(|patch| self.base.is_some() && !patch.is_empty())
    }

    /// The node may have been evicted while a newer version of it was made: what both share stays in memory.
    pub(crate) fn keep_shared<'s>(&self, newer: impl Iterator<Item = &'s Slot>) {
        if !self.has_left() {
            return;
        }
        for node in newer.filter_map(Slot::peek) {
            if let Body::Inner(inner) = &node.body {
                inner.slots().for_each(Slot::stay);
            }
        }
    }

    /// The latest root does not use the node, or uses it again.
    pub(crate) fn supersede(&self, is_superseded: bool) {
        self.charge.supersede(is_superseded);
        self.kept_patch().iter().for_each(|patch| patch.supersede(is_superseded));
    }

    /// The patch that the node above this leaf keeps.
    pub(crate) fn kept_patch(&self) -> Option<Arc<StoredPatch>> {
        match &self.body {
            Body::Leaf(leaf) if self.base.is_some() => leaf.stored_patch().cloned(),
            _ => self.pointer.get()?.patch.clone(),
        }
    }

    /// Keeps the filter of a leaf's page with the patch that the node above keeps.
    pub(crate) fn make_filter(&self) {
        if let Body::Leaf(leaf) = &self.body
            && self.patch_bytes() > 0
        {
            leaf.make_filter();
        }
    }

    /// Whether the node was made as a patch to a page.
    pub(crate) fn is_patch(&self) -> bool {
        self.base.is_some()
    }

    /// The pointer that a patch will have but for its reduction; `None` for any other node.
    pub(crate) fn unsettled_pointer(&self) -> Option<NodePointer> {
        self.base.map(|page| self.pointer_to_base(page, Reduction::UNKNOWN))
    }

    fn pointer_to_base(&self, page: PagePointer, reduction: Reduction) -> NodePointer {
        NodePointer { page, reduction, patch: self.own_patch().cloned() }
    }

    /// Sets the pointer of a patch, once its reduction is known.
    pub(crate) fn settle(&self, reduction: Reduction) -> &NodePointer {
        let page = self.base.expect("a patch has a page");
        self.pointer.get_or_init(|| self.pointer_to_base(page, reduction))
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
        Some(self.deferred_page(self.page().expect("the flag follows the pointer")))
    }

    fn deferred_page(&self, pointer: PagePointer) -> DeferredPage {
        let unused_since = CommitSeq(self.unused_since.load(Ordering::Acquire));
        DeferredPage { pointer, birth: self.birth, unused_since }
    }
}
