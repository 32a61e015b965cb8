//! Slots: a parent's pointer to one child (a swizzled page pointer), in memory, on disk, or both.
//!
//! Readers use a child without counting a reference to it (decision 0009). This is why that is safe, for this
//! file and `page_cache/epochs.rs`. In a slot, `child` is null or owns one reference to a node; `pointer` is
//! set at most once.
//!
//! - *dirty*: child set, no page pointer. The slot cannot be emptied. If the child is a patch to a page on
//!   disk, an eviction gives it its page pointer first: it is clean then.
//! - *clean*: child set, page pointer in the slot or in the node. The slot may be emptied at any time
//!   (eviction).
//! - *on disk*: child null, page pointer in the slot. A null child without a page pointer never exists.
//!
//! A reader counts itself under the current epoch, and starts over if the epoch moved before it was counted.
//! Then it loads `child`, uses the node, and subtracts itself. An eviction copies the page pointer into the
//! slot and swaps `child` with null. Only then it reads the epoch, and hands the reference over under that
//! epoch. `Epochs::free` moves epoch e to e + 1 only when the readers of e - 1 have left. It frees what was
//! handed over under e once the epoch is e + 2. A reader that loaded the pointer before the swap had pinned
//! epoch e or an older one, and has left by then. A reader that pins e + 1 or a newer one loads `child` after
//! the swap.
//!
//! A reader writes a counter and then loads `child`; eviction and freeing write `child` and then load that
//! counter. With acquire and release both could read the old value, and a node in use would be freed: these
//! accesses are `SeqCst`. `is_resident` needs `Acquire` only: it must see the page pointer stored before the
//! swap.
//!
//! What breaks without a step:
//! - No second look at the epoch: a reader suspended between looking and counting counts where `free` no
//!   longer checks.
//! - One epoch instead of two: nothing waits for the readers of the epoch in which the node was evicted.
//! - Swap before the page pointer is stored: a reader finds neither child nor page pointer, and `read`
//!   panics.
//! - A child borrowed from the pin alone: dropping a slot frees its child at once, so the borrow includes the
//!   slot.
//!
//! Of two evictions one gets the pointer and the other null. `install` only replaces null; the loser uses the
//! node already there. A node read again after eviction exists twice until the old readers leave: `same_as`
//! compares page pointers, too. `readers_look_at_nodes_that_others_evict` runs all of this under Miri.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use super::node::{Body, Node};
use super::pointer::{NodePointer, Reduction};
use super::reducer::Reducer;
use super::stored_patch::StoredPatch;
use super::write::settled;
use crate::alarm::invariant;
use crate::data_file::PagePointer;
use crate::error::{Error, Result};
use crate::page_cache::{Charge, Dirty, Meter, Pages, Pin};

/// For a root, and for a child that was built and not read.
const OF_ANY_HEIGHT: u8 = 0;

/// A parent's pointer to one child. Clones share it: reading or evicting the child through one affects all.
#[derive(Clone)]
pub(crate) struct Slot {
    /// Entries below.
    pub count: u64,
    hold: Arc<Hold>,
}

/// In this order, so that a lookup finds both child and charge in one cache line.
#[repr(C)]
struct Hold {
    /// Null, or the pointer that `Arc::into_raw` returned for a reference owned here.
    child: AtomicPtr<Node>,
    charge: Charge,
    pointer: OnceLock<NodePointer>,
    /// Exclusive bound for the height of a child that is read: the height of the node whose page names it.
    above: u8,
}

const _: () = assert!(
    2 * size_of::<usize>() + std::mem::offset_of!(Hold, pointer) <= 64,
    "after the counts of references, child and charge take one cache line"
);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("count", &self.count)
            .field("resident", &self.is_resident())
            .finish_non_exhaustive()
    }
}

impl Slot {
    /// About what a slot takes in memory.
    pub(crate) const BYTES: usize = size_of::<Hold>();

    fn new(
        meter: &Arc<Meter>,
        count: u64,
        child: Option<Arc<Node>>,
        pointer: Option<NodePointer>,
        above: u8,
    ) -> Slot {
        let bytes = size_of::<Hold>() + pointer.as_ref().map_or(0, |pointer| pointer.reduction.heap_bytes());
        let hold = Hold {
            child: AtomicPtr::new(child.map_or(ptr::null_mut(), |child| Arc::into_raw(child).cast_mut())),
            charge: Charge::new(meter, bytes, Dirty::No),
            pointer: pointer.map_or_else(OnceLock::new, OnceLock::from),
            above,
        };
        Slot { count, hold: Arc::new(hold) }
    }

