//! Child processes, as seen by the parent: one per measurement, so that memory, counters and `kill -9`
//! concern one engine only.

use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cgroup::Group;
use crate::engine::Result;
use crate::job::{Job, Outcome};
use crate::output;

/// The result of one child, and its duration.
pub(crate) struct Ran {
    /// The outcome, or why there is none.
    pub outcome: Result<Outcome>,
    /// From start to end.
    pub took: Duration,
}

fn command(job: &Job) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").arg(serde_json::to_string(job)?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

/// Runs one measurement.
pub(crate) fn run(job: &Job) -> Ran {
    let begun = Instant::now();
    let outcome = command(job).and_then(|mut command| outcome_of(&mut command));
    Ran { outcome, took: begun.elapsed() }
}

/// Runs one measurement in a memory cgroup.
///
/// # Errors
/// Errors of the operating system, or how the child ended.
pub(crate) fn run_inside(group: &Group, job: &Job) -> Result<Outcome> {
    // The shell joins the group and becomes the child, so the child's memory counts from its first byte on.
    let door = group.door();
    run_under("sh", &["-c", r#"echo $$ >"$0" && exec "$@""#, &door.to_string_lossy()], job)
}

/// Runs one measurement under another program, which gets the child's command as its last arguments.
pub(crate) fn run_under(program: &str, arguments: &[&str], job: &Job) -> Result<Outcome> {
    let mut under = Command::new(program);
    under.args(arguments).arg(std::env::current_exe()?).arg("child").arg(serde_json::to_string(job)?);
    under.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    outcome_of(&mut under)
}

fn outcome_of(command: &mut Command) -> Result<Outcome> {
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    output::read_outcome(&printed).ok_or_else(|| format!("the child ended with {}", output.status).into())
}

/// Runs a load until `job.rows` rows are acknowledged, kills it, and returns how many were.
///
/// # Errors
/// Errors of the system, or that the child ended before the kill.
pub(crate) fn run_and_kill(job: &Job) -> Result<u64> {
    let mut child = command(job)?.spawn()?;
    let mut printed = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
    let mut acknowledged = 0;
    let mut killed = false;
    while let Some(rows) = output::read_acknowledged(&mut printed) {
        acknowledged = rows;
        if rows >= job.rows && !killed {
            child.kill()?;
            killed = true;
        }
    }
    child.wait()?;
    if killed { Ok(acknowledged) } else { Err("the load ended before it was killed".into()) }
}

/// Does `work` in an empty directory, and removes it: also the files of a killed child, since the next one
/// needs the room.
///
/// # Errors
/// Those of `work`, and of the operating system.
pub(crate) fn in_fresh(dir: &Path, work: impl FnOnce(&Path) -> Result<Outcome>) -> Result<Outcome> {
    let outcome = fresh(dir).and_then(|()| work(dir));
    let removed = remove(dir);
    outcome.and_then(|outcome| removed.map(|()| outcome))
}

/// Makes an empty directory, whatever was there.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn fresh(dir: &Path) -> Result<()> {
    remove(dir)?;
    Ok(fs::create_dir_all(dir)?)
}

/// Removes a directory, if it exists.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
