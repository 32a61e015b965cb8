//! Loads a Duramen database with acknowledgements, and checks what a power cut left of it: `CMD` and `--check` for `powercut`.
//!
//! Owns the promise that is checked (D1, D2): every acknowledged transaction is there with its exact bytes, no transaction
//! is there in part, nothing is there that was never written, and `check` finds nothing wrong. Then it writes on. What the
//! database itself calls damaged has another exit code than what it serves wrongly: only the second is silent.

#![allow(
    clippy::disallowed_methods,
    reason = "a program that is no part of the library: it has files and threads of its own"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to powercut and to a person")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::{Args, Parser, Subcommand, ValueEnum};
use duramen::{Code, Db, Direction, Durability, KeyRange, Reads};

const TREE: &str = "rows";
const BIG_BYTES: usize = 100_000;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Commits until the power goes, and prints `ack WRITER NUMBER` after each commit
    ///
    /// In `powercut run` with a second drive its log lies there by `sh -c 'exec powercut-duramen load --db db
    /// --wal "$POWERCUT_SECOND/log"'`.
    Load(LoadArgs),
    /// Opens what is left, looks for everything that was acknowledged, verifies all, and commits once more
    ///
    /// Exit codes: 0 all is there; 3 something is missing or wrong and the database did not say so; 4 the database says
    /// itself that it is damaged, or cannot be opened or read.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// The database, a directory
    #[arg(long)]
    db: PathBuf,
    /// Threads that commit
    #[arg(long, default_value_t = 1)]
    writers: u32,
    /// Transactions of each
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Every so many transactions one writes a big value
    #[arg(long, default_value_t = 7)]
    big_every: u64,
    /// Bytes of log after which a checkpoint is written
    #[arg(long, default_value_t = 300_000)]
    checkpoint_bytes: u64,
    /// Put the log there
    #[arg(long)]
    wal: Option<PathBuf>,
    /// What a commit waits for before it is acknowledged
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    level: Level,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The database, a directory
    #[arg(long)]
    db: PathBuf,
    /// The acknowledgements
    #[arg(long)]
    ack: PathBuf,
    /// Where the log lies
    #[arg(long)]
    wal: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Process,
    Disk,
}

type Outcome<T> = Result<T, Wrong>;

/// Something is missing or wrong, and the database did not say so.
const SILENT: u8 = 3;
/// The database said what is wrong.
const TOLD: u8 = 4;

/// What is not as it was promised.
#[derive(Debug)]
struct Wrong {
    exit: u8,
    sentence: String,
}

impl From<duramen::Error> for Wrong {
    fn from(error: duramen::Error) -> Wrong {
        Wrong { exit: TOLD, sentence: format!("{error} ({})", error.code()) }
    }
}

impl From<String> for Wrong {
    fn from(sentence: String) -> Wrong {
        Wrong { exit: SILENT, sentence }
    }
}

impl From<&str> for Wrong {
    fn from(sentence: &str) -> Wrong {
        Wrong::from(sentence.to_owned())
    }
}

impl Wrong {
    /// The same, and what was done when it came up.
    fn while_doing(self, doing: &str) -> Wrong {
        Wrong { sentence: format!("{doing}: {}", self.sentence), ..self }
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Load(args) => load(&args),
        Command::Check(args) => check(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            say(&wrong.sentence);
            ExitCode::from(wrong.exit)
        }
    }
}

fn open(
    db: &PathBuf,
    wal: Option<&PathBuf>,
    level: Durability,
    checkpoint_bytes: Option<u64>,
) -> Outcome<Db> {
    let options = Db::options().durability(level);
    let mut options = options.engine(|engine| engine.checkpoint_log_bytes = checkpoint_bytes);
    if let Some(wal) = wal {
        options = options.wal_dir(wal);
    }
    options.open(db).map_err(|error| Wrong::from(error).while_doing("cannot open"))
}

fn row_key(writer: u32, number: u64) -> Vec<u8> {
    [&writer.to_be_bytes()[..], &number.to_be_bytes()].concat()
}

/// How many transactions of a writer there are, kept by each of them.
fn count_key(writer: u32) -> Vec<u8> {
    [&writer.to_be_bytes()[..], b"count"].concat()
}