    /// A child just built.
    pub(crate) fn resident(meter: &Arc<Meter>, node: Arc<Node>) -> Slot {
        Slot::new(meter, node.count(), Some(node), None, OF_ANY_HEIGHT)
    }

    /// A child known only by its page pointer.
    pub(crate) fn on_disk(meter: &Arc<Meter>, count: u64, pointer: NodePointer) -> Slot {
        Slot::new(meter, count, None, Some(pointer), OF_ANY_HEIGHT)
    }

    /// A child known only by its page pointer, found in the page of a node of height `above`.
    pub(crate) fn below(meter: &Arc<Meter>, count: u64, pointer: NodePointer, above: u8) -> Slot {
        Slot::new(meter, count, None, Some(pointer), above)
    }

    /// The same child that is not in memory, in memory of its own.
    pub(super) fn copied(&self, meter: &Arc<Meter>) -> Slot {
        let pointer = self.hold.pointer.get().expect("a child that is not in memory has a pointer");
        let patch = pointer.patch.as_ref().map(|patch| Arc::new(patch.copied(meter)));
        let pointer = NodePointer { page: pointer.page, reduction: pointer.reduction.clone(), patch };
        Slot::new(meter, self.count, None, Some(pointer), self.hold.above)
    }

    /// The same leaf with another patch, and not in memory.
    pub(super) fn repatched(&self, count: u64, reduction: Reduction, patch: StoredPatch) -> Slot {
        let page = self.hold.pointer.get().expect("a child that is not in memory has a pointer").page;
        let pointer = NodePointer { page, reduction, patch: Some(Arc::new(patch)) };
        Slot::new(self.hold.charge.meter(), count, None, Some(pointer), self.hold.above)
    }

    /// The pointer of a child that is not in memory.
    pub(super) fn unread(&self) -> Option<&NodePointer> {
        if self.is_resident() { None } else { self.hold.pointer.get() }
    }

