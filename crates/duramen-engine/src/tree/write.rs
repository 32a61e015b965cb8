//! Writing the nodes of a root that are not on disk, children before parents.

use std::sync::Arc;

use super::inner::page_bytes_max;
use super::node::{Body, Node};
use super::place::{Place, Reduction};
use super::reduce::node_reduction;
use super::reducer::Reducer;
use super::slot::Slot;
use crate::data_file::Page;
use crate::error::{ErrorKind, Result};
use crate::page_cache::Pages;

/// Where pages go.
pub trait NodeSink {
    /// Allocates room for a node's page and says where it is. The node learns its place only when the page was
    /// really written, so that it cannot be evicted before.
    ///
    /// # Errors
    /// `Full` or `Io`; what was placed before stays placed.
    fn put(&mut self, node: &Arc<Node>, page: &Page, reduction: Reduction) -> Result<Place>;

    /// Inner nodes are cut at so many bytes.
    fn inner_bytes_max(&self) -> usize;
}

/// Gives a place to every node of a root that has none, and returns the root's own.
///
/// The bytes are durable only after the caller has synced the file. A node whose reducer is not at hand, or
/// fails, is written with its reduction unknown; readers then look below it. So is every node above one whose reduction is not
/// known on disk: whoever looks for those finds them from the root down.
///
/// Reductions are computed here, and may be longer than they were when the node above them was cut. A root never changes, so the
/// node cannot be cut now: if its page became too long, it is written without them. The next change of the node cuts it.
///
/// # Errors
/// What the sink said; calling again goes on where this call stopped.
pub fn write_tree(
    pages: &Pages,
    root: &Slot,
    reducer: Option<&dyn Reducer>,
    sink: &mut dyn NodeSink,
) -> Result<Place> {
    if let Some(place) = root.place() {
        return Ok(place);
    }
    let node = root.peek().expect("a node without a place is in memory");
    match node.body() {
        Body::Leaf(leaf) => {
            let reduction = known_reduction(pages, &node, reducer)?;
            match leaf.page() {
                Some(page) => sink.put(&node, page, reduction),
                None => {
                    let rebuilt = leaf.rebuilt(pages, node.birth().0);
                    sink.put(&node, rebuilt.page().expect("just built"), reduction)
                }
            }
        }
        Body::Inner(inner) => {
            let places: Result<Vec<_>> =
                inner.slots().map(|slot| write_tree(pages, slot, reducer, sink)).collect();
            let mut places = places?;
            let reduction = match places.iter().all(|place| place.reduction.bytes().is_some()) {
                true => known_reduction(pages, &node, reducer)?,
                false => Reduction::UNKNOWN,
            };
            let page = inner.to_page(node.birth().0, &places);
            if page.bytes().len() <= page_bytes_max(sink.inner_bytes_max()) {
                return sink.put(&node, &page, reduction);
            }
            places.iter_mut().for_each(|place| place.reduction = Reduction::UNKNOWN);
            sink.put(&node, &inner.to_page(node.birth().0, &places), Reduction::UNKNOWN)
        }
    }
}

fn known_reduction(pages: &Pages, node: &Node, reducer: Option<&dyn Reducer>) -> Result<Reduction> {
    let Some(reducer) = reducer else { return Ok(Reduction::UNKNOWN) };
    match node_reduction(pages, node, reducer) {
        Ok(reduction) => Ok(Reduction::of(reduction)),
        // Also if a value that it needs is corrupt: a query for the reduction fails, and the checkpoint completes.
        Err(error) if error.kind() == ErrorKind::Invalid || error.is_damage() => Ok(Reduction::UNKNOWN),
        Err(error) => Err(error),
    }
}
