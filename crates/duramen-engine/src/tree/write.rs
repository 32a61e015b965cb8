//! Writing the dirty nodes of a root, children before parents.

use std::sync::Arc;

use super::inner::page_bytes_max;
use super::leaf::Leaf;
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

/// Writes every dirty node of a root, and returns the root's page pointer. A leaf that is a patch is written
/// with the node above it.
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
    if let Some(pointer) = settled(pages, &node, reducer)? {
        return Ok(pointer.clone());
    }
    match node.body() {
        Body::Leaf(leaf) => write_leaf(pages, &node, leaf, reducer, sink),
        Body::Inner(inner) => {
            let pointers: Result<Vec<_>> =
                inner.slots().map(|slot| write_tree(pages, slot, reducer, sink)).collect();
            let mut pointers = pointers?;
            let reduction = match pointers.iter().all(|pointer| pointer.reduction.bytes().is_some()) {
                true => known_reduction(pages, &node, reducer)?,
                false => Reduction::UNKNOWN,
            };
            let page = inner.to_page(node.birth().0, &pointers);
            if page.bytes().len() - inner.patch_bytes() <= page_bytes_max(sink.inner_bytes_max()) {
                return sink.put(&node, &page, reduction);
            }
            pointers.iter_mut().for_each(|pointer| pointer.reduction = Reduction::UNKNOWN);
            sink.put(&node, &inner.to_page(node.birth().0, &pointers), Reduction::UNKNOWN)
        }
    }
}

fn write_leaf(
    pages: &Pages,
    node: &Arc<Node>,
    leaf: &Leaf,
    reducer: Option<&dyn Reducer>,
    sink: &mut dyn NodeSink,
) -> Result<NodePointer> {
    let reduction = known_reduction(pages, node, reducer)?;
    match leaf.page() {
        Some(page) => {
            let (made, birth) = (page.generation(), node.birth());
            invariant!(made == birth.0, "a page of commit {made} holds a node of commit {birth}");
            sink.put(node, page, reduction)
        }
        None => {
            let rebuilt = leaf.rebuilt(pages, node.birth().0);
            sink.put(node, rebuilt.page().expect("just built"), reduction)
        }
    }
}

/// Writes the dirty leaves of a root, and no node above them.
///
/// # Errors
/// As [`write_tree`].
pub(crate) fn write_leaves(
    pages: &Pages,
    root: &Slot,
    reducer: Option<&dyn Reducer>,
    sink: &mut dyn NodeSink,
) -> Result<()> {
    // A node above a dirty one is dirty, too, and so in memory.
    let Some(node) = root.peek().filter(|_| root.page().is_none()) else { return Ok(()) };
    match node.body() {
        Body::Inner(inner) => inner.slots().try_for_each(|slot| write_leaves(pages, slot, reducer, sink)),
        Body::Leaf(leaf) => write_leaf(pages, &node, leaf, reducer, sink).map(drop),
    }
}

/// The pointer of a patch, with its reduction; `None` for any other node.
///
/// # Errors
/// `Io` if a value that the reduction needs cannot be read.
pub(super) fn settled<'n>(
    pages: &Pages,
    node: &'n Node,
    reducer: Option<&dyn Reducer>,
) -> Result<Option<&'n NodePointer>> {
    if !node.is_patch() {
        return Ok(None);
    }
    // Another thread may have settled it since the caller looked.
    if let Some(pointer) = node.pointer() {
        return Ok(Some(pointer));
    }
    let reduction = known_reduction(pages, node, reducer)?;
    Ok(Some(node.settle(reduction)))
}

pub(super) fn known_reduction(
    pages: &Pages,
    node: &Node,
    reducer: Option<&dyn Reducer>,
) -> Result<Reduction> {
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
