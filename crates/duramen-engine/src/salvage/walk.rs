//! A pass over a tree of which pages may be damaged: every entry that can be read, and what is lost between them.
//!
//! Owns the rule that a damaged node costs what is below it and nothing else. Holds the way to one leaf, whatever the tree's size.

use super::LostRange;
use crate::data_file::Location;
use crate::error::{Error, Result};
use crate::page_cache::Pages;
use crate::tree::{Body, Node, Place, StoredValue};

/// What a walk meets, in order of keys.
pub trait Meets {
    /// An entry. A big value is still a reference.
    fn entry(&mut self, key: &[u8], value: StoredValue<'_>) -> Result<()>;

    /// A stretch that cannot be read; the tree's name is left empty.
    fn lost(&mut self, range: LostRange) -> Result<()>;
}

/// Walks the tree whose root lies at `root` and has `count` entries, if that is known.
///
/// # Errors
/// What `meets` said.
pub fn walk(pages: &Pages, root: &Place, count: Option<u64>, meets: &mut dyn Meets) -> Result<()> {
    let mut walk = Walk { pages, meets, last: None, open: None, key: Vec::new() };
    walk.node(root, count, None)?;
    walk.close(None)
}

struct Walk<'a> {
    pages: &'a Pages,
    meets: &'a mut dyn Meets,
    /// The last key that was met.
    last: Option<Vec<u8>>,
    /// What is lost behind it, until it is known where that ends.
    open: Option<LostRange>,
    key: Vec<u8>,
}

impl Walk<'_> {
    fn node(&mut self, place: &Place, count: Option<u64>, above: Option<u8>) -> Result<()> {
        let node = match self.read(place, count, above) {
            Ok(node) => node,
            Err(error) => {
                self.lose(count, &error);
                return Ok(());
            }
        };
        match node.body() {
            Body::Inner(inner) => inner.slots().try_for_each(|slot| {
                let place = slot.place().expect("a child that was read with its parent's page has a place");
                self.node(&place, Some(slot.count), Some(inner.level))
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

    /// Reads a node, which must be what its parent says.
    fn read(&self, place: &Place, count: Option<u64>, above: Option<u8>) -> Result<Node> {
        let node = Node::read(self.pages, place, true)?;
        if above.is_some_and(|above| node.level() >= above) {
            return Err(self.damaged(&place.location, "a node that is no lower than its parent"));
        }
        match count.filter(|count| *count != node.count()) {
            None => Ok(node),
            Some(count) => {
                let what = format!("{} entries below this node, its parent says {count}", node.count());
                Err(self.damaged(&place.location, &what))
            }
        }
    }

    fn damaged(&self, location: &Location, what: &str) -> Error {
        let data = self.pages.data();
        Error::damaged_data(data.path(), data.offset(location.block), what)
    }

    /// Notes what cannot be read. Neighbours are one stretch.
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

    /// The stretch that cannot be read ends before this key, or with the tree.
    fn close(&mut self, key: Option<&[u8]>) -> Result<()> {
        match self.open.take() {
            None => Ok(()),
            Some(open) => self.meets.lost(LostRange { before: key.map(<[u8]>::to_vec), ..open }),
        }
    }
}
