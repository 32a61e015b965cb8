//! Slots: where a parent keeps a child, in memory, on disk, or both.
//!
//! A slot whose child has a place on disk may be emptied at any time (eviction); one whose child has none is
//! the only owner of it. Readers look at a child under a [`Pin`] and count no reference to it (decision 0009).

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use super::node::Node;
use super::place::{Place, Reduction};
use crate::data_file::Location;
use crate::error::{Error, Result};
use crate::page_cache::{Charge, Meter, Pages, Pin};

/// Of a root, and of a child that was built and not read.
const OF_ANY_HEIGHT: u8 = 0;

/// A parent's hold on one child. Clones share it: a child that is read or let go of through one is so through all.
#[derive(Clone)]
pub struct Slot {
    /// Entries below.
    pub count: u64,
    hold: Arc<Hold>,
}

/// In this order, so that a lookup finds what it asks for in one line of the cache.
#[repr(C)]
struct Hold {
    /// Null, or what `Arc::into_raw` made of a reference that this owns.
    child: AtomicPtr<Node>,
    charge: Charge,
    place: OnceLock<Place>,
    /// A child that is read is lower than this: the height of the node whose page names it.
    above: u8,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("count", &self.count)
            .field("resident", &self.is_resident())
            .finish_non_exhaustive()
    }
}

impl Slot {
    fn new(
        meter: &Arc<Meter>,
        count: u64,
        child: Option<Arc<Node>>,
        place: Option<Place>,
        above: u8,
    ) -> Slot {
        let bytes = size_of::<Hold>() + place.as_ref().map_or(0, |place| place.reduction.heap_bytes());
        let hold = Hold {
            child: AtomicPtr::new(child.map_or(ptr::null_mut(), |child| Arc::into_raw(child).cast_mut())),
            charge: Charge::new(meter, bytes, 0),
            place: place.map_or_else(OnceLock::new, OnceLock::from),
            above,
        };
        Slot { count, hold: Arc::new(hold) }
    }

    /// A child just built.
    pub fn resident(meter: &Arc<Meter>, node: Arc<Node>) -> Slot {
        Slot::new(meter, node.count(), Some(node), None, OF_ANY_HEIGHT)
    }

    /// A child known only by its place.
    pub fn on_disk(meter: &Arc<Meter>, count: u64, place: Place) -> Slot {
        Slot::new(meter, count, None, Some(place), OF_ANY_HEIGHT)
    }

    /// A child known only by its place, as the page of a node of height `above` tells it.
    pub fn below(meter: &Arc<Meter>, count: u64, place: Place, above: u8) -> Slot {
        Slot::new(meter, count, None, Some(place), above)
    }

