//! The arguments of the command line: every command, argument and flag, with its `--help` text.
//!
//! Owns no behaviour. What is invalid regardless of any database is refused here, with exit code 2.

mod bench;
mod find;
mod observe;
mod view;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use duramen::Durability;
use duramen::schema::NAME_BYTES_MAX;

use crate::database::Session;

pub(crate) use bench::{BenchArgs, BenchCommand, BenchSyncArgs, PatternWord, SyncWord};
pub(crate) use find::FindArgs;
pub(crate) use observe::{TopArgs, WatchArgs};
pub(crate) use view::{ViewAddArgs, ViewArgs, ViewCommand, ViewListArgs, ViewNamedArgs};

/// Duramen: a durable, transactional database in a directory.
#[derive(Debug, Parser)]
#[command(
    name = "duramen",
    version,
    after_help = "Begin with `duramen demo`. `duramen DB` opens a shell on a database. Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 damage found, \
                  4 locked by another process, 5 the disk cannot keep the asked level, 128+n ended by signal n."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print results as JSON, one object per command (`scan` and `export`: one document a line), errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// No progress and no notes on standard error
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open a shell on a database: the other commands without its name, history and completion; `duramen DB`
    /// for short
    Shell(ShellArgs),
    /// Load rows from CSV or NDJSON into a collection
    Import(ImportArgs),
    /// Write the documents of a collection, or of a range, as CSV or NDJSON to standard output
    Export(ExportArgs),
    /// Show the document under a key
    Get(GetArgs),
    /// Store a document, in the place of any under its key
    Put(PutArgs),
    /// Delete the document under a key, or those of a range: a large one in several transactions
    Del(DelArgs),
    /// Drop a collection: its documents, its key, its columns; needs `--yes`
    Drop(DropArgs),
    /// Show the documents of a range, in order of their keys
    Scan(ScanArgs),
    /// Show the documents whose fields are as asked, by the key or a view that fits
    Find(FindArgs),
    /// Count the documents of a range, without reading them
    Count(RangeArgs),
    /// Count and sum the documents of a range, without reading them
    Reduce(ReduceArgs),
    /// Add, drop, rebuild and list views: a collection in another order, and what its documents come to
    View(ViewArgs),
    /// List the collections with their keys, columns and sums
    Collections(DatabaseArgs),
    /// Show what the database is made of: sizes, trees, file system, what opening found in the log
    Inspect(InspectArgs),
    /// Read and verify pages, reductions, extents, and the log behind the newest checkpoint. Changes nothing
    Check(CheckArgs),
    /// Copy one state of the database into a new directory, read it back and check it
    Backup(BackupArgs),
    /// Show what others commit, a line each, while they commit it; beside whoever has the database open
    Watch(WatchArgs),
    /// Show how a database is doing that another process has open: commits a second, checkpoints, space, what
    /// is written to
    Top(TopArgs),
    /// Make a new, sound database from everything that can still be read of a corrupt one. Only reads the
    /// corrupt one
    #[command(alias = "recover")]
    Repair(RepairArgs),
    /// Look at the disk under a directory: what it promises, what a durable commit costs there, what to do
    /// about it
    Doctor(DoctorArgs),
    /// Measure
    Bench(BenchArgs),
    /// Make a database of 27,004 flights, ask it questions, kill a writer and look for what it was promised
    Demo(DemoArgs),
    /// Show the page of an error code, or list all codes
    Explain(ExplainArgs),
    /// Print the manual page, or write one for each command
    Man(ManArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Writes with acknowledgements until it is killed; the demo's child
    #[command(hide = true)]
    DemoWriter(DatabaseArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// The database, a directory; `import` creates it if it is not there
    pub(crate) db: PathBuf,

    /// Where the log lies, if not in the database; to be named at every command
    #[arg(long, value_name = "DIR")]
    pub(crate) wal: Option<PathBuf>,

    /// The shell's, which has it open.
    #[arg(skip)]
    pub(crate) session: Option<Session>,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Run this line instead of asking for some; may be said again
    #[arg(long, short = 'e', value_name = "LINE")]
    pub(crate) execute: Vec<String>,

    /// Go on behind a line that fails, and end with the exit code of the first that did
    #[arg(long)]
    pub(crate) keep_going: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Show what takes space instead, and who holds it: data, log, changes kept for consumers
    #[arg(long, conflicts_with = "tree")]
    pub(crate) space: bool,

    /// Show one tree instead: a collection, a view as `collection.view`, or any other by its own name. Reads
    /// all of it
    #[arg(long, value_name = "TREE")]
    pub(crate) tree: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Look into every document too: its key, its columns' types, its rows in views; done anyway where damage
    /// is found
    #[arg(long)]
    pub(crate) deep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The copy, a directory that is not there yet; it is a database like any other
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The new database, a directory that is not there yet
    pub(crate) new: PathBuf,

    /// Go on if the log is lost: what is in no checkpoint is lost with it, and told
    #[arg(long)]
    pub(crate) without_log: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// What to read, gzip or not; `-` for standard input
    pub(crate) file: PathBuf,

    /// The collection to load into; created if it is not there
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: String,

    /// Form of the input; told from the file's name if left out
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,

    /// Columns that make the key, in order; needed for a new collection
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) key: Vec<String>,

    /// Integer columns whose exact sums are kept for every range
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) sum: Vec<String>,

    /// Type of a column that is not to be inferred: int, float, text, bool, time or any
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_delimiter = ',')]
    pub(crate) types: Vec<String>,

    /// Text that stands for null in CSV; the empty cell if left out
    #[arg(long, value_name = "TEXT")]
    pub(crate) null: Vec<String>,

    /// Rows in one transaction
    #[arg(long, value_name = "ROWS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,

    /// What a commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,

    /// Transactions that commit at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,

    /// Replace documents whose key is there already, instead of failing
    #[arg(long)]
    pub(crate) replace: bool,

    /// Print `ack BATCH ROWS_TOTAL SEQ` on standard output after each commit
    #[arg(long)]
    pub(crate) ack: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Form of the output
    #[arg(long, value_enum)]
    pub(crate) format: Format,

    /// Text that stands for null in CSV; what the import was told if left out
    #[arg(long, value_name = "TEXT")]
    pub(crate) null: Option<String>,
}

