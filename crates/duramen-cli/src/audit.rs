//! `duramen audit`: whether the lines of the audit are those that were written.

use duramen::{Code, doc};
use duramen_server::audit;

use crate::args::{AuditArgs, AuditCommand, AuditVerifyArgs};
use crate::backend::Reading;
use crate::failure::{CORRUPT, Failure, Result};
use crate::numbers::grouped;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &AuditArgs, out: Output) -> Result<()> {
    match &args.what {
        AuditCommand::Verify(args) => verify(args, out),
    }
}

fn verify(args: &AuditVerifyArgs, out: Output) -> Result<()> {
    // The row first: the server writes lines meanwhile, and none before it.
    let mark = Reading::open(&args.database)?.audit_mark()?;
    let found = audit::verify(&args.database.db, mark)?;
    if let Some(fault) = found.fault {
        return Err(Failure::said(
            CORRUPT,
            Code::CorruptAudit,
            format!("the audit is not what was written: {fault}"),
            "somebody with the right to write the files has changed them, or a file was lost: compare them with a copy; from the line on nothing is proven",
        ));
    }
    let has_mark = mark.is_some();
    if out.is_json() {
        let fields = doc! {
            "first": found.first, "last": found.last, "after_mark": found.after_mark,
            "has_mark": has_mark, "torn": found.is_torn,
        };
        return out.object("audit_verify", fields);
    }
    if found.last == 0 {
        return out.line("there is no audit: no server has told of anything");
    }
    out.line(&format!(
        "lines {} to {} follow one another, and none was changed",
        grouped(found.first),
        grouped(found.last)
    ))?;
    match (has_mark, found.after_mark) {
        (false, _) => out.warning(
            "the database has no row of the audit: whether lines at the end are missing is not known",
            "it is written a minute after the first line, and when the server stops",
        ),
        (true, 0) => {}
        (true, count) => out.note(&format!(
            "the last {} were written after the row of the database, which is written once a minute",
            grouped(count)
        )),
    }
    if found.is_torn {
        out.note("behind them stands a part of a line: the power failed then, or it is being written");
    }
    Ok(())
}
