//! The arguments of `duramen bench`.
//!
//! Sizes may have a suffix `k`, `m` or `g` (powers of 1024), times `s`, `m` or `h`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the cost of a durable write in a directory; each call is timed by itself
    #[command(
        long_about = "Measure the cost of a durable write in a directory; each call is timed by itself.\n\n\
                      Without a mode it times eight ways to make a record durable, in interleaved rounds. --every compares \
                      sync intervals, --parallel compares numbers of threads, and --mix runs a job of reads and writes. --html \
                      writes a report of all but the job. Device writes are those that the disks counted meanwhile, which \
                      include the work of other programs."
    )]
    Sync(BenchSyncArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BenchSyncArgs {
    /// The directory to measure in; files are created there and removed
    pub(crate) dir: PathBuf,

    /// Bytes of a record, a multiple of 512; direct writes need a multiple of 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = record_bytes, conflicts_with = "mix")]
    pub(crate) record: usize,

    /// Number of rounds; in each round every candidate has one turn. Default 7, with `--parallel` 5
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "mix")]
    pub(crate) rounds: Option<u32>,

    /// Duration of a turn, in milliseconds; default 500
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000), conflicts_with = "mix")]
    pub(crate) turn_ms: Option<u64>,

    /// Number of records after which a turn ends early; default 100000
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000_000), conflicts_with = "mix")]
    pub(crate) turn_records: Option<u32>,

    /// Measure the time to write a file, by sync interval: never, at the end, every 100 MiB down to 4 KiB
    #[arg(long, conflicts_with = "mix")]
    pub(crate) every: bool,

    /// With `--every`: size of the file in MiB. Default 1024; in a whole report what takes about a minute, 64
    /// at most
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20), conflicts_with = "mix")]
    pub(crate) total_mib: Option<u64>,

    /// With `--every`: number of trials of each interval; default 3
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with = "mix")]
    pub(crate) trials: Option<u32>,

    /// Measure syncs per second by number of threads, with one shared file and with one file per thread
    #[arg(long, conflicts_with = "mix")]
    pub(crate) parallel: bool,

    /// Number of threads: with `--parallel` a list to compare (default 1,2,4,8,16,32,64), with `--mix` one
    /// number (default 1)
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: Vec<u32>,

    /// Write a report with charts to this HTML file: of `--every` and `--parallel` if given, else of all
    /// measurements
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    pub(crate) html: Option<PathBuf>,

    /// Run a job of reads and writes; by default writes of 4 KiB at random offsets, one at a time, each
    /// synced
    #[arg(long)]
    pub(crate) mix: bool,

    #[command(flatten)]
    pub(crate) job: MixFlags,

    /// Measure even where nothing survives a power cut, such as tmpfs
    #[arg(long)]
    pub(crate) anyway: bool,
}

/// The job of `--mix`.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --mix")]
pub(crate) struct MixFlags {
    /// Bytes per operation, a multiple of 512; with `--direct` of 4096
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = block_bytes, requires = "mix")]
    pub(crate) block: usize,

    /// Percentage of reads. Without `--direct` most reads come from the kernel's cache
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100), requires = "mix")]
    pub(crate) reads: u8,

    /// Which block comes next
    #[arg(long, value_enum, default_value_t = PatternWord::Random, requires = "mix")]
    pub(crate) pattern: PatternWord,

    /// Operations in flight per thread; each is a blocking call in a thread of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), requires = "mix")]
    pub(crate) outstanding: u32,

    /// When a write is made durable
    #[arg(long, value_enum, default_value_t = SyncWord::Each, requires = "mix")]
    pub(crate) sync: SyncWord,

    /// Bypass the kernel's cache (`O_DIRECT`)
    #[arg(long, requires = "mix")]
    pub(crate) direct: bool,

    /// Bytes of the file, which is filled first; fails if that much space is not free
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = size, requires = "mix")]
    pub(crate) size: u64,

    /// Duration of the job, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400), requires = "mix")]
    pub(crate) seconds: u64,

    /// Repeat the job for this long, which must allow ten repetitions, and print a line each time. The exit
    /// code is 1 if the last repetitions are slower than the first ones predict, by the median or the 99th
    /// percentile
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "mix")]
    pub(crate) watch: Option<Duration>,
}

/// Which block comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PatternWord {
    /// A random block
    Random,
    /// The block after the last one; each thread begins in its own part of the file
    Sequential,
}

/// When a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncWord {
    /// Before the next operation: with `fdatasync`, or with `RWF_DSYNC` if `--direct` is given
    Each,
    /// Never: this measures the kernel's cache, or with `--direct` the cache of the device
    Never,
}

/// Checks the size of a record.
fn record_bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if (512..=1 << 24).contains(&bytes) && bytes % 512 == 0 => Ok(bytes),
        _ => Err("a record is a multiple of 512 bytes, at most 16777216".to_owned()),
    }
}

fn block_bytes(text: &str) -> Result<usize, String> {
    match usize::try_from(size(text)?) {
        Ok(bytes) if (512..=1 << 24).contains(&bytes) && bytes % 512 == 0 => Ok(bytes),
        _ => Err("a block is a multiple of 512 bytes, at most 16m".to_owned()),
    }
}

/// `4096`, `4k`, `1g`.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a size is a number of bytes, or one followed by k, m, g or t".to_owned();
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match &lower[digits.len()..] {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| (1..1 << 50).contains(bytes)).ok_or_else(wrong)
}

/// `90`, `90s`, `5m`, `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time is a number of seconds, or one followed by s, m or h, at most 168h".to_owned();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let times = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    seconds.filter(|seconds| (1..=168 * 3600).contains(seconds)).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    //! A misread size could fill a disk.
    use super::*;

    #[test]
    fn sizes_and_times_are_read_with_their_units() {
        for (text, bytes) in [("512", 512), ("4k", 4096), ("4KiB", 4096), ("1G", 1 << 30), ("3m", 3 << 20)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "0", "-1", "4x", "1.5g", "99999999999999999999", "18446744073709551615k", "4 k"]
        {
            assert!(size(text).is_err(), "{text}");
        }
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("168h", 604_800)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "m", "5d", "169h", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!((block_bytes("4k"), record_bytes("512")), (Ok(4096), Ok(512)));
        assert!(block_bytes("17m").is_err() && block_bytes("1000").is_err());
    }
}
