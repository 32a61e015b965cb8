//! The demo's child: writes one document per transaction, acknowledges it once it is on disk, until it is
//! killed.

use std::path::Path;

use duramen::{Db, Schema, doc};

use crate::failure::Result;
use crate::output::Output;

/// The collection it writes.
pub(super) const COLLECTION: &str = "ledger";

/// More than a child that is killed after a second can write. An orphaned child ends here.
const ROWS_MAX: u64 = 1_000_000;

/// The contents of a row, derived from its id, so that a whole row can be recognised.
pub(super) fn words(id: u64) -> String {
    format!("row {id} is worth {}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Writes and acknowledges. Ends early only if the output is closed.
pub(crate) fn run(path: &Path, out: Output) -> Result<()> {
    let db = Db::options().create(false).open(path)?;
    let ledger = db.ensure(&Schema::new(COLLECTION).key(["id"]).sum(["amount"]))?;
    for id in 1..=ROWS_MAX {
        let receipt = ledger.insert(doc! { "id": id, "amount": id % 100, "words": words(id) })?;
        out.line(&format!("ack {id} {}", receipt.seq()))?;
    }
    Ok(())
}
