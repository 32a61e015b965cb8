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

/// Some neighbouring slots of an inner node, shared by every version of the node in which none of them changed.
#[derive(Debug)]
pub struct Chunk {
    slots: Box<[Slot]>,
    _charge: Charge,
}

impl Chunk {
    /// Of at most [`super::inner::CHUNK_SLOTS`] slots. Charged once, however many nodes share it.
    pub fn new(meter: &Arc<Meter>, slots: Box<[Slot]>) -> Arc<Chunk> {
        let bytes: usize = slots.iter().map(|slot| size_of::<Slot>() + slot.heap_bytes()).sum();
        let charge = Charge::new(meter, bytes + size_of::<Chunk>(), 0);
        Arc::new(Chunk { slots, _charge: charge })
    }

    /// The slots in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Lets go of every child that can be read again: another chunk took this one's place, and holds them too.
    pub fn let_go(&self) {
        self.slots.iter().for_each(Slot::evict);
    }
}

/// A parent's hold on one child.
pub struct Slot {
    /// Entries below.
    pub count: u64,
    child: ArcSwapOption<Node>,
    place: OnceLock<Place>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resident = self.child.load().is_some();
        f.debug_struct("Slot")
            .field("count", &self.count)
            .field("resident", &resident)
            .finish_non_exhaustive()
    }
}

impl Clone for Slot {
    fn clone(&self) -> Slot {
        Slot {
            count: self.count,
            child: ArcSwapOption::new(self.child.load_full()),
            place: self.place.clone(),
        }
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
    /// A child just built.
    pub fn resident(node: Arc<Node>) -> Slot {
        Slot { count: node.count(), child: ArcSwapOption::new(Some(node)), place: OnceLock::new() }
    }

    /// A child known only by its place.
    pub fn on_disk(count: u64, place: Place) -> Slot {
        Slot { count, child: ArcSwapOption::empty(), place: OnceLock::from(place) }
    }

    /// A root known only by its place: read now, to learn how many entries it has.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn of_unknown_count(pages: &Pages, location: Location) -> Result<Slot> {
        let place = Place { location, reduction: Reduction::UNKNOWN };
        let node = Arc::new(Node::read(pages, &place, false)?);
        let child = ArcSwapOption::new(Some(Arc::clone(&node)));
        Ok(Slot { count: node.count(), child, place: OnceLock::from(place) })
    }

    /// The child, if it is in memory.
    pub fn peek(&self) -> Option<NodeGuard> {
        let guard = self.child.load();
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
        let before = self.child.compare_and_swap(&nobody, Some(Arc::clone(&node)));
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
        let place = self.place.get().expect("a child that is not in memory has a place");
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
        let own = || self.place.get().cloned();
        // Asked again at the end: whoever evicts the child in between has noted the place here first.
        own().or_else(|| self.peek().and_then(|node| node.place().cloned())).or_else(own)
    }

    /// Bytes of memory it takes outside of itself, without the child.
    fn heap_bytes(&self) -> usize {
        self.place.get().map_or(0, |place| place.reduction.heap_bytes())
    }

    /// Lets go of the child if it can be read again.
    pub fn evict(&self) {
        let Some(node) = self.peek() else { return };
        if self.place.get().is_none() {
            match node.place() {
                // Losing a race to set the same place is no harm.
                Some(place) => drop(self.place.set(place.clone())),
                None => return,
            }
        }
        drop(node);
        self.child.store(None);
    }

    /// How long the child's reduction is, if that is known.
    pub fn reduction_bytes(&self) -> Option<usize> {
        let placed = self.place.get().and_then(|place| place.reduction.bytes());
        let length = placed.map(<[u8]>::len);
        length.or_else(|| self.peek()?.reduction().get()?.bytes().map(<[u8]>::len))
    }

    /// Whether the two lead to the very same node.
    pub fn same_as(&self, other: &Slot) -> bool {
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