    /// A root known only by its place: read now, to learn how many entries it has.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn of_unknown_count(pages: &Pages, location: Location) -> Result<Slot> {
        let place = Place { location, reduction: Reduction::UNKNOWN };
        let node = Arc::new(Node::read(pages, &place, false)?);
        Ok(Slot::new(pages.meter(), node.count(), Some(node), Some(place), OF_ANY_HEIGHT))
    }

    /// Whether the child is in memory. Who sees that it is not sees its place, too: an eviction notes that first.
    pub fn is_resident(&self) -> bool {
        !self.hold.child.load(Ordering::Acquire).is_null()
    }

    /// The child, if it is in memory, for as long as the pin and this slot stay.
    pub fn peek_in<'a>(&'a self, pin: &'a Pin<'_>) -> Option<&'a Node> {
        self.child(pin)?.lent()
    }

    /// The child, if it is in memory.
    pub fn peek(&self) -> Option<Arc<Node>> {
        if !self.is_resident() {
            return None;
        }
        let pin = self.hold.charge.meter().pin_under_locks();
        self.child(&pin).map(Found::shared)
    }

    /// The child for as long as the pin and this slot stay, read from disk if need be. A `cold` read leaves it first in line
    /// for eviction (scans).
    pub fn load_in<'a>(&'a self, pages: &Pages, cold: bool, pin: &'a Pin<'_>) -> Result<&'a Node> {
        if let Some(node) = self.peek_in(pin) {
            if !cold {
                node.touch();
            }
            return Ok(node);
        }
        Ok(self.install(self.read(pages, cold)?, pin).lent().expect("a child just read"))
    }

    /// A reference of one's own to the child, read from disk if it was evicted just now.
    pub fn share_in(&self, pages: &Pages, pin: &Pin<'_>) -> Result<Arc<Node>> {
        self.child(pin).map_or_else(|| self.load(pages, false), |found| Ok(found.shared()))
    }

    /// The child, read from disk if need be.
    pub fn load(&self, pages: &Pages, cold: bool) -> Result<Arc<Node>> {
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

    /// What the slot holds now.
    fn child<'a>(&'a self, pin: &'a Pin<'_>) -> Option<Found<'a>> {
        assert!(self.hold.charge.meter().keeps(pin), "a pin of another database");
        let child = self.hold.child.load(Ordering::SeqCst);
        (!child.is_null()).then_some(Found { child, kept: PhantomData })
    }

    /// Puts a child that was read where it belongs, unless somebody else did so meanwhile; returns the one that is there.
    fn install<'a>(&'a self, node: Arc<Node>, pin: &'a Pin<'_>) -> Found<'a> {
        assert!(self.hold.charge.meter().keeps(pin), "a pin of another database");
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

    /// The child for one look: read from disk if need be, and not kept.
    pub fn pass_through(&self, pages: &Pages) -> Result<Arc<Node>> {
        match self.peek() {
            Some(node) => Ok(node),
            None => self.read(pages, true),
        }
    }

    fn read(&self, pages: &Pages, cold: bool) -> Result<Arc<Node>> {
        let place = self.hold.place.get().expect("a child that is not in memory has a place");
        let node = Node::read(pages, place, cold)?;
        let what = if node.count() != self.count {
            format!("{} entries below this node, its parent says {}", node.count(), self.count)
        } else if !self.may_lead_to(&node) {
            "a node that is no lower than its parent".to_owned()
        } else {
            return Ok(Arc::new(node));
        };
        let data = pages.data();
        Err(Error::damaged_data(data.path(), data.offset(place.location.block), what))
    }

    /// Whether a node that was read is lower than the one above it: so no way down is longer than heights are many.
    pub fn may_lead_to(&self, node: &Node) -> bool {
        self.hold.above == OF_ANY_HEIGHT || node.level() < self.hold.above
    }

    /// The child's place, if it has one.
    pub fn place(&self) -> Option<Place> {
        let own = || self.hold.place.get().cloned();
        // Asked again at the end: whoever evicts the child in between has noted the place here first.
        own().or_else(|| self.peek().and_then(|node| node.place().cloned())).or_else(own)
    }

    /// Hands the child's reduction to `use_it`, if it is known without a look into the child.
    pub fn with_reduction<T>(&self, use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(known) = self.hold.place.get().and_then(|place| place.reduction.bytes()) {
            return Some(use_it(known));
        }
        let pin = self.hold.charge.meter().pin_under_locks();
        self.peek_in(&pin)?.reduction().get()?.bytes().map(use_it)
    }

    /// Lets go of the child if it can be read again.
    pub fn evict(&self) {
        let Some(node) = self.peek() else { return };
        if self.hold.place.get().is_none() {
            match node.place() {
                // Losing a race to set the same place is no harm.
                Some(place) => drop(self.hold.place.set(place.clone())),
                None => return,
            }
        }
        drop(node);
        if let Some(node) = owner_of(self.hold.child.swap(ptr::null_mut(), Ordering::SeqCst)) {
            node.leave_memory();
            self.hold.charge.meter().free_later(node);
        }
    }

    /// The node it belongs to was evicted: if no other version of that node shares it, it is charged to nobody any more.
    pub fn leave_memory(&self) {
        if Arc::strong_count(&self.hold) == 1 {
            self.hold.charge.leave();
        }
    }

    /// How long the child's reduction is, if that is known.
    pub fn reduction_bytes(&self) -> Option<usize> {
        self.with_reduction(<[u8]>::len)
    }

    /// Whether the two lead to the very same node.
    pub fn same_as(&self, other: &Slot) -> bool {
        if Arc::ptr_eq(&self.hold, &other.hold) {
            return true;
        }
        if let (Some(mine), Some(theirs)) = (self.peek(), other.peek())
            && Arc::ptr_eq(&mine, &theirs)
        {
            return true;
        }
        match (self.place(), other.place()) {
            (Some(mine), Some(theirs)) => mine.location == theirs.location,
            _ => false,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(owner_of(*self.child.get_mut()));
    }
}

/// A child that a slot held after a pin was made. Two things keep it for `'a`: the pin, should the child be evicted, for an eviction
/// leaves its reference to the epochs; and the slot, whose hold owns that reference otherwise.
struct Found<'a> {
    child: *const Node,
    kept: PhantomData<&'a Node>,
}

#[allow(unsafe_code, reason = "readers count no references: decision 0009")]
impl<'a> Found<'a> {
    /// The node itself.
    fn lent(self) -> Option<&'a Node> {
        // SAFETY: made by `Slot::child` and `Slot::install` only, of a pointer from `Arc::into_raw`; it lives for `'a`.
        unsafe { self.child.as_ref() }
    }

    /// A reference of one's own.
    fn shared(self) -> Arc<Node> {
        // SAFETY: as in `lent`; the reference that the hold or the epochs own is there while this counts another.
        unsafe {
            Arc::increment_strong_count(self.child);
            Arc::from_raw(self.child)
        }
    }
}

/// The reference that a hold owned: for whoever has just taken the pointer out of its hold, or has not put it there.
#[allow(unsafe_code, reason = "readers count no references: decision 0009")]
fn owner_of(child: *mut Node) -> Option<Arc<Node>> {
    // SAFETY: the pointer is null or from `Arc::into_raw`, and nobody else finds it any more to do the same.
    (!child.is_null()).then(|| unsafe { Arc::from_raw(child) })
}
