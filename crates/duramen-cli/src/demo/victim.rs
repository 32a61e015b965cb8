//! The demo's kill: a child is killed during its writes, and the database opened again.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use duramen::{Code, Db, Document, LocalReads, Snapshot, Span, Value};

use super::{say, writer};
use crate::failure::{FAILED, Failure, Result};
use crate::numbers::{grouped, time};
use crate::output::{Output, align_right, new_table};

/// The child's lifetime after its first acknowledgement, and its maximum number of acknowledgements.
const LIFE: Duration = Duration::from_millis(1500);
const ACKS_MAX: u64 = 2000;

/// The acknowledged rows and those found.
pub(super) struct Recovered {
    /// Rows that the child acknowledged as on disk.
    pub(super) acknowledged: u64,
    /// Acknowledged rows that were found intact.
    pub(super) found: u64,
    /// Rows that were found but not yet acknowledged at the kill.
    pub(super) in_flight: u64,
}

/// Starts the child, kills it, and reads back the acknowledged rows.
pub(super) fn kill_and_recover(dir: &Path, out: Output) -> Result<Recovered> {
    say(
        out,
        "4. Is all there that was promised, after kill -9? A child writes one row a transaction and acknowledges each ...",
    )?;
    let (acknowledged, lived) = run_until_killed(dir)?;
    say(
        out,
        &format!(
            "   killed with SIGKILL {} after its first acknowledgement, in the middle of a write",
            time(lived)
        ),
    )?;
    let begun = Instant::now();
    let db = Db::options().create(false).open(dir)?;
    let opened = begun.elapsed();
    let snapshot = db.snapshot()?;
    let recovered = compare(&snapshot, acknowledged)?;
    let records = db.stats().recovery.record_count;
    let mut table = new_table(&["", "rows"]);
    table.add_row(["acknowledged by the child before the kill".to_owned(), grouped(recovered.acknowledged)]);
    table.add_row(["of those, found whole after reopening".to_owned(), grouped(recovered.found)]);
    table.add_row(["missing".to_owned(), grouped(recovered.acknowledged - recovered.found)]);
    table.add_row(["written, acknowledgement still under way".to_owned(), grouped(recovered.in_flight)]);
    align_right(&mut table, [1]);
    say(
        out,
        &format!(
            "{table}\n   reopened in {}, replaying {} records of the log",
            time(opened),
            grouped(records)
        ),
    )?;
    db.close()?;
    Ok(recovered)
}

/// The number of rows acknowledged, and how long the child lived after the first.
fn run_until_killed(dir: &Path) -> Result<(u64, Duration)> {
    let failed = |error: std::io::Error| Failure::io("start another", Path::new("duramen"), &error);
    let binary = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(binary)
        .args(["demo-writer", "--quiet"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let outcome = listen(&mut child);
    // Whatever happened, the child must not survive.
    let _ = child.kill();
    let _ = child.wait();
    let mut acks = outcome?;
    // Output that was in the pipe before the kill counts as acknowledged.
    let rest: Vec<String> = acks.lines.by_ref().map_while(std::result::Result::ok).collect();
    for line in rest {
        acks.count = acked(&line, acks.count).unwrap_or(acks.count);
    }
    if acks.count == 0 {
        let mut said = String::new();
        let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        return Err(Failure::said(
            FAILED,
            Code::System,
            format!("the child wrote nothing: {}", said.trim()),
            "run it again",
        ));
    }
    Ok((acks.count, acks.lived))
}

struct Acks {
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    count: u64,
    lived: Duration,
}

/// Reads acknowledgements for a while, then kills the child during its writes.
fn listen(child: &mut Child) -> Result<Acks> {
    let stdout =
        child.stdout.take().ok_or_else(|| Failure::data("the child has no output", "run it again"))?;
    let mut lines = BufReader::new(stdout).lines();
    let (mut count, mut first) = (0, None);
    while let Some(Ok(line)) = lines.next() {
        count = acked(&line, count).ok_or_else(|| {
            Failure::said(
                FAILED,
                Code::System,
                format!("the child printed {line:?} after {count} rows"),
                "this is a bug: please report it",
            )
        })?;
        let first = first.get_or_insert_with(Instant::now);
        if count >= ACKS_MAX || first.elapsed() >= LIFE {
            break;
        }
    }
    child.kill().map_err(|error| Failure::io("kill the child of", Path::new("this process"), &error))?;
    Ok(Acks { lines, count, lived: first.map_or(Duration::ZERO, |first| first.elapsed()) })
}

/// The count after a line that acknowledges the next row.
fn acked(line: &str, count: u64) -> Option<u64> {
    let id: u64 = line.strip_prefix("ack ")?.split(' ').next()?.parse().ok()?;
    (id == count + 1).then_some(id)
}

/// Looks for every acknowledged row, each field of it.
fn compare(snapshot: &Snapshot, acknowledged: u64) -> Result<Recovered> {
    let (mut found, mut in_flight) = (0, 0);
    for document in snapshot.documents(writer::COLLECTION).scan(Span::all())? {
        let document = document?;
        let Some(Value::Int(id)) = document.get("id") else { continue };
        let Ok(id) = u64::try_from(*id) else { continue };
        if !is_whole(&document, id) {
            continue;
        }
        if id <= acknowledged { found += 1 } else { in_flight += 1 }
    }
    Ok(Recovered { acknowledged, found, in_flight })
}

fn is_whole(document: &Document, id: u64) -> bool {
    document.get("amount") == Some(&Value::from(id % 100))
        && document.get("words") == Some(&Value::from(writer::words(id)))
}
