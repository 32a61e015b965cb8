//! What becomes of a node whose directory is not what it was: each row of the table of identities, while
//! clients use the cluster or rest. A node is the same if it can have forgotten nothing; otherwise it ends,
//! and an empty directory joins in its place.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use duramen_disk::memory::Random;
use tokio::runtime::Handle;

use crate::clients::Load;
use crate::cluster::{Cluster, LOOK};
use crate::failure::{Result, failed};
use crate::machine::{self, Kit, flip_bit};
use crate::{command, frames, judgement, kit};

const MACHINES: usize = 3;
/// A node that takes no part has ended, or that of another directory is a member again, within this time.
const KNOWN_WITHIN: Duration = Duration::from_secs(40);
/// A copy is found to be one once it has answered a few times.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// What is under way when clients are told to rest has ended after this time.
const RESTS: Duration = Duration::from_millis(500);

/// Lets the directory of a node be older, another one or damaged, in all ways
#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// The program under test
    #[arg(long)]
    duramen: PathBuf,
    /// A directory for the databases and logs, which must be empty
    #[arg(long)]
    work: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these rows; can be repeated
    #[arg(long, value_name = "ROW", value_parser = clap::builder::PossibleValuesParser::new(Row::ALL.map(Row::name)))]
    only: Vec<String>,
    /// So many of them, drawn from the seed
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
}

/// What has happened to a directory. A power cut is not among them: `scripts/power-cuts-cluster`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    CleanStop,
    Killed,
    OlderCopy,
    OpenedAsOften,
    VoteLost,
    VoteFlipped,
    RaftsLogLost,
    EnginesLogLost,
    FlippedAbove,
    FlippedBelow,
    DataFlipped,
}

/// What has to become of its node.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It is the same node.
    Same,
    /// It ends with one of these errors.
    Ends(&'static [&'static str]),
    /// It is the same node, or ends with one of these errors.
    Either(&'static [&'static str]),
}

impl Row {
    const ALL: [Row; 11] = [
        Row::CleanStop,
        Row::Killed,
        Row::OlderCopy,
        Row::OpenedAsOften,
        Row::VoteLost,
        Row::VoteFlipped,
        Row::RaftsLogLost,
        Row::EnginesLogLost,
        Row::FlippedAbove,
        Row::FlippedBelow,
        Row::DataFlipped,
    ];

