//! What one tree of a database looks like: for tools that show how it lies on disk.
//!
//! Owns the names by which a person knows trees: a collection's own, a view's behind its collection's, all others as the engine has
//! them.

use std::fmt;

use crate::store::{ReducerSpec, TreeShape};

use crate::access::reads::Reads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::catalog::entries::{is_users, rows_tree};
use crate::store::TreeId;
use crate::store::error::{Code, Error, Result};
use crate::view::kinds::Reduce;
use crate::view::spec::ViewSpec;
use crate::view::sums::Sums;

/// A tree, by the name that a person knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTree {
    /// `orders` for a collection, `orders.by_city` for a view, the tree's own name for all others.
    pub name: String,
    /// The tree's own name.
    pub tree: String,
    /// What it is.
    pub holds: Holds,
}

/// What a tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// Documents of a collection.
    Documents,
    /// Rows of a view.
    Rows(Box<ViewSpec>),
    /// Bytes of a program.
    Bytes,
    /// What the database keeps for itself, key-values and blobs among it.
    Own,
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Holds::Documents => "documents",
            Holds::Rows(_) => "rows of a view",
            Holds::Bytes => "bytes",
            Holds::Own => "own",
        })
    }
}

/// What a tree keeps of the ranges of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReduction {
    /// What it is.
    pub reduce: String,
    /// Of which field, if of one.
    pub field: Option<String>,
}

impl Snapshot {
    /// Every tree: collections, their views, and all others; in this order.
    ///
    /// # Errors
    /// What reading the disk said.
    pub fn trees(&self) -> Result<Vec<NamedTree>> {
        let mut trees = Vec::new();
        for schema in self.collections()? {
            let collection = schema.name();
            trees.push(NamedTree {
                name: collection.to_owned(),
                tree: rows_tree(collection),
                holds: Holds::Documents,
            });
            for view in schema.views() {
                let is_newest = !schema
                    .views()
                    .iter()
                    .any(|other| other.name() == view.name() && other.generation > view.generation);
                let older = if is_newest { String::new() } else { format!("#{}", view.generation) };
                trees.push(NamedTree {
                    name: format!("{collection}.{}{older}", view.name()),
                    tree: view.tree_name(collection),
                    holds: Holds::Rows(Box::new(view.clone())),
                });
            }
        }
        for tree in self.source().tree_names()? {
            if !trees.iter().any(|known| known.tree == tree) {
                let holds = if is_users(&tree) { Holds::Bytes } else { Holds::Own };
                trees.push(NamedTree { name: tree.clone(), tree, holds });
            }
        }
        Ok(trees)
    }

    /// What a tree of [`Snapshot::trees`] looks like. Every node of it is read, and none kept in memory; `told` is called after each
    /// leaf with what was seen so far, and an error from it ends the look.
    ///
    /// # Errors
    /// `NoSuchTree`; what reading the disk said; what `told` said.
    pub fn tree_shape(
        &self,
        tree: &NamedTree,
        mut told: impl FnMut(&TreeShape) -> Result<()>,
    ) -> Result<TreeShape> {
        self.shape(self.tree_id(tree)?, &mut told)
    }

    /// How many entries a tree has. O(1).
    ///
    /// # Errors
    /// As [`Snapshot::tree_shape`].
    pub fn tree_len(&self, tree: &NamedTree) -> Result<u64> {
        Ok(self.info(self.tree_id(tree)?)?.len)
    }

    /// What a tree keeps of ranges of its keys, beside how many there are.
    ///
    /// # Errors
    /// As [`Snapshot::tree_shape`].
    pub fn tree_reductions(&self, tree: &NamedTree) -> Result<Vec<KeptReduction>> {
        let Some(spec) = self.info(self.tree_id(tree)?)?.reducer else { return Ok(Vec::new()) };
        if let Holds::Rows(view) = &tree.holds {
            let field = |at: usize| view.value_fields().get(at).cloned();
            let kept = |reduce: &Reduce| KeptReduction {
                reduce: reduce.name().to_owned(),
                field: field(reduce.value()),
            };
            return Ok(view.reductions().iter().map(kept).collect());
        }
        Ok(match Sums::from_spec(&spec) {
            Some(sums) => {
                let sum =
                    |field: &String| KeptReduction { reduce: "sum".to_owned(), field: Some(field.clone()) };
                sums.fields().iter().map(sum).collect()
            }
            None => vec![KeptReduction { reduce: named(&spec), field: None }],
        })
    }

    fn tree_id(&self, tree: &NamedTree) -> Result<TreeId> {
        self.source().tree(&tree.tree)?.ok_or_else(|| {
            Error::new(Code::NoSuchTree, format!("there is no tree {}", tree.name))
                .with_hint("Snapshot::trees has the names of those there are")
        })
    }
}

fn named(spec: &ReducerSpec) -> String {
    format!("{} version {}", spec.name, spec.version)
}