/// A database and a collection in it.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: String,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The whole key: one CSV record in the order of the key columns, or a JSON array
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) key: String,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The document, a JSON object; read from standard input if left out or `-`
    pub(crate) document: Option<String>,

    /// Key columns the document leaves out: one CSV record, or a JSON array
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) key: Option<String>,

    /// What the commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).multiple(true).args(["key", "prefix", "from", "to", "all"])))]
pub(crate) struct DelArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The whole key: one CSV record in the order of the key columns, or a JSON array
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true, conflicts_with_all = ["prefix", "from", "to", "all"])]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Delete every document, in one transaction; needs `--yes`
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    pub(crate) all: bool,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    /// Rows in one transaction: a range of more is deleted in several, and ^C ends it between two
    #[arg(long, value_name = "ROWS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,

    /// What the commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,
}

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    /// What the commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Largest key first
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Show at most this many
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Count rows of this view; the range is one of its key
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReduceArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Reduce rows of this view; the range is one of its key
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,

    /// Reduce each group of the view's rows whose keys begin with the same so many elements
    #[arg(long, value_name = "COUNT", requires = "view")]
    pub(crate) group: Option<usize>,
}

/// Which keys: all, a prefix, or a half-open range.
#[derive(Debug, Args, Default)]
pub(crate) struct RangeFlags {
    /// Keys whose leading elements are these, whole: `UA` is not met by `U`
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,

    /// Keys from this one on; may leave trailing elements out
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) from: Option<String>,

    /// Keys before this one, itself left out; may leave trailing elements out
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) to: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to put the database
    #[arg(long, value_name = "DIR", default_value = "duramen-demo")]
    pub(crate) dir: PathBuf,

    /// Use a file system that lives in memory, which survives no power cut
    #[arg(long)]
    pub(crate) allow_tmpfs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The directory that holds, or will hold, the database
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The code: E0213, e0213 or 213
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

impl Command {
    /// The database that the command uses, if it uses one.
    pub(crate) fn database_mut(&mut self) -> Option<&mut DatabaseArgs> {
        Some(match self {
            Command::Shell(args) => &mut args.database,
            Command::Import(args) => &mut args.database,
            Command::Export(args) => &mut args.target.database,
            Command::Get(args) => &mut args.target.database,
            Command::Put(args) => &mut args.target.database,
            Command::Del(args) => &mut args.target.database,
            Command::Drop(args) => &mut args.target.database,
            Command::Scan(args) => &mut args.target.database,
            Command::Find(args) => &mut args.target.database,
            Command::Count(args) => &mut args.target.database,
            Command::Reduce(args) => &mut args.target.database,
            Command::View(args) => args.database_mut(),
            Command::Collections(args) | Command::DemoWriter(args) => args,
            Command::Inspect(args) => &mut args.database,
            Command::Check(args) => &mut args.database,
            Command::Backup(args) => &mut args.database,
            Command::Watch(args) => &mut args.database,
            Command::Top(args) => &mut args.database,
            Command::Repair(args) => &mut args.database,
            Command::Doctor(_)
            | Command::Bench(_)
            | Command::Demo(_)
            | Command::Explain(_)
            | Command::Man(_)
            | Command::Completions(_) => return None,
        })
    }
}

/// Checks the name of a collection.
fn collection_name(text: &str) -> Result<String, String> {
    let wrong = text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control);
    if wrong {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters"));
    }
    Ok(text.to_owned())
}

/// Checks the name of a column.
fn column_name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("a column has a name") } else { Ok(text.to_owned()) }
}

/// Forms of documents outside of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values with a line of column names
    Csv,
    /// One JSON object a line
    Ndjson,
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing; lost if the process ends before
    Memory,
    /// The kernel has it; survives kill -9, not a power cut
    Process,
    /// The disk has it; survives a power cut
    Disk,
}

impl From<Level> for Durability {
    fn from(level: Level) -> Durability {
        match level {
            Level::Memory => Durability::Memory,
            Level::Process => Durability::Process,
            Level::Disk => Durability::Disk,
        }
    }
}

/// The name of a level, as in the flags.
pub(crate) fn level_name(level: Durability) -> &'static str {
    match level {
        Durability::Memory => "memory",
        Durability::Process => "process",
        Durability::Disk => "disk",
    }
}
