//! The arguments of the command line.
//!
//! Owns no behaviour. What is invalid in itself is refused here, with exit code 2.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use duramen_powercut::drive;
use duramen_powercut::moment::{Moment, Span};

use crate::linux::file_system::FileSystem;
use crate::linux::records::{Init, SyncCall};

const NEEDS_AND_CODES: &str = "Linux, root, FUSE and loop devices are needed. Exit codes: 0 every check passed, 1 bad use or \
    environment, also a command that failed by itself while the checks passed, 2 wrong arguments, 3 a check failed (data \
    lost), 4 a file system could not be mounted or its fsck failed, 5 timeout or internal error, 6 (table) a cell that must \
    lose data never did.";

/// What `run` tells its commands, which no flag says.
const RUN_ENVIRONMENT: &str = "The command and the scripts start in the mounted file system and find in their environment \
    POWERCUT_MNT (its mount point), POWERCUT_SECOND and POWERCUT_THIRD (those of further drives, if there are any), POWERCUT_ACK (a file that \
    no cut reaches; what the command prints is appended to it) and POWERCUT_SEED.";

/// Cuts the power under a program on a real file system, and checks what survives.
#[derive(Debug, Parser)]
#[command(
    name = "powercut",
    version,
    after_help = NEEDS_AND_CODES
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command, cut the power, mount what survives, run a check
    #[command(after_help = format!("{RUN_ENVIRONMENT}\n\n{NEEDS_AND_CODES}"))]
    Run(Box<RunArgs>),
    /// Rerun the published experiment: file system x cache x initialisation x sync call
    #[command(after_help = NEEDS_AND_CODES)]
    Table(TableArgs),
    /// Write numbered records and acknowledge each on standard output once its sync returned
    #[command(hide = true)]
    WriteRecords(WriteRecordsArgs),
    /// Check that every acknowledged record is there
    #[command(hide = true)]
    CheckRecords(CheckRecordsArgs),
    /// The drive's process (started by `run`)
    #[command(hide = true)]
    Drive(DriveArgs),
    /// The first process of a pid namespace (started by `run`)
    #[command(hide = true)]
    Init(InitArgs),
}

/// What the drive does with a write that it has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Cache {
    /// Keeps it in memory until a flush
    Volatile,
    /// Has it on the medium (power-loss protection)
    WriteThrough,
    /// Keeps it in memory and answers flushes without doing them
    Lying,
}

impl Cache {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cache::Volatile => "volatile",
            Cache::WriteThrough => "writethrough",
            Cache::Lying => "lying",
        }
    }
}

impl From<Cache> for drive::Cache {
    fn from(cache: Cache) -> drive::Cache {
        match cache {
            Cache::Volatile => drive::Cache::Volatile,
            Cache::WriteThrough => drive::Cache::WriteThrough,
            Cache::Lying => drive::Cache::Lying,
        }
    }
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("cut").required(true).args(["cut_after_ms", "cut_after_writes", "cut_after_flushes"])))]
pub(crate) struct RunArgs {
    /// The file system to run on
    #[arg(long, value_enum)]
    pub(crate) fs: FileSystem,

