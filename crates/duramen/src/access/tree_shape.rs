//! The shape of one tree on disk: for tools.
//!
//! Owns the names of trees as users see them: a collection's own name, a view's name after its collection's.
//! Other trees keep the engine's name.

use std::fmt;

use crate::store::{ReducerSpec, TreeShape};

use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::catalog::entries::{is_users, rows_tree};
use crate::store::TreeId;
use crate::store::error::{Code, Error, Result};
use crate::view::kinds::Reduce;
use crate::view::spec::ViewSpec;
use crate::view::sums::Sums;

/// A tree, by the name that users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTree {
    /// `orders` for a collection, `orders.by_city` for a view, else the tree's own name.
    pub name: String,
    /// The tree's own name.
    pub tree: String,
    /// Its contents.
    pub holds: Holds,
}

/// The contents of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// Documents of a collection.
    Documents,
    /// Rows of a view.
    Rows(Box<ViewSpec>),
    /// A tree of bytes of the program.
    Bytes,
    /// The database's own data, including key-values and blobs.
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

/// A reduction that a tree keeps over ranges of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReduction {
    /// The kind of reduction.
    pub reduce: String,
    /// Its field, if it has one.
    pub field: Option<String>,
}

impl Snapshot {
    /// Every tree, in this order: collections, their views, all others.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
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

    /// The shape of a tree of [`Snapshot::trees`].
    ///
    /// Reads every node and caches none. Calls `told` after each leaf with the figures so far; an error from
    /// it stops the walk.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) if it is not there; errors of `told`.
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

    /// The reductions that a tree keeps over ranges of its keys, besides the count.
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
