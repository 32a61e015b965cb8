//! `duramen repair`: repairs a corrupt database into a new one, and reports what was lost.

mod json;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duramen::tuple::decode;
use duramen::{
    Error, Lost, LostCommits, RepairProgress, RepairReport, RepairStage, Repaired, StoreKind, UncertainRows,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::RepairArgs;
use crate::database;
use crate::describe::TORN;
use crate::failure::{CORRUPT, FAILED, Failure, Result};
use crate::keys;
use crate::numbers::{bytes, counted, grouped, time};
use crate::output::{Output, align_right, new_table, printable, shell_word};
use crate::signals::Signals;

/// A command that takes longer shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The message of the error by which a signal ends a run.
const STOPPED: &str = "stopped by a signal";

/// Runs the command.
pub(crate) fn run(args: &RepairArgs, out: Output) -> Result<()> {
    let db = &args.database.db;
    database::check_path(db)?;
    refuse_inside(args)?;
    let signals = Signals::watch()?;
    let begun = Instant::now();
    let mut bar = Bar::default();
    let options = database::options(&args.database).repair_without_log(args.without_log);
    let mut stopped = false;
    let repaired = options.repair(db, &args.new, |progress| {
        if out.shows_progress() && begun.elapsed() > PATIENCE {
            bar.show(progress);
        }
        match signals.received() {
            Some(_) => {
                stopped = true;
                Err(Error::invalid(STOPPED))
            }
            None => Ok(()),
        }
    });
    bar.clear();
    let report = match (repaired, signals.received()) {
        // Progress is reported only once the new directory has contents, so these are of this run.
        (Err(error), Some(number)) if stopped && error.message() == STOPPED => {
            let new = args.new.display();
            out.note(&format!(
                "stopped by signal {number}: {new} is unfinished and cannot be opened; remove it"
            ));
            return Err(Failure::signal(number));
        }
        (repaired, _) => repaired.map_err(|error| failed(error).when_full_copy(&args.new))?,
    };
    if out.is_json() {
        out.object("recover", json::as_json(&report, args, begun.elapsed()))?;
    } else {
        show(&report, args, begun.elapsed(), out)?;
    }
    if report.is_whole() {
        return Ok(());
    }
    out.note(&format!(
        "{} is sound, and rows {} missing in it: what was lost is named above; keep {} until you have what you need",
        args.new.display(),
        if report.lost_rows() > 0 { "are" } else { "may be" },
        db.display()
    ));
    Err(Failure::Exit(CORRUPT))
}

/// Refuses a new database inside of the corrupt one or its log, by any path: the corrupt one must not be
/// written to.
fn refuse_inside(args: &RepairArgs) -> Result<()> {
    let Some(new) = resolved(&args.new) else { return Ok(()) };
    let db = &args.database.db;
    let log = args.database.wal.clone().unwrap_or_else(|| db.join("wal"));
    for (place, what) in
        [(db, "the database to be repaired"), (&log, "the log of the database to be repaired")]
    {
        if place.canonicalize().is_ok_and(|place| new.starts_with(place)) {
            return Err(Failure::usage(
                format!("{} is inside {what}", args.new.display()),
                "name a directory beside it, or on another disk",
            ));
        }
    }
    Ok(())
}

/// The real path of a directory that exists or could be created; `None` without its parent directory.
fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(there) = path.canonicalize() {
        return Some(there);
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(above.canonicalize().ok()?.join(path.file_name()?))
}

/// A failed repair. Exit code 3 is reserved for a sound new database with losses.
fn failed(error: Error) -> Failure {
    let mut failure = Failure::from(error);
    if let Failure::Said(said) = &mut failure
        && said.exit == CORRUPT
    {
        said.exit = FAILED;
    }
    failure
}

/// A bar for each stage.
#[derive(Default)]
struct Bar {
    bar: Option<(RepairStage, ProgressBar)>,
}

impl Bar {
    fn show(&mut self, progress: &RepairProgress) {
        if self.bar.as_ref().is_none_or(|(stage, _)| *stage != progress.stage) {
            self.clear();
            let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
            let bar = ProgressBar::new(progress.of).with_message(match progress.stage {
                RepairStage::Reading => "reading",
                RepairStage::Mending => "looking at rows",
                RepairStage::Views => "building views",
                RepairStage::Checking => "checking",
            });
            if let Ok(style) = style {
                bar.set_style(style);
            }
            self.bar = Some((progress.stage, bar));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_length(progress.of.max(progress.done));
            bar.set_position(progress.done);
        }
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn show(report: &RepairReport, args: &RepairArgs, took: Duration, out: Output) -> Result<()> {
    let mut table = new_table(&["what", "name", "rows", "lost", "stretches"]);
    for one in &report.repaired {
        table.add_row([
            one.store.name().to_owned(),
            if one.name.is_empty() { "(contents)".to_owned() } else { printable(&one.name) },
            // Its rows are counted with the stores that they describe.
            if one.store == StoreKind::Own { String::new() } else { grouped(one.rows) },
            about(one),
            grouped(one.ranges),
        ]);
    }
    align_right(&mut table, [2, 3, 4]);
    if !report.repaired.is_empty() {
        out.table(&table)?;
    }
    for lost in &report.lost {
        out.line(&printable(&stretch(lost)))?;
    }
    for one in &report.left_out {
        let key = key_text(one.store, &one.key);
        out.line(&printable(&format!("{} {}: {key} was left out: {}", one.store.name(), one.name, one.why)))?;
    }
    for line in remarks(report, &args.new) {
        out.line(&printable(&line))?;
    }
    out.line(&summary(report, args, took))
}

/// The last line: the state, where it is, and the size of the loss.
fn summary(report: &RepairReport, args: &RepairArgs, took: Duration) -> String {
    let more = if report.may_have_lost_more() { ", and how many more is unknown" } else { "" };
    let lost = match report.lost_rows() {
        _ if report.is_whole() && report.log_torn => "nothing is known to be lost".to_owned(),
        _ if report.is_whole() => "nothing is lost".to_owned(),
        0 if report.may_have_lost_more() => "how many rows are lost is unknown".to_owned(),
        0 => "what is lost is named above".to_owned(),
        rows => format!("about {} lost{more}", counted(rows, "row")),
    };
    let state = match (report.superblocks, report.log_commits) {
        (0, _) => "what was found".to_owned(),
        (_, 0) => format!("seq {}", report.seq),
        (_, commits) => format!(
            "seq {} (checkpoint {}, and {} of the log)",
            report.seq,
            report.checkpoint,
            counted(commits, "commit")
        ),
    };
    format!(
        "repaired {state} to {} in {}: {}; {lost}; read back and checked",
        args.new.display(),
        time(took),
        counted(report.rows(), "row"),
    )
}

/// How many rows were lost, as far as that is known.
fn about(one: &Repaired) -> String {
    match (one.ranges, one.lost, &one.lost_unknown) {
        (_, 0, Some(_)) => "unknown".to_owned(),
        (_, lost, Some(_)) => format!("{} or more", grouped(lost)),
        (0, ..) => "0".to_owned(),
        (_, lost, None) => format!("about {}", grouped(lost)),
    }
}

/// An unreadable range, by the keys around it.
fn stretch(lost: &Lost) -> String {
    let what = format!("{} {}", lost.store.name(), lost.name);
    let rows = lost.rows.map_or_else(|| "rows".to_owned(), |rows| format!("about {}", counted(rows, "row")));
    let after = lost.after.as_ref().map(|key| key_text(lost.store, key));
    let before = lost.before.as_ref().map(|key| key_text(lost.store, key));
    if lost.after.is_some() && lost.after == lost.before {
        return format!("{what}: {} is lost: {}", after.unwrap_or_default(), lost.why);
    }
    let (after, before) = (after.as_deref().unwrap_or("the start"), before.as_deref().unwrap_or("the end"));
    format!("{what}: {rows} between {after} and {before} cannot be read: {}", lost.why)
}

/// What is missing as a whole, and why the size of other losses is unknown: a line for each reason.
fn unknown(report: &RepairReport) -> Vec<String> {
    let missing = report.missing.iter().map(|one| {
        format!(
            "{} {}: nothing of it was found, and how much is lost is unknown: {}",
            one.store.name(),
            one.name,
            one.why
        )
    });
    let mut lines: Vec<String> = missing.collect();
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in &report.repaired {
        // The ranges above tell it of the database's own lists.
        if let Some(why) = one.lost_unknown.as_deref().filter(|_| one.store != StoreKind::Own) {
            reasons.entry(why).or_default().push(if one.name.is_empty() { "(contents)" } else { &one.name });
        }
    }
    let of = |(why, names): (&str, Vec<&str>)| {
        format!("unknown how many rows are lost of {}: {why}", names.join(", "))
    };
    lines.extend(reasons.into_iter().map(of));
    lines
}

/// The commits that are lost with the log.
fn lost_commits(lost: &LostCommits) -> String {
    let which = match lost.until > lost.after {
        true => format!("the commits after {} are lost, up to {} at least", lost.after, lost.until),
        false => format!("every commit after {} is lost, if there was one", lost.after),
    };
    let left = match lost.bytes {
        0 => String::new(),
        count => format!(" ({} of whole frames after the corruption were not applied)", bytes(count)),
    };
    format!("{which}{left}: {}", lost.why)
}

/// The commands that show trees of bytes, if rows went to some.
fn of_bytes(report: &RepairReport, new: &Path) -> Option<String> {
    let uncertain =
        report.uncertain.iter().filter(|rows| rows.store == StoreKind::Bytes).map(|rows| &rows.name);
    let first = shell_word(report.renamed.iter().chain(uncertain).next()?);
    let new = new.display();
    Some(format!(
        "a tree of bytes is shown by `duramen scan {new} -c {first}`, and written for an import by `duramen export {new} -c {first} --format ndjson`"
    ))
}

/// The command that writes uncertain rows for an import, if they went to collections.
fn of_collections(report: &RepairReport, new: &Path) -> Option<String> {
    let is_one = |rows: &&UncertainRows| rows.store == StoreKind::Collection;
    let name = shell_word(&report.uncertain.iter().find(is_one)?.name);
    Some(format!(
        "an uncertain collection has no views, sums or references: `duramen export {} -c {name} --format ndjson` writes it, and an import declares them again",
        new.display()
    ))
}

/// Further remarks.
fn remarks(report: &RepairReport, new: &Path) -> Vec<String> {
    let mut lines = unknown(report);
    // Without a superblock no commit is counted: its rows may be among those that were found.
    lines.extend(report.lost_commits.as_ref().filter(|_| report.superblocks > 0).map(lost_commits));
    match report.superblocks {
        0 => lines.push(
            "neither superblock can be read: which pages are current is unknown, and the log was not applied; the rows below were found in pages"
                .to_owned(),
        ),
        1 => lines.push("one of the two superblocks cannot be read; the other was used".to_owned()),
        _ => {}
    }
    if report.log_torn {
        lines.push(TORN.to_owned());
    }
    if !report.is_newest && report.superblocks > 0 {
        let seq = report.checkpoint;
        lines.push(format!(
            "the newest checkpoint lacks names of trees: the one of commit {seq} before it was used"
        ));
    }
    if report.left_out_count > report.left_out.len() as u64 {
        lines.push(format!("{} were left out in all", counted(report.left_out_count, "row")));
    }
    if report.unnamed_blobs > 0 {
        lines.push(format!("{} whose names are lost were left out", counted(report.unnamed_blobs, "blob")));
    }
    lines.extend(report.renamed.iter().map(|tree| {
        format!("what lost its name, or the names of its fields, is in the tree of bytes {tree}")
    }));
    if report.found_rows > 0 {
        lines.push(format!(
            "{} found in pages whose pointers were lost: they are among the rows above",
            counted(report.found_rows, "row")
        ));
    }
    lines.extend(report.uncertain.iter().map(uncertain));
    lines.extend(of_collections(report, new));
    lines.extend(of_bytes(report, new));
    if report.views_built > 0 {
        lines.push(format!("{} built anew", counted(report.views_built, "view")));
    }
    let waiting = report.views_waiting.iter();
    lines.extend(
        waiting.map(|view| format!("the view {}.{} is not built: {}", view.collection, view.view, view.why)),
    );
    if report.ids_may_repeat {
        let why = "the record of given ids is lost in part";
        lines.push(format!("ids that were assigned may be given again: {why}"));
    }
    if !report.consumers.is_empty() {
        let names = report.consumers.join(", ");
        lines.push(format!("consumers of the change feed get a gap (E0804): {names}"));
    }
    lines
}

/// Where rows are that may be out of date.
fn uncertain(rows: &UncertainRows) -> String {
    let unreadable = match rows.unreadable {
        0 => String::new(),
        count => format!("; the values of {count} more cannot be read"),
    };
    format!(
        "{} of {} may be out of date or deleted: {} not mixed with the others, but in {} {}{unreadable}",
        counted(rows.rows, "row"),
        rows.of,
        if rows.rows == 1 { "it is" } else { "they are" },
        if rows.store == StoreKind::Bytes { "the tree of bytes" } else { rows.store.name() },
        rows.name
    )
}

/// A key in readable form: by its elements, or for a tree of bytes as text.
fn key_text(store: StoreKind, key: &[u8]) -> String {
    match elements_of(store, key) {
        Some(text) => text,
        None => key.escape_ascii().to_string(),
    }
}

fn elements_of(store: StoreKind, key: &[u8]) -> Option<String> {
    if store == StoreKind::Bytes {
        return None;
    }
    decode(key).ok().map(|elements| keys::listed(&elements))
}
