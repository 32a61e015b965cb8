//! Pointers to nodes that could not be read, for a look at what lies there now.
//!
//! A lost write leaves an older page in place, whole and with a right mark. Only the pointer to the newer
//! page shows that it is out of date.

use std::collections::BTreeMap;

use crate::data_file::PagePointer;

/// So many pointers are kept. Beyond them every node that is found may be the older page of one of them.
const POINTERS_MAX: usize = 1 << 20;

/// The pointers, by block.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    tags: BTreeMap<u64, [u8; 16]>,
    is_full: bool,
}

impl Unreadable {
    pub(crate) fn add(&mut self, at: &PagePointer) {
        if self.tags.len() < POINTERS_MAX {
            self.tags.insert(at.block, at.tag);
        } else {
            self.is_full = true;
        }
    }

    pub(super) fn extend(&mut self, other: Unreadable) {
        self.tags.extend(other.tags);
        self.is_full |= other.is_full;
    }

    /// Whether a whole page is another than a pointer to its block wants; `None` if that is unknown.
    pub(crate) fn is_outdated(&self, at: &PagePointer) -> Option<bool> {
        match self.tags.get(&at.block) {
            Some(tag) => Some(*tag != at.tag),
            None => (!self.is_full).then_some(false),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }
}
