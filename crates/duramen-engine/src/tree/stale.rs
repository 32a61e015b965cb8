//! Nodes whose reductions are not known on disk: they were written while the tree's reducer was not at hand.
//!
//! Owns the way to them. They are computed by whoever asks, each time anew; putting an entry below them again writes them with
//! what they reduce to. A node above one of them is one of them, too (`write_tree`), so that the way there passes no others.

use super::node::Body;
use super::slot::Slot;
use crate::error::Result;
use crate::page_cache::Pages;

/// A key of an entry below each of these nodes, from the key `from` on, in order: at most so many. A node in which one of the keys
/// lies already has none of its own.
///
/// # Errors
/// `Corrupt` or `Io` if a page cannot be read.
pub fn stale_keys(pages: &Pages, root: &Slot, from: &[u8], keys_max: usize) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    collect(pages, root, from, keys_max, &mut keys)?;
    Ok(keys)
}

fn collect(pages: &Pages, slot: &Slot, from: &[u8], keys_max: usize, keys: &mut Vec<Vec<u8>>) -> Result<()> {
    let place = slot.place();
    if place.as_ref().is_some_and(|place| place.reduction.bytes().is_some()) {
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
    // One without a place has yet to be written, and will be with its reduction.
    if keys.len() == found && place.is_some() {
        keys.extend(first_key(pages, slot, from)?);
    }
    Ok(())
}

/// The first key below a node that is not before `from`.
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
