//! `duramen drop`: removes a collection and its catalogue entry in one small transaction.

use duramen::{Span, doc};

use crate::args::DropArgs;
use crate::backend::Writing;
use crate::failure::Result;
use crate::numbers::counted;
use crate::output::Output;
use crate::write::agree;

/// Drops a collection. Asks for confirmation on a terminal; elsewhere `--yes` is required.
pub(crate) fn run(args: &DropArgs, out: Output) -> Result<()> {
    let level = args.durability;
    let db = Writing::open(&args.target.database, level)?;
    let schema = db.schema(&args.target.collection)?;
    let name = schema.name();
    if !args.yes {
        let rows = db.count(name, Span::all())?;
        let whole = format!("{name} with its {}", counted(rows, "document"));
        agree(out, &format!("This drops {whole}."), &format!("drop would drop {whole}"))?;
    }
    let (rows, seq) = db.drop_collection(name, level)?;
    db.close()?;
    if out.is_json() {
        let fields = doc! { "collection": name, "rows": rows, "seq": seq, "durability": level.name() };
        return out.object("drop", fields);
    }
    out.line(&format!(
        "dropped {name} with its {}, seq {}, durability {}",
        counted(rows, "document"),
        seq,
        level.name()
    ))
}
