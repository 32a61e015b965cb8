//! Eviction: a clock hand that goes through a root in key order and lets go of what was not used since it last
//! came by.

use super::node::Body;
use super::slot::Slot;

/// What one sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
    /// Bytes of nodes let go.
    pub freed_bytes: usize,
    /// Where to go on; `None` when the end of the tree was reached.
    pub resume: Option<Vec<u8>>,
}

/// Lets go of clean nodes of a tree from `start` on until `goal_bytes` are free or the tree ends. Inner nodes go
/// only after all below them.
pub fn sweep(root: &Slot, start: &[u8], goal_bytes: usize) -> Sweep {
    let mut hand = Sweep::default();
    sweep_slot(root, start, goal_bytes, &mut hand);
    hand
}

fn sweep_slot(slot: &Slot, start: &[u8], goal_bytes: usize, hand: &mut Sweep) {
    let Some(node) = slot.peek() else { return };
    if let Body::Inner(inner) = node.body() {
        let first = inner.separators().child_of(start);
        for child in first..inner.len() {
            if hand.freed_bytes >= goal_bytes {
                hand.resume = Some(if child == 0 { Vec::new() } else { inner.separators().get(child - 1) });
                return;
            }
            let start = if child == first { start } else { &[] };
            sweep_slot(inner.slot(child), start, goal_bytes, hand);
            if hand.resume.is_some() {
                return;
            }
        }
        if inner.slots().any(|slot| slot.peek().is_some()) {
            return;
        }
    }
    if !node.take_touch() {
        drop(node);
        hand.freed_bytes += slot.evict();
    }
}

/// First keys of the leaves in memory that were used lately, until they fill `bytes_max`.
pub fn warm_keys(root: &Slot, bytes_max: usize) -> Vec<Vec<u8>> {
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
            let key = leaf.entry(0).key();
            if key.len() + 16 <= *left && node.is_touched() {
                *left -= key.len() + 16;
                keys.push(key);
            }
        }
    }
}
