//! The arguments of `duramen watch` and `duramen top`: commands beside a process that has the database open.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::DatabaseArgs;

/// A shorter interval would only keep the disk busy.
const INTERVAL_MIN: f64 = 0.05;
const INTERVAL_MAX: f64 = 86_400.0;

#[derive(Debug, Args)]
#[command(
    after_help = "Takes no lock and writes nothing. A commit is shown once the log records it as durable, which takes at most a tenth \
                  of a second. No changes are retained for this command. If the database retains none either, a fast writer can reuse its \
                  log before the changes are read. Such a gap is reported. With --at the server tells the changes, and retains \
                  them until they are read."
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection; by default everything that is stored
    #[arg(value_name = "COLLECTION", id = "watched")]
    pub(crate) collection: Option<String>,

    /// Begin after this commit
    #[arg(long, value_name = "SEQ", conflicts_with = "oldest")]
    pub(crate) since: Option<u64>,

    /// Begin with the oldest change that is still kept
    #[arg(long)]
    pub(crate) oldest: bool,

    /// End after this many changes
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,

    /// Wait for more changes at the end; `--follow=false` ends there
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Reads the files: takes no lock and writes nothing. If the process that has the database open serves it, that is asked how \
                        its commits fare. With --at only the server is asked: what is written to which collection is not \
                        told then."
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,

    /// End after this many samples
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (INTERVAL_MIN..=INTERVAL_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("seconds from {INTERVAL_MIN} to {INTERVAL_MAX}")),
    }
}
