//! Slots: where a parent keeps a child, in memory, on disk, or both.
//!
//! A slot whose child has a place on disk may be emptied at any time (eviction); one whose child has none is
//! the only owner of it. Readers look at a child under a [`Pin`], without writing anything that other threads read.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use super::node::Node;
use super::place::{Place, Reduction};
use crate::data_file::Location;
use crate::error::{Error, Result};
use crate::page_cache::{Charge, Meter, Pages, Pin};

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
    fn new(meter: &Arc<Meter>, count: u64, child: Option<Arc<Node>>, place: Option<Place>) -> Slot {
        let bytes = size_of::<Hold>() + place.as_ref().map_or(0, |place| place.reduction.heap_bytes());
        let hold = Hold {
            child: AtomicPtr::new(child.map_or(ptr::null_mut(), owned)),
            charge: Charge::new(meter, bytes, 0),
            place: place.map_or_else(OnceLock::new, OnceLock::from),
        };
        Slot { count, hold: Arc::new(hold) }
    }

    /// A child just built.
    pub fn resident(meter: &Arc<Meter>, node: Arc<Node>) -> Slot {
        Slot::new(meter, node.count(), Some(node), None)
    }

    /// A child known only by its place.
    pub fn on_disk(meter: &Arc<Meter>, count: u64, place: Place) -> Slot {
        Slot::new(meter, count, None, Some(place))
    }

    /// A root known only by its place: read now, to learn how many entries it has.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn of_unknown_count(pages: &Pages, location: Location) -> Result<Slot> {
        let place = Place { location, reduction: Reduction::UNKNOWN };
        let node = Arc::new(Node::read(pages, &place, false)?);
        Ok(Slot::new(pages.meter(), node.count(), Some(node), Some(place)))
    }

    /// Whether the child is in memory.
    pub fn is_resident(&self) -> bool {
        !self.hold.child.load(Ordering::Relaxed).is_null()
    }

    /// The child, if it is in memory, for as long as the pin and this slot stay.
    pub fn peek_in<'a>(&'a self, pin: &'a Pin<'_>) -> Option<&'a Node> {
        self.lent(pin, self.child())
    }

    /// The child, if it is in memory.
    pub fn peek(&self) -> Option<Arc<Node>> {
        let pin = self.hold.charge.meter().pin();
        self.shared(&pin, self.child())
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
        let child = self.install(self.read(pages, cold)?);
        Ok(self.lent(pin, child).expect("a child just read"))
    }

    /// The child, read from disk if need be.
    pub fn load(&self, pages: &Pages, cold: bool) -> Result<Arc<Node>> {
        let pin = self.hold.charge.meter().pin();
        if let Some(node) = self.shared(&pin, self.child()) {
            if !cold {
                node.touch();
            }
            return Ok(node);
        }
        let child = self.install(self.read(pages, cold)?);
        Ok(self.shared(&pin, child).expect("a child just read"))
    }

    fn child(&self) -> *mut Node {
        self.hold.child.load(Ordering::SeqCst)
    }

    /// Puts a child that was read where it belongs, unless somebody else did so meanwhile; returns the one that is there. The
    /// caller is pinned.
    fn install(&self, node: Arc<Node>) -> *mut Node {
        let child = owned(node);
        let nobody = ptr::null_mut();
        match self.hold.child.compare_exchange(nobody, child, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => child,
            Err(there) => {
                disowned(child);
                there
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

    /// A child that this slot owned after the pin was made.
    #[allow(unsafe_code, reason = "readers count no references: decision 0009")]
    fn lent<'a>(&'a self, pin: &'a Pin<'_>, child: *const Node) -> Option<&'a Node> {
        self.check(pin);
        // SAFETY: a pointer that is not null came from `Arc::into_raw`, and the hold owned that reference when it was
        // loaded. It is given up in two ways: by an eviction, which leaves it to the epochs, and those keep it while
        // `pin` is there; or by the drop of the hold, which this slot keeps for `'a`.
        unsafe { child.as_ref() }
    }

    /// A reference of one's own to a child that this slot owned after the pin was made.
    #[allow(unsafe_code, reason = "readers count no references: decision 0009")]
    fn shared(&self, pin: &Pin<'_>, child: *const Node) -> Option<Arc<Node>> {
        self.check(pin);
        // SAFETY: as in `lent`, the reference that the hold or the epochs own is there while this counts another.
        (!child.is_null()).then(|| unsafe {
            Arc::increment_strong_count(child);
            Arc::from_raw(child)
        })
    }

    fn check(&self, pin: &Pin<'_>) {
        assert!(self.hold.charge.meter().keeps(pin), "a pin of another database");
    }

    fn read(&self, pages: &Pages, cold: bool) -> Result<Arc<Node>> {
        let place = self.hold.place.get().expect("a child that is not in memory has a place");
        let node = Node::read(pages, place, cold)?;
        if node.count() != self.count {
            let data = pages.data();
            let offset = data.offset(place.location.block);
            let what = format!("{} entries below this node, its parent says {}", node.count(), self.count);
            return Err(Error::damaged_data(data.path(), offset, what));
        }
        Ok(Arc::new(node))
    }

    /// The child's place, if it has one.
    pub fn place(&self) -> Option<Place> {
        let own = || self.hold.place.get().cloned();
        let pin = self.hold.charge.meter().pin();
        // Asked again at the end: whoever evicts the child in between has noted the place here first.
        own().or_else(|| self.peek_in(&pin).and_then(|node| node.place().cloned())).or_else(own)
    }

    /// Hands the child's reduction to `use_it`, if it is known without a look into the child.
    pub fn with_reduction<T>(&self, use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(known) = self.hold.place.get().and_then(|place| place.reduction.bytes()) {
            return Some(use_it(known));
        }
        let pin = self.hold.charge.meter().pin();
        self.peek_in(&pin)?.reduction().get()?.bytes().map(use_it)
    }

    /// Lets go of the child if it can be read again.
    pub fn evict(&self) {
        let pin = self.hold.charge.meter().pin();
        let Some(node) = self.peek_in(&pin) else { return };
        if self.hold.place.get().is_none() {
            match node.place() {
                // Losing a race to set the same place is no harm.
                Some(place) => drop(self.hold.place.set(place.clone())),
                None => return,
            }
        }
        if let Some(node) = disowned(self.hold.child.swap(ptr::null_mut(), Ordering::SeqCst)) {
            node.leave_memory();
            self.hold.charge.meter().free_later(node);
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
        drop(disowned(*self.child.get_mut()));
    }
}

/// A reference as a hold owns it.
fn owned(node: Arc<Node>) -> *mut Node {
    Arc::into_raw(node).cast_mut()
}

/// What a hold owned and gives up: nobody finds it there any more.
#[allow(unsafe_code, reason = "readers count no references: decision 0009")]
fn disowned(child: *mut Node) -> Option<Arc<Node>> {
    // SAFETY: it came from `owned`, and the caller is the one who took it out of its hold, or never put it there.
    (!child.is_null()).then(|| unsafe { Arc::from_raw(child) })
}
