//! Names that a list still mentions while nothing of theirs was found.
//!
//! Owns the names that a repair meets in lists: the list of collections, older pages of lists, references,
//! views, the log. What none of them names cannot be reported as missing.

use std::collections::BTreeMap;

use super::report::{Missing, StoreKind, origin_of};
use crate::store::error::Result;
use crate::store::{Direction, Source};
use crate::value::tuple::decode;
use crate::view::spec::TREES as VIEW_TREES;

/// The name prefix of trees that lost their names or their meaning.
pub(crate) const RECOVERED: &str = "recovered/";

/// Why a name from an older list proves little.
const OLD_PAGES: &str = "an older page or a commit of the log names it; it may have been dropped since";

/// Mentioned stores, each with the first list that mentions it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Mentions(BTreeMap<(StoreKind, String), String>);

impl Mentions {
    /// The names of trees that the engine met in lists that may be out of date.
    pub(crate) fn of_trees(trees: &[String]) -> Mentions {
        let mut mentions = Mentions::default();
        for (store, name) in trees.iter().filter_map(|tree| origin_of(tree)) {
            mentions.add(store, &name, || OLD_PAGES.to_owned());
        }
        mentions
    }

    pub(crate) fn add(&mut self, store: StoreKind, name: &str, why: impl FnOnce() -> String) {
        if !name.is_empty() && !self.0.contains_key(&(store, name.to_owned())) {
            self.0.insert((store, name.to_owned()), why());
        }
    }

    /// Notes the name under a key of the list of collections. The entry itself may not decode.
    pub(crate) fn entry(&mut self, key: &[u8]) {
        if let Some(name) = name_of_entry(key) {
            self.add(StoreKind::Collection, &name, || "the list of collections names it".to_owned());
        }
    }

    /// Notes the names of a tree with older entries of the list of collections.
    pub(crate) fn older_entries(&mut self, source: &dyn Source, tree: &str) -> Result<()> {
        let Some(tree) = source.tree(tree)? else { return Ok(()) };
        let mut rows = source.cursor(tree, super::ALL, Direction::Forward)?;
        while let Some(key) = rows.next_key()? {
            if let Some(name) = name_of_entry(key) {
                self.add(StoreKind::Collection, &name, || OLD_PAGES.to_owned());
            }
        }
        Ok(())
    }

    /// Notes the collection of a tree with the rows of a view.
    pub(crate) fn view_tree(&mut self, tree: &str) {
        let of = tree.strip_prefix(VIEW_TREES).and_then(|rest| rest.split_once('\u{1}'));
        if let Some((collection, _)) = of {
            self.add(StoreKind::Collection, collection, || "the list of trees has a view of it".to_owned());
        }
    }

    /// The mentioned stores of which nothing is there.
    pub(crate) fn missing(&self, is_there: impl Fn(StoreKind, &str) -> bool) -> Vec<Missing> {
        let absent = self.0.iter().filter(|((store, name), _)| !is_there(*store, name));
        absent
            .map(|((store, name), why)| Missing { store: *store, name: name.clone(), why: why.clone() })
            .collect()
    }
}

/// The collection that a key of the list of collections names.
pub(crate) fn name_of_entry(key: &[u8]) -> Option<String> {
    decode(key).ok()?.pop().map(|name| name.to_string())
}

/// Whether a tree of bytes holds what was found of a store, under another name.
pub(crate) fn is_renamed(tree: &str, store: StoreKind, name: &str) -> bool {
    let Some(of) = tree.strip_prefix(RECOVERED) else { return false };
    let of = of.trim_end_matches('\'');
    of == name || origin_of(of) == Some((store, name.to_owned()))
}
