//! The model that a history is run again on: trees as sorted maps, one transaction at a time.
//!
//! Owns the answer that each step must have had. Knows nothing of the engine but its types.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen_engine::{Direction, KeyRange, TreeId};

use super::record::{Entry, Step};
use crate::contents::number;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// All trees.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    names: BTreeMap<Arc<str>, TreeId>,
    trees: BTreeMap<TreeId, Arc<Rows>>,
}

impl Model {
    /// Repeats a step and compares the answer.
    ///
    /// # Errors
    /// The recorded answer and the right one.
    pub(super) fn replay(&mut self, step: &Step) -> Result<(), String> {
        let right = match step {
            Step::Put(tree, key, value) => {
                self.rows_mut(*tree)?.insert(key.clone(), value.clone());
                return Ok(());
            }
            Step::Delete(tree, key) => {
                self.rows_mut(*tree)?.remove(key);
                return Ok(());
            }
            Step::Create(name, id) => return self.create(name, *id),
            Step::Drop(name) => {
                let id =
                    self.names.remove(name).ok_or_else(|| format!("dropped {name}, which is not there"))?;
                self.trees.remove(&id);
                return Ok(());
            }
            Step::Tree(name, _) => Step::Tree(Arc::clone(name), self.names.get(name).copied()),
            Step::Trees(_) => {
                Step::Trees(self.names.iter().map(|(name, id)| (name.to_string(), *id)).collect())
            }
            Step::Get(tree, key, _) => Step::Get(*tree, key.clone(), self.rows(*tree)?.get(key).cloned()),
            Step::Rows(tree, range, to, count, _) => {
                let found = self.range(*tree, range)?;
                let rows: Vec<Entry> = match to {
                    Direction::Forward => found.into_iter().take(*count).collect(),
                    Direction::Reverse => found.into_iter().rev().take(*count).collect(),
                };
                Step::Rows(*tree, range.clone(), *to, *count, rows)
            }
            Step::Count(tree, range, _) => {
                Step::Count(*tree, range.clone(), self.range(*tree, range)?.len() as u64)
            }
            Step::Rank(tree, key, _) => {
                let before = self.rows(*tree)?.range::<Vec<u8>, _>(..key).count() as u64;
                Step::Rank(*tree, key.clone(), before)
            }
            Step::Nth(tree, index, _) => {
                let nth = usize::try_from(*index).expect("small");
                let entry = self.rows(*tree)?.iter().nth(nth).map(|(k, v)| (k.clone(), v.clone()));
                Step::Nth(*tree, *index, entry)
            }
            Step::Sum(tree, range, _) => {
                let values = self.range(*tree, range)?;
                let sum = values.iter().map(|(_, value)| i128::from(number(value))).reduce(|a, b| a + b);
                Step::Sum(*tree, range.clone(), sum)
            }
        };
        if right == *step { Ok(()) } else { Err(format!("answered {step:?}, want {right:?}")) }
    }

    fn create(&mut self, name: &Arc<str>, id: TreeId) -> Result<(), String> {
        if self.names.contains_key(name) || self.trees.contains_key(&id) {
            return Err(format!("created {name} with id {id}, which is there"));
        }
        self.names.insert(Arc::clone(name), id);
        self.trees.insert(id, Arc::default());
        Ok(())
    }

    fn rows(&self, tree: TreeId) -> Result<&Rows, String> {
        self.trees.get(&tree).map(|rows| &**rows).ok_or_else(|| format!("there is no tree {tree}"))
    }

    fn rows_mut(&mut self, tree: TreeId) -> Result<&mut Rows, String> {
        self.trees.get_mut(&tree).map(Arc::make_mut).ok_or_else(|| format!("there is no tree {tree}"))
    }

    fn range(&self, tree: TreeId, range: &KeyRange) -> Result<Vec<Entry>, String> {
        let rows = self.rows(tree)?;
        Ok(rows.iter().filter(|(key, _)| range.contains(key)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}
