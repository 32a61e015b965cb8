//! Rows of which it is not known whether they are current: each collection and namespace gets one beside it.

use super::batch::Batch;
use super::report::{StoreKind, UncertainRows, origin_of};
use super::{ALL, Mending};
use crate::access::reads::sealed::Readable;
use crate::catalog::entries::{self, ENTRIES, rows_tree};
use crate::catalog::schema::Schema;
use crate::db::verify::{problem_of, problem_of_key_value};
use crate::kv;
use crate::store::error::Result;
use crate::store::{Direction, UncertainTree};
use crate::value::tuple::encode;

/// Follows the name of the collection or namespace that the rows are of.
const SUFFIX: &str = "-uncertain";

/// A tree with uncertain rows, and the collection or namespace that they go to.
struct Beside {
    tree: String,
    into: String,
    rows: UncertainRows,
}

/// The name of a store, for a report.
fn name_of(tree: &str) -> String {
    origin_of(tree).map(|(_, name)| name).filter(|name| !name.is_empty()).unwrap_or_else(|| tree.to_owned())
}

impl Mending<'_> {
    /// Makes collections and namespaces of the trees with uncertain entries. Others stay trees of bytes.
    pub(crate) fn uncertain(&mut self, trees: &[UncertainTree]) -> Result<()> {
        let (of_programs, own): (Vec<_>, Vec<_>) =
            trees.iter().partition(|tree| origin_of(&tree.of).is_some());
        for tree in of_programs {
            match self.beside(tree, trees)? {
                Some((beside, schema)) => self.fill(beside, schema.as_ref())?,
                None => self.report.uncertain.push(UncertainRows {
                    store: StoreKind::Bytes,
                    of: name_of(&tree.of),
                    name: tree.tree.clone(),
                    rows: tree.entries,
                    unreadable: tree.unreadable,
                }),
            }
        }
        let state = self.db.snapshot()?;
        for tree in own.iter().filter(|tree| tree.of == ENTRIES) {
            self.report.mentions.older_entries(state.source(), &tree.tree)?;
        }
        // The database's own trees have told what they could.
        self.db.transact(|tx| own.iter().try_for_each(|tree| tx.shared().drop_tree(&tree.tree).map(drop)))
    }

    /// Creates the collection or namespace for uncertain rows.
    fn beside(
        &mut self,
        tree: &UncertainTree,
        trees: &[UncertainTree],
    ) -> Result<Option<(Beside, Option<Schema>)>> {
        let Some((store, of)) = origin_of(&tree.of).filter(|(_, name)| !name.is_empty()) else {
            return Ok(None);
        };
        let names = self.db.snapshot()?.source().tree_names()?;
        let free = |tree_of: &dyn Fn(&str) -> String| {
            let mut name = format!("{of}{SUFFIX}");
            while names.contains(&tree_of(&name)) {
                name.push('\'');
            }
            name
        };
        let (name, into, schema) = match store {
            StoreKind::Collection => {
                let Some(schema) = self.schema_of(&of, trees)? else { return Ok(None) };
                let name = free(&|name| rows_tree(name));
                let schema = schema.beside(&name);
                if schema.validate().is_err() {
                    return Ok(None);
                }
                self.db.transact(|tx| {
                    entries::create(tx.shared(), &self.db.open_state().catalog, &schema).map(drop)
                })?;
                let into = rows_tree(&name);
                (name, into, Some(schema))
            }
            StoreKind::KeyValues => {
                let name = free(&|name| kv::rows_tree(name));
                let into = kv::rows_tree(&name);
                self.db.transact(|tx| tx.shared().create_tree(&into, None).map(drop))?;
                (name, into, None)
            }
            StoreKind::Blobs | StoreKind::Bytes | StoreKind::Own => return Ok(None),
        };
        let rows = UncertainRows { store, of, name, rows: tree.entries, unreadable: tree.unreadable };
        Ok(Some((Beside { tree: tree.tree.clone(), into, rows }, schema)))
    }

    /// The catalogue entry of a collection; if it is lost, an uncertain one.
    fn schema_of(&self, collection: &str, trees: &[UncertainTree]) -> Result<Option<Schema>> {
        let state = self.db.snapshot()?;
        let uncertain = trees.iter().filter(|tree| tree.of == ENTRIES).map(|tree| tree.tree.as_str());
        for name in [ENTRIES].into_iter().chain(uncertain) {
            let Some(tree) = state.source().tree(name)? else { continue };
            let stored = state.source().get(tree, &encode(collection)?)?;
            if let Some(schema) = stored.and_then(|stored| Schema::from_bytes(&stored).ok()) {
                return Ok(Some(schema.decoded_by(&self.db.open_state().catalog.shapes)));
            }
        }
        Ok(None)
    }

    /// Moves rows to where they belong. Those that do not fit stay where they are, as bytes: the
    /// catalogue entry may be older than they are.
    fn fill(&mut self, beside: Beside, schema: Option<&Schema>) -> Result<()> {
        let state = self.db.snapshot()?;
        let trees = (state.source().tree(&beside.tree)?, state.source().tree(&beside.into)?);
        let (Some(from), Some(into)) = trees else { return Ok(()) };
        let mut rows = state.source().cursor(from, ALL, Direction::Forward)?;
        let mut batch = Batch::new(self.db);
        let (mut moved, mut kept) = (0, 0);
        while let Some((key, value)) = rows.next()? {
            let is_sound = match schema {
                Some(schema) => problem_of(schema, key, value).is_none(),
                None => problem_of_key_value(key, value).is_ok(),
            };
            if is_sound {
                batch.put(into, key.to_vec(), value.to_vec())?;
                batch.delete(from, key)?;
                moved += 1;
            } else {
                kept += 1;
            }
            self.pass()?;
        }
        batch.commit()?;
        drop(rows);
        let Beside { tree, rows, .. } = beside;
        if kept > 0 {
            let bytes = UncertainRows {
                store: StoreKind::Bytes,
                name: tree,
                rows: kept,
                unreadable: 0,
                ..rows.clone()
            };
            self.report.uncertain.push(bytes);
        } else {
            self.db.transact(|tx| tx.shared().drop_tree(&tree))?;
        }
        self.report.uncertain.push(UncertainRows { rows: moved, ..rows });
        Ok(())
    }
}
