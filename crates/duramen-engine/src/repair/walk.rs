//! Walks a tree with corrupt pages: every entry that can be read, and the ranges lost between them.
//!
//! It owns the rule that a corrupt node costs only what is below it. It holds one path in memory, whatever
//! the tree's size.

use super::LostRange;
use crate::data_file::PagePointer;
use crate::error::{Error, Result};
use crate::page_cache::Pages;
use crate::tree::{Body, Node, NodePointer, StoredValue};

/// Receives entries and lost ranges, in order of keys.
pub(crate) trait Meets {
    /// An entry. A big value is still a reference.
    fn entry(&mut self, key: &[u8], value: StoredValue<'_>) -> Result<()>;

    /// A node that cannot be read, by the pointer to it. [`Meets::lost`] follows once its range is known.
    fn unreadable(&mut self, at: &PagePointer);

    /// A range that cannot be read. The tree's name is left empty.
    fn lost(&mut self, range: LostRange) -> Result<()>;
}

/// Walks the tree with the root page at `root`, which has `count` entries, if that is known.
///
/// # Errors
/// Any error of `meets`.
pub(crate) fn walk(
    pages: &Pages,
    root: &NodePointer,
    count: Option<u64>,
    meets: &mut dyn Meets,
) -> Result<()> {
    let mut walk = Walk { pages, meets, last: None, open: None, key: Vec::new() };
    walk.node(root, count, None)?;
    walk.close(None)
}

struct Walk<'a> {
    pages: &'a Pages,
    meets: &'a mut dyn Meets,
    /// The last key read.
    last: Option<Vec<u8>>,
    /// A lost range after that key, while its end is unknown.
    open: Option<LostRange>,
    key: Vec<u8>,
}

impl Walk<'_> {
    fn node(&mut self, pointer: &NodePointer, count: Option<u64>, above: Option<u8>) -> Result<()> {
        let node = match self.read(pointer, count, above) {
            Ok(node) => node,
            Err(error) => {
                self.meets.unreadable(&pointer.page);
                return self.lose_page(pointer, count, &error);
            }
        };
        match node.body() {
            Body::Inner(inner) => inner.slots().try_for_each(|slot| {
                let pointer =
                    slot.pointer().expect("a child that was read with its parent's page has a pointer");
                self.node(&pointer, Some(slot.count), Some(inner.level))
            }),
            Body::Leaf(leaf) => (0..leaf.len()).try_for_each(|index| {
                let mut key = std::mem::take(&mut self.key);
                leaf.key_into(index, &mut key);
                self.close(Some(&key))?;
                self.meets.entry(&key, leaf.value(index))?;
                self.key = self.last.replace(key).unwrap_or_default();
                Ok(())
            }),
        }
    }

    /// Notes a page that cannot be read. What its patch puts is there all the same, within the lost range.
    fn lose_page(&mut self, pointer: &NodePointer, count: Option<u64>, error: &Error) -> Result<()> {
        let puts: Vec<_> = pointer.patch.iter().flat_map(|patch| patch.puts()).collect();
        self.lose(count.map(|count| count.saturating_sub(puts.len() as u64)), error);
        puts.into_iter().try_for_each(|(key, value)| self.meets.entry(&key, value))
    }

    /// Reads a node, and checks it against its parent.
    fn read(&self, pointer: &NodePointer, count: Option<u64>, above: Option<u8>) -> Result<Node> {
        let node = Node::read(self.pages, pointer, true)?;
        if above.is_some_and(|above| node.level() >= above) {
            return Err(self.corrupt(&pointer.page, "a node that is no lower than its parent"));
        }
        match count.filter(|count| *count != node.count()) {
            None => Ok(node),
            Some(count) => {
                let what = format!("{} entries below this node, its parent records {count}", node.count());
                Err(self.corrupt(&pointer.page, &what))
            }
        }
    }

    fn corrupt(&self, pointer: &PagePointer, what: &str) -> Error {
        let data = self.pages.data();
        Error::corrupt_data(data.path(), data.offset(pointer.block), what)
    }

    /// Notes a node that cannot be read. Adjacent ones form one range.
    fn lose(&mut self, count: Option<u64>, why: &Error) {
        match &mut self.open {
            Some(open) => open.entries = open.entries.zip(count).map(|(before, more)| before + more),
            None => {
                self.open = Some(LostRange {
                    tree: String::new(),
                    after: self.last.clone(),
                    before: None,
                    entries: count,
                    why: why.message().to_owned(),
                });
            }
        }
    }

    /// Ends the lost range before this key, or at the end of the tree.
    fn close(&mut self, key: Option<&[u8]>) -> Result<()> {
        match self.open.take() {
            None => Ok(()),
            Some(open) => self.meets.lost(LostRange { before: key.map(<[u8]>::to_vec), ..open }),
        }
    }
}
