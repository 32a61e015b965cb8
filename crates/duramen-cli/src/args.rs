//! The arguments of the command line: every command, argument and flag, with its `--help` text.
//!
//! Owns no behaviour. What is invalid regardless of any database is refused here, with exit code 2.

mod audit;
mod bench;
mod cluster;
mod find;
mod observe;
mod reference;
mod rows;
mod serve;
mod users;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use duramen::Durability;
use duramen::schema::NAME_BYTES_MAX;
use duramen_client::{Address, Freshness};

use crate::database::Session;
use crate::output::shell_word;

pub(crate) use audit::{AuditArgs, AuditCommand, AuditVerifyArgs};
pub(crate) use bench::{BenchArgs, BenchCommand, BenchSyncArgs, PatternWord, SyncWord};
pub(crate) use cluster::{ClusterArgs, ClusterCommand, NodeArgs};
pub(crate) use find::{AggregateFlags, FindArgs, FindFormat};
pub(crate) use observe::{TopArgs, WatchArgs};
pub(crate) use reference::{
    ReferenceAddArgs, ReferenceArgs, ReferenceCommand, ReferenceDropArgs, ReferenceListArgs,
};
pub(crate) use rows::{ExportArgs, Format, ImportArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use users::{
    TokenAddArgs, TokenArgs, TokenCommand, TokenRevokeArgs, UserArgs, UserCommand, UserNamedArgs,
    UserRightsArgs,
};
pub(crate) use view::{ViewAddArgs, ViewArgs, ViewCommand, ViewListArgs, ViewNamedArgs};

/// Duramen: a durable, transactional database in a directory.
#[derive(Debug, Parser)]
#[command(
    name = "duramen",
    version,
    after_help = "Begin with `duramen demo`. `duramen DB` opens a shell on a database. Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 corruption found, \
                  4 locked by another process, 5 the file system cannot keep the requested level or is on a network, \
                  6 no server answers, 7 the server does not let this user in, 8 the server cannot commit any more, 128+n ended by signal n."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print results and errors as JSON: one object per command, for `scan` and `export` one document per
    /// line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Ask the server at this address instead of opening a database: `HOST:PORT`, `duramen://HOST:PORT`,
    /// `unix:PATH`, or the directory of a database that is served. The argument DB is then left out. Also
    /// `DURAMEN_AT`; the token of an address of TCP also `DURAMEN_TOKEN`
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) at: Option<String>,

    /// Read a state that may be so much older than the newest, if a node of a cluster serves the database:
    /// milliseconds, a time such as `2s`, or `any` for what the node has, also without a majority.
    /// Commands that write read the newest state whatever it says
    #[arg(long, global = true, value_name = "AGE", value_parser = freshness)]
    pub(crate) max_age: Option<Freshness>,

    /// Print no progress and no notes on standard error
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open a shell on a database: the other commands without the database's name, with history and
    /// completion. `duramen DB` does the same
    Shell(ShellArgs),
    /// Load rows from CSV, NDJSON, JSON or Parquet into a collection
    Import(ImportArgs),
    /// Write the documents of a collection or a range to standard output, as CSV, NDJSON or JSON
    Export(ExportArgs),
    /// Show the document under a key
    Get(GetArgs),
    /// Store a document; it replaces any document under the same key
    Put(PutArgs),
    /// Delete the document under a key, or the documents of a range; a large range takes several transactions
    Del(DelArgs),
    /// Drop a collection with its documents, views and definition; needs confirmation or `--yes`
    Drop(DropArgs),
    /// Show the documents of a range, in the order of their keys
    Scan(ScanArgs),
    /// Show the documents that satisfy conditions on their fields, through the key or a suitable view
    Find(FindArgs),
    /// Count the documents of a range, without reading them
    Count(RangeArgs),
    /// Count and sum the documents of a range, without reading them
    Reduce(ReduceArgs),
    /// Add, drop, rebuild and list views: a collection's documents in another order, with counts, sums and
    /// other reductions
    View(ViewArgs),
    /// Add, drop and list references: fields whose values are keys of another collection's documents
    Reference(ReferenceArgs),
    /// List the collections with their keys, sums, views and columns
    Collections(DatabaseArgs),
    /// Show the state of the database: sizes, trees, file system, what recovery found in the log
    Inspect(InspectArgs),
    /// Read and verify all pages, reductions and extents, and the log after the newest checkpoint. Changes
    /// nothing
    Check(CheckArgs),
    /// Copy one state of the database into a new directory, read the copy back and verify it
    Backup(BackupArgs),
    /// Shorten the data file to what is left in it after deletes, and name what still holds space. It can be
    /// stopped at any time; another run goes on
    Compact(CompactArgs),
    /// Show changes as other processes commit them, one per line. Works while another process has the
    /// database open
    Watch(WatchArgs),
    /// Show the activity of a database that another process has open: commits per second, checkpoints, space,
    /// the collections most written to
    Top(TopArgs),
    /// Serve a database to other processes on this machine, until ^C or SIGTERM; it is created if it does not
    /// exist
    Serve(ServeArgs),
    /// Add, change, drop and list the users of a database that is served, and their rights
    User(UserArgs),
    /// Make, revoke and list the tokens by which users call
    Token(TokenArgs),
    /// Tell whether the audit of a served database is what was written
    Audit(AuditArgs),
    /// Show the members of a cluster, let another one lead, remove one
    Cluster(ClusterArgs),
    /// Repair a corrupt database: write everything that can still be read to a new, sound one. Only reads the
    /// corrupt one
    #[command(alias = "recover")]
    Repair(RepairArgs),
    /// Examine the disk under a directory: what survives a power cut, the cost of a durable commit, what to
    /// improve
    Doctor(DoctorArgs),
    /// Measure the disk: the cost of a durable write
    Bench(BenchArgs),
    /// Create a database of 27,004 flights, query it, kill a writer, and check that every acknowledged row is
    /// there
    Demo(DemoArgs),
    /// Explain an error code, or list all codes
    Explain(ExplainArgs),
    /// Print the manual page, or write one for each command
    Man(ManArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Write with acknowledgements until killed; the demo's child process
    #[command(hide = true)]
    DemoWriter(DatabaseArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// The directory of the database; `import` creates it if it does not exist
    pub(crate) db: PathBuf,

    /// The directory of the log, if it is not inside the database; needed at every command
    #[arg(long, value_name = "DIR")]
    pub(crate) wal: Option<PathBuf>,

    /// The shell's session, which has the database open.
    #[arg(skip)]
    pub(crate) session: Option<Session>,

    /// The server that `--at` names, in the place of a directory.
    #[arg(skip)]
    pub(crate) at: Option<Address>,

    /// How old the state may be that a server reads.
    #[arg(skip)]
    pub(crate) freshness: Freshness,
}

impl DatabaseArgs {
    /// The database in a command that is shown.
    pub(crate) fn words(&self) -> String {
        if let Some(address) = &self.at {
            return format!("--at {}", shell_word(&address.to_string()));
        }
        let wal = self.wal.as_ref().map(|wal| format!(" --wal {}", shell_word(&wal.to_string_lossy())));
        format!("{}{}", shell_word(&self.db.to_string_lossy()), wal.unwrap_or_default())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Run this line instead of reading lines; may be repeated
    #[arg(long, short = 'e', value_name = "LINE")]
    pub(crate) execute: Vec<String>,

    /// Continue after a line that fails; the exit code is that of the first failure
    #[arg(long)]
    pub(crate) keep_going: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Show what uses the space instead: data, log, and changes kept for consumers, with each consumer's
    /// position
    #[arg(long, conflicts_with = "tree")]
    pub(crate) space: bool,

    /// Show the shape of one tree instead: a collection, a view as `collection.view`, or another tree by its
    /// name. Reads the whole tree
    #[arg(long, value_name = "TREE")]
    pub(crate) tree: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Verify every document too: its key, the types of its columns, its rows in views. Always done if
    /// corruption is found
    #[arg(long)]
    pub(crate) deep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The directory of the copy, which must not exist or be empty; the copy is a database like any other
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The directory of the new database, which must not exist or be empty
    pub(crate) new: PathBuf,

    /// Continue if the log is lost: the commits after the newest checkpoint are then lost, and reported as
    /// lost
    #[arg(long)]
    pub(crate) without_log: bool,
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

    /// The document, a JSON object; if omitted or `-`, read from standard input
    pub(crate) document: Option<String>,

    /// The whole key, for key columns that the document omits: one CSV record in the order of the key
    /// columns, or a JSON array
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) key: Option<String>,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
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

    /// Delete every document, in one transaction (in several on a full disk, or in a server); needs
    /// confirmation or `--yes`
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    pub(crate) all: bool,

    /// Skip the confirmation of `--all`; required without a terminal and with `--json`. A range needs none
    #[arg(long)]
    pub(crate) yes: bool,

    /// Rows per transaction; a larger range takes several transactions, and ^C stops between two of them
    #[arg(long, value_name = "ROWS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
}

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Skip the confirmation; required without a terminal and with `--json`
    #[arg(long)]
    pub(crate) yes: bool,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Show the largest key first
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Show at most this many documents
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Count the rows of this view; the range then applies to the view's key
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReduceArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Reduce the rows of this view; the range then applies to the view's key
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,

    /// Reduce the view's rows in groups: one group for each value of the first COUNT elements of the key
    #[arg(long, value_name = "COUNT", requires = "view")]
    pub(crate) group: Option<usize>,

    /// Show the access path and how much of its tree is read, without reducing anything
    #[arg(long)]
    pub(crate) explain: bool,
}