    /// A root known only by its page pointer: read now, to learn how many entries it has.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub(crate) fn of_unknown_count(pages: &Pages, pointer: PagePointer) -> Result<Slot> {
        let pointer = NodePointer::whole(pointer, Reduction::UNKNOWN);
        let node = Arc::new(Node::read(pages, &pointer, false)?);
        Ok(Slot::new(pages.meter(), node.count(), Some(node), Some(pointer), OF_ANY_HEIGHT))
    }

    /// Whether the child is in memory. If it is not, its page pointer is visible: eviction stores that first.
    pub(crate) fn is_resident(&self) -> bool {
        !self.hold.child.load(Ordering::Acquire).is_null()
    }

    /// The child, if it is in memory, for as long as pin and slot are borrowed.
    pub(crate) fn peek_in<'a>(&'a self, pin: &'a Pin<'_>) -> Option<&'a Node> {
        self.child(pin)?.lent()
    }

    /// The child, if it is in memory.
    pub(crate) fn peek(&self) -> Option<Arc<Node>> {
        if !self.is_resident() {
            return None;
        }
        let pin = self.hold.charge.meter().pin_under_locks();
        self.child(&pin).map(Found::shared)
    }

    /// The child for as long as pin and slot are borrowed, read from disk if need be.
    ///
    /// After a `cold` read (a scan) it is first in line for eviction.
    pub(crate) fn load_in<'a>(&'a self, pages: &Pages, cold: bool, pin: &'a Pin<'_>) -> Result<&'a Node> {
        if let Some(node) = self.peek_in(pin) {
            if !cold {
                node.touch();
            }
            return Ok(node);
        }
        Ok(self.install(self.read(pages, cold)?, pin).lent().expect("a child just read"))
    }

    /// A counted reference to the child, read from disk again if it was evicted just now.
    pub(crate) fn share_in(&self, pages: &Pages, pin: &Pin<'_>) -> Result<Arc<Node>> {
        self.child(pin).map_or_else(|| self.load(pages, false), |found| Ok(found.shared()))
    }

    /// The child, read from disk if need be.
    pub(crate) fn load(&self, pages: &Pages, cold: bool) -> Result<Arc<Node>> {
        if let Some(node) = self.peek() {
            if !cold {
                node.touch();
            }
            return Ok(node);
        }
        let node = self.read(pages, cold)?;
        let pin = self.hold.charge.meter().pin_under_locks();
        Ok(self.install(node, &pin).shared())
    }

    /// The child in the slot now.
    fn child<'a>(&'a self, pin: &'a Pin<'_>) -> Option<Found<'a>> {
        assert!(self.hold.charge.meter().keeps(pin), "a pin of another database");
        let child = self.hold.child.load(Ordering::SeqCst);
        (!child.is_null()).then_some(Found { child, kept: PhantomData })
    }

    /// Puts a child that was read into the slot, unless another thread was first; returns the one in the
    /// slot.
    fn install<'a>(&'a self, node: Arc<Node>, pin: &'a Pin<'_>) -> Found<'a> {
        assert!(self.hold.charge.meter().keeps(pin), "a pin of another database");
        node.note_kept();
        let child = Arc::into_raw(node).cast_mut();
        let nobody = ptr::null_mut();
        let kept = PhantomData;
        match self.hold.child.compare_exchange(nobody, child, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Found { child, kept },
            Err(there) => {
                drop(owner_of(child));
                Found { child: there, kept }
            }
        }
    }

    /// The child for one use: read from disk if need be, and not kept.
    pub(crate) fn pass_through(&self, pages: &Pages) -> Result<Arc<Node>> {
        match self.peek() {
            Some(node) => Ok(node),
            None => self.read(pages, true),
        }
    }

    fn read(&self, pages: &Pages, cold: bool) -> Result<Arc<Node>> {
        let pointer = self.hold.pointer.get().expect("a child that is not in memory has a pointer");
        let node = Node::read(pages, pointer, cold)?;
        let what = if node.count() != self.count {
            format!("{} entries below this node, its parent records {}", node.count(), self.count)
        } else if !self.may_lead_to(&node) {
            "a node that is no lower than its parent".to_owned()
        } else {
            return Ok(Arc::new(node));
        };
        let data = pages.data();
        Err(Error::corrupt_data(data.path(), data.offset(pointer.page.block), what))
    }

    /// Whether a node that was read is lower than its parent: no path is then longer than there are heights.
    pub(crate) fn may_lead_to(&self, node: &Node) -> bool {
        self.hold.above == OF_ANY_HEIGHT || node.level() < self.hold.above
    }

    /// The child's page pointer, if it has one.
    pub(crate) fn pointer(&self) -> Option<NodePointer> {
        self.known(Clone::clone, |node| node.pointer().cloned())
    }

    /// What the page pointer here says, or else the child in memory.
    fn known<T>(
        &self,
        by_pointer: impl Fn(&NodePointer) -> T,
        by_node: impl FnOnce(&Node) -> Option<T>,
    ) -> Option<T> {
        let own = || self.hold.pointer.get().map(&by_pointer);
        // Read again at the end: an eviction in between has stored the page pointer here first.
        own().or_else(|| self.peek().and_then(|node| by_node(&node))).or_else(own)
    }

    /// The page that the child needs on disk, if it has one. A leaf that is a patch has one before its
    /// pointer is set.
    pub(crate) fn page(&self) -> Option<PagePointer> {
        self.known(|pointer| pointer.page, Node::page)
    }

    /// About the bytes of a leaf's page, with its patch merged into it. `None` if it has no page on disk.
    pub(crate) fn merged_page_bytes(&self) -> Option<usize> {
        let merged = |pointer: &NodePointer| {
            let bytes = pointer.page.raw_bytes as usize;
            pointer.patch.as_ref().map_or(bytes, |patch| patch.merged_bytes(bytes, self.count))
        };
        self.known(merged, |node| match node.body() {
            Body::Leaf(leaf) if node.is_patch() => Some(leaf.page_bytes_max()),
            _ => node.pointer().map(merged),
        })
    }

    /// Bytes of the child's patch; 0 if it has none.
    pub(crate) fn patch_bytes(&self) -> usize {
        self.known(NodePointer::patch_bytes, |node| Some(node.patch_bytes())).unwrap_or_default()
    }

    /// Hands the child's reduction to `use_it`, if it is known without reading the child.
    #[inline]
    pub(crate) fn with_reduction<T>(&self, use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(known) = self.hold.pointer.get().and_then(|pointer| pointer.reduction.bytes()) {
            return Some(use_it(known));
        }
        let pin = self.hold.charge.meter().pin_under_locks();
        self.peek_in(&pin)?.reduction().get()?.bytes().map(use_it)
    }

    /// Evicts the child if it can be read again.
    pub(crate) fn evict(&self, pages: &Pages, reducer: Option<&dyn Reducer>) {
        let Some(node) = self.peek() else { return };
        if self.hold.pointer.get().is_none() {
            let settled = || settled(pages, &node, reducer).ok().flatten();
            match node.pointer().or_else(settled) {
                // Losing a race to set the same page pointer is harmless.
                Some(pointer) => drop(self.hold.pointer.set(pointer.clone())),
                None => return,
            }
        }
        let block = |pointer: &NodePointer| (pointer.page.block, pointer.page.tag);
        let (own, of_node) = (self.hold.pointer.get().map(block), node.pointer().map(block));
        invariant!(
            own.is_some() && own == of_node,
            "a slot leads to the page of its node: {own:?}, {of_node:?}"
        );
        node.make_filter();
        drop(node);
        if let Some(node) = owner_of(self.hold.child.swap(ptr::null_mut(), Ordering::SeqCst)) {
            node.leave_memory();
            self.hold.charge.meter().free_later(node);
        }
    }

    /// The parent was evicted: unless another version of the parent shares this slot, it is no longer charged
    /// as resident.
    pub(crate) fn leave_memory(&self) {
        if Arc::strong_count(&self.hold) == 1 {
            self.hold.charge.leave();
            let patch = self.hold.pointer.get().and_then(|pointer| pointer.patch.as_ref());
            patch.iter().for_each(|patch| patch.leave_memory());
        }
    }

    /// The parent was evicted, but another version of it is in use.
    pub(crate) fn stay(&self) {
        self.hold.charge.stay();
        let patch = self.hold.pointer.get().and_then(|pointer| pointer.patch.as_ref());
        patch.iter().for_each(|patch| patch.stay());
    }

    /// The length of the child's reduction, if that is known.
    pub(crate) fn reduction_bytes(&self) -> Option<usize> {
        self.with_reduction(<[u8]>::len)
    }

    /// Whether one is a clone of the other: a child that is read or evicted through one is so through both.
    pub(crate) fn shares(&self, other: &Slot) -> bool {
        Arc::ptr_eq(&self.hold, &other.hold)
    }

    /// Whether the two lead to the very same node.
    pub(crate) fn same_as(&self, other: &Slot) -> bool {
        if self.shares(other) {
            return true;
        }
        if let (Some(mine), Some(theirs)) = (self.peek(), other.peek())
            && Arc::ptr_eq(&mine, &theirs)
        {
            return true;
        }
        match (self.pointer(), other.pointer()) {
            (Some(mine), Some(theirs)) => mine.page == theirs.page && mine.patch == theirs.patch,
            _ => false,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let child = *self.child.get_mut();
        debug_assert!(
            !child.is_null() || self.pointer.get().is_some(),
            "a slot without a child has a page pointer"
        );
        drop(owner_of(child));
    }
}

