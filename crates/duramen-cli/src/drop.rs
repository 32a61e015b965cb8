//! `duramen drop`: removes a collection and its catalogue entry in one small transaction.

use duramen::{Reads, Span, doc};

use crate::args::DropArgs;
use crate::database;
use crate::failure::Result;
use crate::numbers::counted;
use crate::output::Output;
use crate::write::agree;

/// Drops a collection. Asks for confirmation on a terminal; elsewhere `--yes` is required.
pub(crate) fn run(args: &DropArgs, out: Output) -> Result<()> {
    let level = args.durability;
    let db = database::open_to_write(&args.target.database, level)?;
    let snapshot = db.snapshot()?;
    let schema = database::schema(&snapshot, &args.target.collection)?;
    let name = schema.name();
    if !args.yes {
        let rows = snapshot.documents(name).count(Span::all())?;
        let whole = format!("{name} with its {}", counted(rows, "document"));
        agree(out, &format!("This drops {whole}."), &format!("drop would drop {whole}"))?;
    }
    drop(snapshot);
    let (rows, receipt) = db.transact_with_receipt(|tx| {
        let rows = tx.documents(name).count(Span::all())?;
        tx.drop_collection(name)?;
        Ok(rows)
    })?;
    db.close()?;
    if out.is_json() {
        let fields =
            doc! { "collection": name, "rows": rows, "seq": receipt.seq().0, "durability": level.name() };
        return out.object("drop", fields);
    }
    out.line(&format!(
        "dropped {name} with its {}, seq {}, durability {}",
        counted(rows, "document"),
        receipt.seq(),
        level.name()
    ))
}