/// Which keys: all, a prefix, or a half-open range.
#[derive(Debug, Args, Default)]
pub(crate) struct RangeFlags {
    /// Keys that begin with these whole elements: `U` does not match `UA`
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,

    /// Keys from this one on, inclusive; trailing elements may be omitted
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) from: Option<String>,

    /// Keys before this one, exclusive; trailing elements may be omitted
    #[arg(long, value_name = "VALUE,...", allow_negative_numbers = true)]
    pub(crate) to: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The directory of the demo's database
    #[arg(long, value_name = "DIR", default_value = "duramen-demo")]
    pub(crate) dir: PathBuf,

    /// Allow a file system in memory, which survives no power cut
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
    /// Write one page per command into this directory
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
            Command::Reference(args) => args.database_mut(),
            Command::Collections(args) | Command::DemoWriter(args) => args,
            Command::Inspect(args) => &mut args.database,
            Command::Check(args) => &mut args.database,
            Command::Backup(args) => &mut args.database,
            Command::Compact(args) => &mut args.database,
            Command::Watch(args) => &mut args.database,
            Command::Top(args) => &mut args.database,
            Command::Serve(args) => &mut args.database,
            Command::User(args) => args.database_mut(),
            Command::Token(args) => args.database_mut(),
            Command::Audit(args) => args.database_mut(),
            Command::Cluster(args) => args.database_mut(),
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

/// An age: `any`, or a number with `ms`, `s` or `m`; milliseconds without a unit.
fn freshness(text: &str) -> Result<Freshness, String> {
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let times = match unit {
        "any" if text == unit => return Ok(Freshness::Any),
        "" | "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let number = text[..text.len() - unit.len()].parse::<u64>().ok();
    let ms = number.zip(times).and_then(|(number, times)| number.checked_mul(times));
    ms.map(|ms| Freshness::MaxAge(Duration::from_millis(ms)))
        .ok_or_else(|| "an age is a number of milliseconds, one with ms, s or m, or `any`".to_owned())
}

/// Reads a level of durability; the help says what a commit of each waits for.
fn levels() -> impl TypedValueParser<Value = Durability> {
    let levels = Durability::ALL.map(|level| {
        PossibleValue::new(level.name()).help(match level {
            Durability::Memory => "Nothing: the commit may be lost if the process ends",
            Durability::Process => "The write to the log: survives kill -9, not a power cut",
            Durability::Disk => "The sync of the log: survives a power cut",
        })
    });
    PossibleValuesParser::new(levels).try_map(|name| name.parse())
}