/// Bytes that only this row has: every seventh or so is a big value.
fn value(writer: u32, number: u64, big_every: u64) -> Vec<u8> {
    let is_big = big_every > 0 && number % big_every == big_every - 1;
    let length = if is_big { BIG_BYTES } else { 100 + usize::try_from(number * 37 % 1100).unwrap_or(0) };
    let mut state = (u64::from(writer) << 40 | number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(length + 16);
    bytes.extend_from_slice(&big_every.to_le_bytes());
    while bytes.len() < length {
        state = state.rotate_left(23).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (state >> 32);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Each writer goes on behind what it finds, so that a load can begin on what a cut left.
fn load(args: &LoadArgs) -> Outcome<()> {
    let level = match args.level {
        Level::Process => Durability::Process,
        Level::Disk => Durability::Disk,
    };
    let db = open(&args.db, args.wal.as_ref(), level, Some(args.checkpoint_bytes))?;
    let acknowledgements = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.writers)
            .map(|writer| {
                let (db, acknowledgements) = (&db, &acknowledgements);
                scope.spawn(move || -> Outcome<()> {
                    let first = found_count(db, writer)?;
                    for number in first..first + args.count {
                        commit(db, writer, number, args.big_every)?;
                        let line = format!("ack {writer} {number}\n");
                        let mut out = acknowledgements.lock().expect("no writer panics");
                        out.write_all(line.as_bytes())
                            .and_then(|()| out.flush())
                            .map_err(|e| e.to_string())?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no writer panics"))
    })
}

fn commit(db: &Db, writer: u32, number: u64, big_every: u64) -> Outcome<()> {
    let value = value(writer, number, big_every);
    db.transact(|tx| {
        tx.put_bytes(TREE, &row_key(writer, number), &value)?;
        tx.put_bytes(TREE, &count_key(writer), &(number + 1).to_be_bytes())
    })
    .map_err(|error| Wrong::from(error).while_doing(&format!("commit {number} of writer {writer}")))
}

fn found_count(db: &Db, writer: u32) -> Outcome<u64> {
    let bytes = db.bytes(TREE).get(count_key(writer))?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
}

fn check(args: &CheckArgs) -> Outcome<()> {
    let acknowledged = acknowledged(args)?;
    let db = open(&args.db, args.wal.as_ref(), Durability::Disk, None)?;
    let (found, counts) = read_all(&db)?;
    if counts != found {
        return Err(format!("a transaction is there in part: rows {found:?}, counts {counts:?}").into());
    }
    for (writer, last) in &acknowledged {
        let there = found.get(writer).copied().unwrap_or(0);
        if there <= *last {
            return Err(format!("writer {writer}: {} acknowledged, {there} there", last + 1).into());
        }
    }
    let report = db.check()?;
    if !report.is_clean() || !report.unreached.is_empty() {
        let sentence = format!("check: {:?}, lost extents {:?}", report.problems, report.unreached);
        return Err(Wrong { exit: TOLD, sentence });
    }
    write_on(&db)?;
    let total: u64 = acknowledged.values().map(|last| last + 1).sum();
    say(&format!("{total} acknowledged, {} there, all whole", found.values().sum::<u64>()));
    Ok(())
}

/// Nobody may be listening any more: the exit code is the verdict all the same.
fn say(sentence: &str) {
    let _ = writeln!(std::io::stdout(), "{sentence}");
}

/// A number for each writer.
type OfWriters = BTreeMap<u32, u64>;

/// The rows of each writer, all in order and with the bytes that were written, and what it counted itself.
fn read_all(db: &Db) -> Outcome<(OfWriters, OfWriters)> {
    let snapshot = db.snapshot()?;
    let (mut counts, mut found) = (OfWriters::new(), OfWriters::new());
    let mut rows = match snapshot.scan_bytes(TREE, KeyRange::all(), Direction::Forward) {
        Ok(rows) => rows,
        Err(error) if error.code() == Code::NoSuchTree => return Ok((found, counts)),
        Err(error) => return Err(error.into()),
    };
    while let Some((key, bytes)) = rows.next()? {
        let (writer, rest) = key.split_at_checked(4).ok_or("a key that nobody wrote")?;
        let writer = u32::from_be_bytes(writer.try_into().map_err(|_| "a key that nobody wrote")?);
        if rest == b"count" {
            let count = bytes.try_into().map_err(|_| "a count that nobody wrote")?;
            counts.insert(writer, u64::from_be_bytes(count));
            continue;
        }
        let number = u64::from_be_bytes(rest.try_into().map_err(|_| "a key that nobody wrote")?);
        let expected = found.entry(writer).or_default();
        if number != *expected {
            return Err(
                format!("writer {writer}: row {number} follows row {expected}: one is missing").into()
            );
        }
        *expected += 1;
        let big_every = bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if bytes != value(writer, number, big_every) {
            return Err(format!("writer {writer}: row {number} has other bytes than were written").into());
        }
    }
    Ok((found, counts))
}

/// The last number that each writer acknowledged. A line cut short acknowledged nothing.
fn acknowledged(args: &CheckArgs) -> Outcome<OfWriters> {
    let text = std::fs::read_to_string(&args.ack).map_err(|error| format!("acknowledgements: {error}"))?;
    let mut last = OfWriters::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        let ["ack", writer, number] = words[..] else { continue };
        if let (Ok(writer), Ok(number)) = (writer.parse::<u32>(), number.parse::<u64>()) {
            let newest = last.entry(writer).or_insert(number);
            *newest = number.max(*newest);
        }
    }
    Ok(last)
}

/// What was recovered can be written to, and closed.
fn write_on(db: &Db) -> Outcome<()> {
    commit(db, u32::MAX, 0, 1)?;
    db.close().map_err(|error| Wrong::from(error).while_doing("cannot close"))
}
