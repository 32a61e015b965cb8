//! `replay`: one cut of a search reproduced.

use std::path::{Path, PathBuf};

use clap::Args;
use duramen_sim::concurrent;
use duramen_sim::search::case::{Case, Choice};
use duramen_sim::search::{record, replay};

/// Makes one power cut again: of `search` by its seed, of `concurrent` by the record of the life
///
/// Without `--op`, only runs the life of the seed.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The life
    #[arg(long, required_unless_present = "trace")]
    seed: Option<u64>,
    /// The record of a life, as `concurrent` keeps it
    #[arg(long, conflicts_with = "seed", requires = "op")]
    trace: Option<PathBuf>,
    /// Operations of the disk before the cut
    #[arg(long)]
    op: Option<usize>,
    /// Which pending changes survive: none, all, all-but:N, only:N, prefix:N, torn:N:SEED, random:SEED, or
    /// log=CHOICE,rest=CHOICE
    #[arg(long, default_value = "none", requires = "op")]
    choice: Choice,
}

impl Replay {
    pub(crate) fn run(&self) -> Result<(), String> {
        match (&self.trace, self.seed, self.op) {
            (Some(file), _, op) => self.record(file, op.unwrap_or_default()),
            (None, Some(seed), Some(op)) => {
                let case = Case { seed, op, choice: self.choice };
                survived(replay(case).map_err(|failure| failure.to_string())?);
                Ok(())
            }
            (None, seed, _) => life(seed.unwrap_or_default()),
        }
    }

    fn record(&self, file: &Path, op: usize) -> Result<(), String> {
        survived(concurrent::replay(file, op, self.choice)?);
        Ok(())
    }
}

fn life(seed: u64) -> Result<(), String> {
    let recorded = record(seed).map_err(|failure| failure.to_string())?;
    let (operations, last) = (recorded.trace.len(), recorded.history.last_seq());
    println!("seed {seed}: {operations} operations, {last} commits, no cut");
    Ok(())
}

fn survived(seq: u64) {
    println!("survived: recovered commit {seq}");
}
