//! Eviction: a clock hand that walks a root in key order and evicts nodes not used since its last pass.

use super::node::Body;
use super::slot::Slot;

/// Evicts clean nodes of a tree from `start` on until there is `enough` memory or the tree ends.
///
/// Inner nodes are evicted only after all nodes below them. Returns where to go on; `None` at the end of the
/// tree.
pub(crate) fn evict(root: &Slot, start: &[u8], enough: &dyn Fn() -> bool) -> Option<Vec<u8>> {
    let node = root.peek()?;
    if let Body::Inner(inner) = node.body() {
        let first = inner.separators().child_of(start);
        for child in first..inner.len() {
            if enough() {
                return Some(if child == 0 { Vec::new() } else { inner.separators().get(child - 1) });
            }
            let start = if child == first { start } else { &[] };
            if let Some(resume) = evict(inner.slot(child), start, enough) {
                return Some(resume);
            }
        }
        if inner.slots().any(|slot| slot.is_resident()) {
            return None;
        }
    }
    if !node.take_touch() {
        drop(node);
        root.evict();
    }
    None
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
