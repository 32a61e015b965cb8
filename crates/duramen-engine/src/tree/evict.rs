//! Eviction: a clock hand that walks a root in key order and evicts nodes not used since its last pass.

use super::inner::Inner;
use super::node::Body;
use super::reducer::Reducer;
use super::slot::Slot;
use crate::page_cache::Pages;

/// Evicts nodes of a tree from `start` on until there is `enough` memory or the tree ends: clean ones, and
/// leaves that are patches, whose pages are on disk.
///
/// Inner nodes are evicted only after all nodes below them. The reduction of a patch is made while its
/// entries are in memory. Returns where to go on; `None` at the end of the tree.
pub(crate) fn evict(
    (pages, reducer): (&Pages, Option<&dyn Reducer>),
    root: &Slot,
    start: &[u8],
    enough: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let node = root.peek()?;
    if let Body::Inner(inner) = node.body() {
        let first = inner.separators().child_of(start);
        // Where leaves have patches, few are in memory. They are looked for in a loop that does nothing else:
        // the processor then waits for several slots at once.
        let children = inner.slots().enumerate().skip(first);
        let resident: Vec<usize> =
            children.filter(|(_, slot)| slot.is_resident()).map(|(child, _)| child).collect();
        for child in resident {
            if enough() {
                return Some(if child == 0 { Vec::new() } else { inner.separators().get(child - 1) });
            }
            let start = if child == first { start } else { &[] };
            if let Some(resume) = evict((pages, reducer), inner.slot(child), start, enough) {
                return Some(resume);
            }
        }
        if inner.slots().any(|slot| slot.is_resident()) || keeps_patches(pages, inner) {
            return None;
        }
    }
    if !node.take_touch() {
        drop(node);
        root.evict(pages, reducer);
    }
    None
}

/// Whether a node stays for its patches: to read them again would cost more than to read the node, and
/// merging them into their leaves takes them from memory as well. Only while they have room.
fn keeps_patches(pages: &Pages, inner: &Inner) -> bool {
    let meter = pages.meter();
    inner.patch_bytes() > inner.page_bytes_about() && meter.keeps_all_patches()
}

/// First keys of the recently used leaves in memory, until they fill `bytes_max`.
pub(crate) fn warm_keys(root: &Slot, bytes_max: usize) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut left = bytes_max;
    collect_warm(root, &mut left, &mut keys);
    keys
}

fn collect_warm(slot: &Slot, left: &mut usize, keys: &mut Vec<Vec<u8>>) {
    let Some(node) = slot.peek() else { return };
    match node.body() {
        Body::Inner(inner) => inner.slots().for_each(|slot| collect_warm(slot, left, keys)),
        Body::Leaf(leaf) => {
            // A leaf that only a hostile page can leave behind.
            if leaf.len() == 0 {
                return;
            }
            let key = leaf.entry(0).key();
            if key.len() + 16 <= *left && node.is_touched() {
                *left -= key.len() + 16;
                keys.push(key);
            }
        }
    }
}
