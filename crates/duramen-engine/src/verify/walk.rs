//! One pass over a tree, trusting nothing that was computed before.

use super::CheckReport;
use crate::checkpoint::Store;
use crate::data_file::PagePointer;
use crate::error::Result;
use crate::ids::TreeId;
use crate::tree::{BigReader, BigRef, Body, Leaf, Node, Reducer, Slot, fresh_reduction};

/// A walk over trees: what it found and which blocks it saw.
pub(super) struct Walk<'a> {
    store: &'a Store,
    pub report: CheckReport,
    /// Extents that something leads to.
    pub reached: Vec<(u64, u32)>,
}

struct Within<'a> {
    tree: TreeId,
    from: Option<&'a [u8]>,
    to: Option<&'a [u8]>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(store: &'a Store) -> Walk<'a> {
        Walk { store, report: CheckReport::default(), reached: Vec::new() }
    }

    /// The store that is walked.
    pub(super) fn store(&self) -> &'a Store {
        self.store
    }

    /// Something leads to a page: its blocks must be in use.
    fn reach(&mut self, pointer: &PagePointer) {
        let (block, block_count) = pointer.extent();
        if self.store.space.is_used(block, block_count) {
            self.reached.push((block, block_count));
        } else {
            self.report.problem(format!("block {block} holds a page and is marked free"));
        }
    }

    /// Checks all of a tree.
    pub(super) fn tree(&mut self, tree: TreeId, root: &Slot, reducer: Option<&dyn Reducer>) {
        self.slot(root, &Within { tree, from: None, to: None }, reducer);
    }

    /// Counts the pages of a dropped tree that have not been given back.
    pub(super) fn dropped(&mut self, slot: &Slot, from: &[u8]) {
        if let Some(page) = slot.page() {
            self.reach(&page);
        }
        let Ok(node) = slot.load(&self.store.pages, true) else { return };
        match node.body() {
            Body::Inner(inner) => {
                let first = inner.separators().child_of(from);
                for child in first..inner.len() {
                    self.dropped(inner.slot(child), if child == first { from } else { &[] });
                }
            }
            Body::Leaf(leaf) => self.values(leaf, &mut |_, _| ()),
        }
    }

    fn slot(&mut self, slot: &Slot, within: &Within<'_>, reducer: Option<&dyn Reducer>) {
        let pointer = slot.pointer().or_else(|| slot.peek().and_then(|node| node.unsettled_pointer()));
        if let Some(page) = slot.page() {
            self.reach(&page);
        }
        // What lies on disk is read again, also where it is in memory: memory may be right and the disk
        // wrong.
        let node = match &pointer {
            Some(pointer) => Node::read(&self.store.pages, pointer, true).map(std::sync::Arc::new),
            None => slot.load(&self.store.pages, true),
        };
        let node = match node {
            Ok(node) => node,
            Err(error) => return self.report.problem(error.message().to_owned()),
        };
        self.report.pages += 1;
        if !slot.may_lead_to(&node) {
            let pointer = pointer.as_ref().map(|p| &p.page);
            return self.problem_at(pointer, within, "a node that is no lower than its parent");
        }
        if node.count() != slot.count {
            self.problem_at(
                pointer.as_ref().map(|p| &p.page),
                within,
                "an entry count that is not its parent's",
            );
        }
        match node.body() {
            Body::Inner(inner) => {
                for child in 0..inner.len() {
                    let from = child.checked_sub(1).map(|left| inner.separators().get(left));
                    let to = (child < inner.separators().len()).then(|| inner.separators().get(child));
                    let bounds = Within {
                        tree: within.tree,
                        from: from.as_deref().or(within.from),
                        to: to.as_deref().or(within.to),
                    };
                    if bounds.from.zip(bounds.to).is_some_and(|(from, to)| from >= to) {
                        self.problem_at(pointer.as_ref().map(|p| &p.page), within, "separators out of order");
                    }
                    // A child in memory is shared with the tree that is in use; the page just read has its
                    // own.
                    self.slot(inner.slot(child), &bounds, reducer);
                }
            }
            Body::Leaf(leaf) => self.leaf(leaf, pointer.as_ref().map(|p| &p.page), within),
        }
        if let (Some(reducer), Some(known)) = (reducer, pointer.as_ref().and_then(|p| p.reduction.bytes())) {
            self.report.reductions += 1;
            match fresh_reduction(&self.store.pages, &node, reducer) {
                Ok(fresh) if *fresh == *known => {}
                Ok(_) => self.problem_at(
                    pointer.as_ref().map(|p| &p.page),
                    within,
                    "a reduction that is not its entries'",
                ),
                Err(error) => self.report.problem(error.message().to_owned()),
            }
        }
    }

    fn leaf(&mut self, leaf: &Leaf, pointer: Option<&PagePointer>, within: &Within<'_>) {
        let (mut before, mut key) = (Vec::new(), Vec::new());
        for index in 0..leaf.len() {
            leaf.key_into(index, &mut key);
            if index > 0 && key <= before {
                self.problem_at(pointer, within, "keys out of order");
            }
            let outside =
                within.from.is_some_and(|from| *key < *from) || within.to.is_some_and(|to| *key >= *to);
            if outside {
                self.problem_at(pointer, within, "a key outside its parent's bounds");
            }
            std::mem::swap(&mut before, &mut key);
        }
        self.report.entries += leaf.len() as u64;
        let store = self.store;
        self.values(leaf, &mut |report, value| {
            report.big_values += 1;
            if let Err(error) = read_through(store, value) {
                report.problem(error.message().to_owned());
            }
        });
    }

    fn values(&mut self, leaf: &Leaf, look: &mut dyn FnMut(&mut CheckReport, &BigRef)) {
        for index in (0..leaf.len()).filter(|index| leaf.value(*index).big) {
            let value = BigRef::decode(leaf.value(index).bytes);
            let pages = value.as_ref().map_err(Clone::clone).and_then(|value| value.pages(&self.store.pages));
            match (value, pages) {
                (Ok(value), Ok(pages)) => {
                    pages.iter().for_each(|page| self.reach(page));
                    look(&mut self.report, &value);
                }
                (Err(error), _) | (_, Err(error)) => self.report.problem(error.message().to_owned()),
            }
        }
    }

    fn problem_at(&mut self, pointer: Option<&PagePointer>, within: &Within<'_>, what: &str) {
        let data = self.store.pages.data();
        let place = match pointer {
            Some(pointer) => format!("{} @ {:#x}", data.path().display(), data.offset(pointer.block)),
            None => "memory".to_owned(),
        };
        self.report.problem(format!("{place}: tree {}: {what}", within.tree));
    }
}

fn read_through(store: &Store, value: &BigRef) -> Result<()> {
    let mut reader = BigReader::open(&store.pages, value)?;
    let read = std::io::copy(&mut reader, &mut std::io::sink());
    let data = store.pages.data();
    let offset = data.offset(value.pointer.block);
    match read {
        Ok(len) if len == value.len => Ok(()),
        Ok(len) => {
            let what = format!("a value of {len} bytes, want {}", value.len);
            Err(crate::error::Error::corrupt_data(data.path(), offset, what))
        }
        Err(error) => Err(crate::error::Error::corrupt_data(data.path(), offset, error)),
    }
}