    const fn name(self) -> &'static str {
        match self {
            Row::CleanStop => "clean stop",
            Row::Killed => "kill -9",
            Row::OlderCopy => "older copy",
            Row::OpenedAsOften => "copy opened as often",
            Row::VoteLost => "vote lost",
            Row::VoteFlipped => "one copy of the vote flipped",
            Row::RaftsLogLost => "Raft's log lost",
            Row::EnginesLogLost => "engine's log lost",
            Row::FlippedAbove => "Raft's log flipped above its watermark",
            Row::FlippedBelow => "Raft's log flipped below its watermark",
            Row::DataFlipped => "data flipped",
        }
    }

    fn fate(self) -> Fate {
        match self {
            Row::CleanStop | Row::Killed | Row::VoteFlipped => Fate::Same,
            Row::OlderCopy | Row::OpenedAsOften => Fate::Ends(&["E1205"]),
            Row::VoteLost | Row::RaftsLogLost | Row::EnginesLogLost => Fate::Ends(&["E0503"]),
            // What was synced and never marked may be taken for a torn tail. If the leader knows that this
            // node has acknowledged it, the node is retired.
            Row::FlippedAbove => Fate::Either(&["E0503", "E1205"]),
            Row::FlippedBelow => Fate::Ends(&["E0502"]),
            // A page that is not read does not tell.
            Row::DataFlipped => Fate::Either(&["E0501"]),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Runs all rows.
pub(crate) fn main(args: &IdentityArgs) -> ExitCode {
    command::in_room(&args.work, |handle| make(args, handle), |cluster| run(args, cluster))
}

fn make(args: &IdentityArgs, handle: &Handle) -> Result<Cluster> {
    let work = command::empty_directory(&args.work)?;
    kit::certificates(&work, (0..MACHINES).map(|number| machine::peers(number).ip().to_string()).collect())?;
    Cluster::new(&Arc::new(Kit::of(&args.duramen, work)?), MACHINES, handle, args.seed)
}

/// Returns what was wrong.
fn run(args: &IdentityArgs, mut cluster: Cluster) -> Result<Vec<String>> {
    cluster.begin()?;
    let (load, mut random) = (Load::new(MACHINES), Random::new(args.seed));
    let rows =
        Row::ALL.into_iter().filter(|row| args.only.is_empty() || args.only.contains(&row.name().to_owned()));
    let mut rows: Vec<Row> = rows.collect();
    if let Some(count) = args.rows {
        random.shuffle(&mut rows);
        rows.truncate(count);
    }
    let done = load.beside(args.seed, || {
        for is_idle in [false, true] {
            for row in &rows {
                let machine = random.below(MACHINES);
                let told = one_row(*row, machine, is_idle, (&mut cluster, &load, &mut random))
                    .map_err(|why| format!("{row}, machine {}, idle {is_idle}: {why}", machine + 1))?;
                println!(
                    "{row:40} {:10} machine {}: {told}",
                    if is_idle { "idle" } else { "under load" },
                    machine + 1
                );
            }
        }
        Ok(())
    });
    load.history.write(&args.work.join("history.jsonl"))?;
    let judged = done.and_then(|()| judgement::of(&load, &mut cluster));
    let mut wrong = load.wrong();
    wrong.extend(judged.unwrap_or_else(|why| vec![why]));
    Ok(wrong)
}

/// One row. Returns what has become of the node.
fn one_row(
    row: Row,
    machine: usize,
    is_idle: bool,
    (cluster, load, random): (&mut Cluster, &Load, &mut Random),
) -> Result<String> {
    cluster.wait_until_whole()?;
    load.until_writes(cluster)?;
    let before = cluster.node_of_machine(machine)?;
    load.may_find_damage.store(true, Ordering::Relaxed);
    if is_idle {
        load.rests.store(true, Ordering::Relaxed);
        std::thread::sleep(RESTS);
    }
    happen(row, machine, cluster, random)?;
    let ended = known(machine, cluster)?;
    let told = match (row.fate(), ended) {
        (Fate::Same | Fate::Either(_), None) => {
            let after = cluster.node_of_machine(machine)?;
            if after != before {
                return Err(format!("node {before} is node {after} now"));
            }
            format!("the same node, {before}")
        }
        (Fate::Ends(codes) | Fate::Either(codes), Some(code)) if codes.contains(&&*code) => {
            format!("ends with {code}, and an empty directory joins in its place")
        }
        (wanted, ended) => return Err(format!("{wanted:?} was to come, and not {ended:?}")),
    };
    // What is damaged may not show until it is read.
    if matches!(row.fate(), Fate::Ends(_)) || row == Row::DataFlipped || told.starts_with("ends") {
        cluster.machines[machine].lose_disk()?;
        cluster.replace(machine)?;
    }
    cluster.wait_until_whole()?;
    load.may_find_damage.store(false, Ordering::Relaxed);
    load.rests.store(false, Ordering::Relaxed);
    load.until_writes(cluster)?;
    Ok(told)
}

/// Stops the node, changes its directory, and starts it.
fn happen(row: Row, machine: usize, cluster: &mut Cluster, random: &mut Random) -> Result<()> {
    let directory = cluster.machines[machine].database();
    let copy = directory.with_extension("copy");
    match row {
        Row::CleanStop => stop(machine, cluster)?,
        Row::OlderCopy | Row::OpenedAsOften => {
            stop(machine, cluster)?;
            copy_all(&directory, &copy)?;
            // Opened as often as the copy will be, or more often.
            let openings = if row == Row::OpenedAsOften { 1 } else { 2 };
            for _ in 0..openings {
                cluster.machines[machine].kill()?;
                cluster.machines[machine].start(&[])?;
                if let Some(code) = known(machine, cluster)? {
                    return Err(format!("the node itself ends with {code}"));
                }
            }
            cluster.machines[machine].kill()?;
            put_back(&copy, &directory)?;
        }
        _ => {
            cluster.machines[machine].kill()?;
            damage(row, &directory, random)?;
        }
    }
    cluster.machines[machine].start(&[])
}

fn damage(row: Row, directory: &Path, random: &mut Random) -> Result<()> {
    let bit = u8::try_from(random.below(8)).expect("a bit");
    match row {
        Row::VoteLost => remove(&directory.join("raft/vote")),
        // The copies are at 0 and 65536.
        Row::VoteFlipped => {
            let at = [0, 65_536][random.below(2)] + random.below(512) as u64;
            flip_bit(&directory.join("raft/vote"), at, bit)
        }
        Row::RaftsLogLost => {
            frames::segments(&directory.join("raft"))?.iter().try_for_each(|path| remove(path))
        }
        Row::EnginesLogLost => {
            frames::segments(&directory.join("wal"))?.iter().try_for_each(|path| remove(path))
        }
        Row::FlippedAbove | Row::FlippedBelow => {
            let log = directory.join("raft");
            let frame =
                if row == Row::FlippedAbove { frames::unmarked(&log)? } else { frames::marked(&log)? };
            flip_bit(&frame.segment, frame.last_byte, bit)
        }
        Row::DataFlipped => {
            let path = directory.join("data");
            let bytes =
                fs::metadata(&path).map_err(|error| failed("look at", &path.display(), &error))?.len();
            flip_bit(&path, bytes / 8 + random.below(usize::try_from(bytes / 2).unwrap_or(1)) as u64, bit)
        }
        _ => Ok(()),
    }
}

fn stop(machine: usize, cluster: &mut Cluster) -> Result<()> {
    cluster.machines[machine].ask_to_stop()?;
    cluster.machines[machine].wait_until_stopped()
}

/// Waits until a node is a member that answers, or has ended. Returns the code of its error then.
pub(crate) fn known(machine: usize, cluster: &mut Cluster) -> Result<Option<String>> {
    let until = Instant::now() + KNOWN_WITHIN;
    let mut whole_since = None;
    loop {
        if let Some(status) = cluster.machines[machine].has_ended()? {
            let code = cluster.machines[machine].told_code(status);
            return code.map(Some).ok_or_else(|| format!("its node ends with {status}, and tells no code"));
        }
        match whole_since {
            None if cluster.is_member(machine) => whole_since = Some(Instant::now()),
            Some(since) if since.elapsed() > TOLD_WITHIN => return Ok(None),
            _ => {}
        }
        if Instant::now() > until {
            return Err(format!("its node neither ends nor is a member after {KNOWN_WITHIN:?}"));
        }
        std::thread::sleep(LOOK);
    }
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| failed("remove", &path.display(), &error))
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("--archive").arg(from).arg(to).status();
    match copied {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cp of {}: {status}", from.display())),
        Err(error) => Err(failed("start", &"cp", &error)),
    }
}

fn put_back(copy: &Path, directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed("remove", &directory.display(), &error));
        }
        _ => {}
    }
    fs::rename(copy, directory).map_err(|error| failed("rename", &copy.display(), &error))
}