/// A child found in a slot under a pin.
///
/// Two things keep it for `'a`. The slot owns the reference until an eviction; afterwards the epochs own it
/// while the pin lasts. The pointer is the one from `Arc::into_raw`: one made from a `&Node` could not reach
/// the reference count.
struct Found<'a> {
    child: *const Node,
    kept: PhantomData<&'a Node>,
}

#[allow(unsafe_code, reason = "readers count no references: decision 0009")]
impl<'a> Found<'a> {
    /// The node itself.
    fn lent(self) -> Option<&'a Node> {
        // SAFETY: only `Slot::child` and `Slot::install` make it, from a pointer of `Arc::into_raw`; it lives
        // for `'a`.
        unsafe { self.child.as_ref() }
    }

    /// A counted reference.
    fn shared(self) -> Arc<Node> {
        // SAFETY: as in `lent`; the reference owned by the hold or the epochs exists while this one is
        // counted.
        unsafe {
            Arc::increment_strong_count(self.child);
            Arc::from_raw(self.child)
        }
    }
}

/// The reference that a hold owned. Only for a pointer just taken out of its hold, or never put there.
#[allow(unsafe_code, reason = "readers count no references: decision 0009")]
fn owner_of(child: *mut Node) -> Option<Arc<Node>> {
    // SAFETY: the pointer is null or from `Arc::into_raw`, and no other thread can find it any more to do the
    // same.
    (!child.is_null()).then(|| unsafe { Arc::from_raw(child) })
}
