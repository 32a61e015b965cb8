//! Nodes whose reductions are unknown on disk: they were written while the tree's reducer was not registered.
//!
//! Finds them. Their reductions are computed anew at each read; putting an entry below them again writes them
//! with their reductions. Every node above one of them is one of them, too (`write_tree`), so a search needs
//! no other nodes.

use super::node::Body;
use super::slot::Slot;
use crate::error::Result;
use crate::page_cache::Pages;

/// For each of these nodes, a key of an entry below it: from the key `from` on, in order, at most `keys_max`.
///
/// A node that contains one of the keys already gets no other.
///
/// # Errors
/// `Corrupt` or `Io` if a page cannot be read.
pub(crate) fn stale_keys(pages: &Pages, root: &Slot, from: &[u8], keys_max: usize) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    collect(pages, root, from, keys_max, &mut keys)?;
    Ok(keys)
}

fn collect(pages: &Pages, slot: &Slot, from: &[u8], keys_max: usize, keys: &mut Vec<Vec<u8>>) -> Result<()> {
    let pointer = slot.pointer();
    if pointer.as_ref().is_some_and(|pointer| pointer.reduction.bytes().is_some()) {
        return Ok(());
    }
    let node = slot.pass_through(pages)?;
    let found = keys.len();
    if let Body::Inner(inner) = node.body() {
        let first = inner.separators().child_of(from);
        for child in first..inner.len() {
            if keys.len() == keys_max {
                return Ok(());
            }
            collect(pages, inner.slot(child), if child == first { from } else { &[] }, keys_max, keys)?;
        }
    }
    // A node without a page will be written later, with its reduction.
    if keys.len() == found && pointer.is_some() {
        keys.extend(first_key(pages, slot, from)?);
    }
    Ok(())
}

/// The first key below a node that is at or after `from`.
fn first_key(pages: &Pages, slot: &Slot, from: &[u8]) -> Result<Option<Vec<u8>>> {
    let node = slot.pass_through(pages)?;
    match node.body() {
        Body::Leaf(leaf) => {
            let index = leaf.lower_bound(from);
            Ok((index < leaf.len()).then(|| leaf.entry(index).key()))
        }
        Body::Inner(inner) => {
            let first = inner.separators().child_of(from);
            for child in first..inner.len() {
                let from = if child == first { from } else { &[] };
                if let Some(key) = first_key(pages, inner.slot(child), from)? {
                    return Ok(Some(key));
                }
            }
            Ok(None)
        }
    }
}
