//! Writing the dirty nodes of a root, children before parents.

use std::sync::Arc;

use super::inner::page_bytes_max;
use super::node::{Body, Node};
use super::pointer::{NodePointer, Reduction};
use super::reduce::node_reduction;
use super::reducer::Reducer;
use super::slot::Slot;
use crate::alarm::invariant;
use crate::data_file::Page;
use crate::error::{ErrorKind, Result};
use crate::page_cache::Pages;

/// Where pages are written.
pub(crate) trait NodeSink {
    /// Allocates room for a node's page and returns where it is.
    ///
    /// The node gets its page pointer only after the page was really written, so that it cannot be evicted
    /// before.
    ///
    /// # Errors
    /// `Full` or `Io`; what was written before keeps its page.
    fn put(&mut self, node: &Arc<Node>, page: &Page, reduction: Reduction) -> Result<NodePointer>;

    /// Inner nodes are split at so many bytes.
    fn inner_bytes_max(&self) -> usize;
}

/// Writes every dirty node of a root, and returns the root's page pointer.
///
/// The bytes are durable only after the caller has synced the file. A node is written with its reduction
/// unknown if its reducer is not registered, or fails; readers then compute it from below. The same holds for
/// every node above one whose reduction is unknown on disk: such nodes are found from the root down.
///
/// Reductions are computed here, and may be longer than they were when the node above them was split. A root
/// never changes, so that node cannot be split now. If its page became too long, it is written without
/// reductions; the next change of the node splits it.
///
/// # Errors
/// Those of the sink; another call goes on where this one stopped.
pub(crate) fn write_tree(
    pages: &Pages,
    root: &Slot,
    reducer: Option<&dyn Reducer>,
    sink: &mut dyn NodeSink,
) -> Result<NodePointer> {
    if let Some(pointer) = root.pointer() {
        return Ok(pointer);
    }
    let node = root.peek().expect("a node without a pointer is in memory");
    match node.body() {
        Body::Leaf(leaf) => {
            let reduction = known_reduction(pages, &node, reducer)?;
            match leaf.page() {
                Some(page) => {
                    let (made, birth) = (page.generation(), node.birth());
                    invariant!(made == birth.0, "a page of commit {made} holds a node of commit {birth}");
                    sink.put(&node, page, reduction)
                }
                None => {
                    let rebuilt = leaf.rebuilt(pages, node.birth().0);
                    sink.put(&node, rebuilt.page().expect("just built"), reduction)
                }
            }
        }
        Body::Inner(inner) => {
            let pointers: Result<Vec<_>> =
                inner.slots().map(|slot| write_tree(pages, slot, reducer, sink)).collect();
            let mut pointers = pointers?;
            let reduction = match pointers.iter().all(|pointer| pointer.reduction.bytes().is_some()) {
                true => known_reduction(pages, &node, reducer)?,
                false => Reduction::UNKNOWN,
            };
            let page = inner.to_page(node.birth().0, &pointers);
            if page.bytes().len() <= page_bytes_max(sink.inner_bytes_max()) {
                return sink.put(&node, &page, reduction);
            }
            pointers.iter_mut().for_each(|pointer| pointer.reduction = Reduction::UNKNOWN);
            sink.put(&node, &inner.to_page(node.birth().0, &pointers), Reduction::UNKNOWN)
        }
    }
}

fn known_reduction(pages: &Pages, node: &Node, reducer: Option<&dyn Reducer>) -> Result<Reduction> {
    // Compaction copies a node with its reduction.
    let Some(reducer) = reducer else { return Ok(node.reduction().get().cloned().unwrap_or_default()) };
    match node_reduction(pages, node, reducer) {
        Ok(reduction) => Ok(Reduction::of(reduction)),
        // Also if a value that it needs is corrupt: a query for the reduction fails, and the checkpoint
        // completes.
        Err(error) if error.kind() == ErrorKind::Invalid || error.is_corruption() => Ok(Reduction::UNKNOWN),
        Err(error) => Err(error),
    }
}
