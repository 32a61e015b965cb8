//! Key-values of a repaired database: those that decode, and an expiry index made anew from them.

use super::batch::Batch;
use super::report::StoreKind;
use super::{ALL, Mending};
use crate::access::reads::sealed::Readable;
use crate::db::verify::problem_of_key_value;
use crate::kv::{expiries_tree, index_key, rows_tree};
use crate::store::Direction;
use crate::store::error::Result;

impl Mending<'_> {
    /// Checks every value of a namespace.
    pub(crate) fn key_values(&mut self, namespace: &str) -> Result<()> {
        let state = self.db.snapshot()?;
        let Some(tree) = state.source().tree(&rows_tree(namespace))? else { return Ok(()) };
        let mut expiries = None;
        let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
        let mut batch = Batch::new(self.db);
        while let Some((key, stored)) = rows.next()? {
            match problem_of_key_value(key, stored) {
                Err(problem) => {
                    self.leave_out(StoreKind::KeyValues, namespace, key, problem);
                    batch.delete(tree, key)?;
                }
                Ok(row) => {
                    if let Some(at) = row.expires {
                        let expiries =
                            match expiries {
                                Some(tree) => tree,
                                None => *expiries.insert(self.db.transact(|tx| {
                                    tx.shared().create_tree(&expiries_tree(namespace), None)
                                })?),
                            };
                        batch.put(expiries, index_key(at, key), Vec::new())?;
                    }
                }
            }
            self.pass()?;
        }
        batch.commit()
    }
}