    /// More options for its mkfs, in one word, split at spaces; further drives get none
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) mkfs_opts: Option<String>,

    /// More mount options, for the run and for the check; further drives get none
    #[arg(long, value_name = "OPTIONS")]
    pub(crate) mount_opts: Option<String>,

    /// What the drive's cache does
    #[arg(long, value_enum, default_value = "volatile")]
    pub(crate) cache: Cache,

    /// Give it a second drive with this file system, whose mount point is in POWERCUT_SECOND
    #[arg(long, value_enum, value_name = "FS")]
    pub(crate) second_fs: Option<FileSystem>,

    /// What the second drive's cache does [default: what the first one's does]
    #[arg(long, value_enum, value_name = "CACHE", requires = "second_fs")]
    pub(crate) second_cache: Option<Cache>,

    /// Give it a third drive with this file system, whose mount point is in POWERCUT_THIRD
    #[arg(long, value_enum, value_name = "FS", requires = "second_fs")]
    pub(crate) third_fs: Option<FileSystem>,

    /// What the third drive's cache does [default: what the first one's does]
    #[arg(long, value_enum, value_name = "CACHE", requires = "third_fs")]
    pub(crate) third_cache: Option<Cache>,

    /// Decides all that is random; drawn and printed if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Cut so many milliseconds after the command began
    #[arg(long, value_name = "A..B")]
    pub(crate) cut_after_ms: Option<Span>,

    /// Cut once so many writes were answered, by all drives together
    #[arg(long, value_name = "A..B")]
    pub(crate) cut_after_writes: Option<Span>,

    /// Cut once so many flushes were answered, by all drives together, and the next one arrived
    #[arg(long, value_name = "A..B")]
    pub(crate) cut_after_flushes: Option<Span>,

    /// Check so many survivals of the same cut
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) variants: u64,

    /// Answer each request of the command after a time drawn from this range, so that they overtake each
    /// other; at most 10000000 (10 s)
    #[arg(long, value_name = "A..B", value_parser = latency_us)]
    pub(crate) latency_us: Option<Span>,

    /// The size of each drive: a number and K, M or G; with --image it is that of the image
    #[arg(long, default_value = "512M", value_parser = size, conflicts_with = "image")]
    pub(crate) size: u64,

    /// Begin with this image of a drive instead of an empty file system; further drives with FILE.second
    /// and FILE.third
    #[arg(long, value_name = "FILE", value_parser = image_path())]
    pub(crate) image: Option<PathBuf>,

    /// Keep the drive as the cut left it, further ones in FILE.second and FILE.third: the first variant that
    /// failed, else the first
    #[arg(long, value_name = "FILE", value_parser = image_path())]
    pub(crate) keep_image: Option<PathBuf>,

    /// Run this by `sh -c` first, with steady power
    #[arg(long, value_name = "SH")]
    pub(crate) setup: Option<String>,

    /// Run this by `sh -c` on what survives: it must end with 0
    #[arg(long, value_name = "SH")]
    pub(crate) check: String,

    /// Check the file system itself after each check
    #[arg(long)]
    pub(crate) fsck: bool,

    /// How long --setup, the command, and each check, may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) words: Vec<OsString>,
}

impl RunArgs {
    /// The file systems and the caches of the drives after the first, in their order.
    pub(crate) fn further(&self) -> Vec<(FileSystem, Cache)> {
        let all = [(self.second_fs, self.second_cache), (self.third_fs, self.third_cache)];
        let of = |(fs, cache): (Option<FileSystem>, Option<Cache>)| Some((fs?, cache.unwrap_or(self.cache)));
        all.into_iter().filter_map(of).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// Cuts per cell
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) cuts: u64,

    /// Only these file systems
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) fs: Vec<FileSystem>,

    /// The seed of the first cut
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Trials at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) workers: u64,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WriteRecordsArgs {
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// How the file comes to its length
    #[arg(long, value_enum)]
    pub(crate) init: Init,
    /// What is called after each record
    #[arg(long, value_enum)]
    pub(crate) sync: SyncCall,
    #[arg(long)]
    pub(crate) count: u64,
    /// Only make the file
    #[arg(long)]
    pub(crate) prepare: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckRecordsArgs {
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Where the acknowledgements are
    #[arg(long)]
    pub(crate) ack: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DriveArgs {
    /// The file system of each drive
    #[arg(long, value_enum)]
    pub(crate) fs: Vec<FileSystem>,
    /// The cache of each drive
    #[arg(long, value_enum)]
    pub(crate) cache: Vec<Cache>,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) moment: Moment,
    #[arg(long)]
    pub(crate) latency_us: Option<Span>,
    /// Be gone after so long, whatever the trial does
    #[arg(long)]
    pub(crate) give_up_s: u64,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[arg(long)]
    pub(crate) directory: PathBuf,
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}

/// The maximum latency of an answer: with more, no run would end.
const LATENCY_US_MAX: u64 = 10_000_000;

fn latency_us(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.high > LATENCY_US_MAX {
        return Err(format!("{} is too long: an answer takes at most {LATENCY_US_MAX} (10 s)", span.high));
    }
    Ok(span)
}

fn image_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|word| one_line(&word).map(PathBuf::from))
}

/// The text of an image's path, if it fits in a line: the drives receive it in one.
pub(crate) fn one_line(path: &OsStr) -> Result<&str, String> {
    let text = path.to_str().ok_or("a path that is not UTF-8 cannot be told to the drives")?;
    if text.contains('\n') {
        return Err("a path with a line break cannot be told to the drives".to_owned());
    }
    Ok(text)
}

/// The maximum size of a drive: its content is held in memory.
const SIZE_BYTES_MAX: u64 = 64 << 30;

fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, ""),
    };
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no size: write 512M or 2G"))?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= SIZE_BYTES_MAX);
    let bytes =
        bytes.ok_or_else(|| format!("{text} is too much: the drive is held in memory, at most 64G"))?;
    Ok(bytes.next_multiple_of(4096))
}
