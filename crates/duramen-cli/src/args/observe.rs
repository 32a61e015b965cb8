//! The arguments of `duramen watch` and `duramen top`: commands beside a process that has the database open.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::DatabaseArgs;

/// A shorter interval would only keep the disk busy.
const INTERVAL_MIN: f64 = 0.05;
const INTERVAL_MAX: f64 = 86_400.0;

#[derive(Debug, Args)]
#[command(
    after_help = "Takes no lock, writes nothing, and shows only what survives a power cut: a commit is shown once the log says that it is \
                  durable, a tenth of a second later at most. Nothing is kept for it: where the database keeps no changes, one that \
                  writes much between two looks leaves a gap, which is told."
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection; without, everything that is stored
    #[arg(value_name = "COLLECTION", id = "watched")]
    pub(crate) collection: Option<String>,

    /// Begin with what was committed after this commit
    #[arg(long, value_name = "SEQ", conflicts_with = "oldest")]
    pub(crate) since: Option<u64>,

    /// Begin with the oldest change that is still kept
    #[arg(long)]
    pub(crate) oldest: bool,

    /// End after so many changes
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,

    /// Wait for more at the end; `--follow=false` ends there
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Looks from outside: takes no lock, writes nothing, and asks nothing of the process that has the database open."
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,

    /// End after so many looks
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
