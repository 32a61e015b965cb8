//! Slots: where a parent keeps a child, in memory, on disk, or both.
//!
//! A slot whose child has a place on disk may be emptied at any time (eviction); one whose child has none is
//! the only owner of it. Readers load a slot without writing anything that other threads read.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};

use super::node::Node;
use super::place::{Place, Reduction};
use crate::data_file::Location;
use crate::error::{Error, Result};
use crate::page_cache::{Charge, Meter, Pages};

/// A parent's hold on one child. Clones share it: a child that is read or let go of through one is so through all.
#[derive(Clone)]
pub struct Slot {
    /// Entries below.
    pub count: u64,
    hold: Arc<Hold>,
}

struct Hold {
    child: ArcSwapOption<Node>,
    place: OnceLock<Place>,
    _charge: Charge,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resident = self.hold.child.load().is_some();
        f.debug_struct("Slot")
            .field("count", &self.count)
            .field("resident", &resident)
            .finish_non_exhaustive()
    }
}

/// A child held while it is looked at.
pub struct NodeGuard(Guard<Option<Arc<Node>>>);

impl Deref for NodeGuard {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        self.0.as_ref().expect("a guard is only made of a resident child")
    }
}

impl Slot {
    fn new(meter: &Arc<Meter>, count: u64, child: Option<Arc<Node>>, place: Option<Place>) -> Slot {
        let bytes = size_of::<Hold>() + place.as_ref().map_or(0, |place| place.reduction.heap_bytes());
        let hold = Hold {
            child: ArcSwapOption::new(child),
            place: place.map_or_else(OnceLock::new, OnceLock::from),
            _charge: Charge::new(meter, bytes, 0),
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

    /// The child, if it is in memory.
    pub fn peek(&self) -> Option<NodeGuard> {
        let guard = self.hold.child.load();
        guard.is_some().then_some(NodeGuard(guard))
    }

    /// The child, read from disk if need be. A `cold` read leaves it first in line for eviction (scans).
    pub fn load(&self, pages: &Pages, cold: bool) -> Result<NodeGuard> {
        if let Some(node) = self.peek() {
            if !cold {
                node.touch();
            }
            return Ok(node);
        }
        let node = self.read(pages, cold)?;
        let nobody: Option<Arc<Node>> = None;
        let before = self.hold.child.compare_and_swap(&nobody, Some(Arc::clone(&node)));
        match &*before {
            Some(_) => Ok(NodeGuard(before)),
            None => Ok(NodeGuard(Guard::from_inner(Some(node)))),
        }
    }

    /// The child for one look: read from disk if need be, and not kept.
    pub fn pass_through(&self, pages: &Pages) -> Result<NodeGuard> {
        match self.peek() {
            Some(node) => Ok(node),
            None => Ok(NodeGuard(Guard::from_inner(Some(self.read(pages, true)?)))),
        }
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
        // Asked again at the end: whoever evicts the child in between has noted the place here first.
        own().or_else(|| self.peek().and_then(|node| node.place().cloned())).or_else(own)
    }

    /// Hands the child's reduction to `use_it`, if it is known without a look into the child.
    pub fn with_reduction<T>(&self, use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(known) = self.hold.place.get().and_then(|place| place.reduction.bytes()) {
            return Some(use_it(known));
        }
        let node = self.peek()?;
        node.reduction().get()?.bytes().map(use_it)
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
        self.hold.child.store(None);
    }

    /// How long the child's reduction is, if that is known.
    pub fn reduction_bytes(&self) -> Option<usize> {
        let placed = self.hold.place.get().and_then(|place| place.reduction.bytes());
        let length = placed.map(<[u8]>::len);
        length.or_else(|| self.peek()?.reduction().get()?.bytes().map(<[u8]>::len))
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
