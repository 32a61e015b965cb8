//! The hot-page list: the first keys of the leaves in memory at a clean close, read again at the next open.

use super::maintenance::Maintenance;
use crate::data_file::{Page, PageKind, PagePointer};
use crate::error::{Error, Result};
use crate::ids::TreeId;
use crate::tree::{KeyRange, first_key, warm_keys};

/// Largest size of the list: an open reads ahead a few thousand leaves at most.
const LIST_BYTES_MAX: usize = 256 * 1024;

impl Maintenance {
    /// Writes the last checkpoint, with the hot-page list.
    pub(super) fn close(&self) -> Result<()> {
        self.write_pending()?;
        let hot = self.write_hot_list().ok().flatten();
        self.last_checkpoint(hot)?;
        self.log_mark()
    }

    /// Reads the leaves of the hot-page list, while memory allows. An unreadable list is no loss.
    pub(super) fn warm(&self, hot: Option<PagePointer>) {
        let pages = &self.store().pages;
        let Some(list) = hot.and_then(|pointer| pages.read(&pointer, PageKind::HotPages).ok()) else {
            return;
        };
        let root = self.published_root();
        let mut rest = list.payload();
        while let Some((tree, key, after)) = next_entry(rest) {
            rest = after;
            if pages.meter().excess(50) > 0 {
                return;
            }
            let slot = root.trees.get(tree).and_then(|tree| tree.slot.as_ref());
            if first_key(pages, slot, &KeyRange { from: key.to_vec(), to: None }).is_err() {
                return;
            }
        }
    }

    fn write_hot_list(&self) -> Result<Option<PagePointer>> {
        let root = self.published_root();
        let mut list = Vec::new();
        for tree in root.trees.iter() {
            let Some(slot) = &tree.slot else { continue };
            for key in warm_keys(slot, LIST_BYTES_MAX - list.len().min(LIST_BYTES_MAX)) {
                list.extend_from_slice(&tree.id.0.to_le_bytes());
                let key_bytes = u16::try_from(key.len()).expect("keys are at most KEY_BYTES_MAX");
                list.extend_from_slice(&key_bytes.to_le_bytes());
                list.extend_from_slice(&key);
            }
        }
        if list.is_empty() {
            return Ok(None);
        }
        let page =
            Page::build(PageKind::HotPages, root.seq.0, list.len(), |out| out.extend_from_slice(&list));
        let store = self.store();
        let data = store.pages.data();
        let block_count = data.blocks_of(page.bytes().len());
        let block = store.space.allocate_value(block_count)?;
        let pointer = data.locate(&page, block);
        let written = data.file().write_at(page.bytes(), data.offset(block));
        written.map_err(|error| Error::io("write to", data.path(), &error.source))?;
        Ok(Some(pointer))
    }
}

fn next_entry(rest: &[u8]) -> Option<(TreeId, &[u8], &[u8])> {
    let (head, rest) = rest.split_at_checked(10)?;
    let tree = TreeId(u64::from_le_bytes(head[..8].try_into().ok()?));
    let (key, rest) = rest.split_at_checked(u16::from_le_bytes([head[8], head[9]]) as usize)?;
    Some((tree, key, rest))
}
