//! A run's settings, from the command line: durations, rounds and engines.

use std::time::Duration;

use super::{QUICK_TURN_MAX, check_disk, engines_of};
use crate::args::Compare;
use crate::engine::{Entry, Result};
use crate::workloads::DEFINITIONS;

/// A run's settings.
pub(crate) struct Plan {
    /// The engines, ours first.
    pub engines: Vec<Entry>,
    /// The workloads; empty for all.
    only: Vec<String>,
    /// Rounds.
    pub rounds: u32,
    /// Threads of W2.
    pub threads: Vec<usize>,
    /// The seconds of a turn of W1: in a full run enough for three checkpoints and ten changes of segment.
    pub lone_seconds: f64,
    /// The seconds of a turn of W2 and W2b.
    pub commit_seconds: f64,
    /// The minimum duration of W8's checkpoints; one of them takes longer.
    pub stall_seconds: f64,
    /// The seconds of each loop of W4 to W6.
    pub read_seconds: f64,
    /// An engine whose turn took longer gets no further one.
    pub turn_max: Duration,
    /// Whether syncs are counted by strace.
    pub counts_syncs: bool,
    /// Seed of keys, values and order.
    pub seed: u64,
}

impl Plan {
    /// The settings of the command line.
    ///
    /// # Errors
    /// Unknown names, and a directory without durability.
    pub(crate) fn of(args: &Compare) -> Result<Plan> {
        if !args.in_memory {
            check_disk(&args.dir)?;
        }
        for name in &args.only {
            if DEFINITIONS.iter().all(|known| known.name != name) {
                return Err(format!("no workload {name}; see `duramen-bench workloads`").into());
            }
        }
        let quick = args.quick;
        Ok(Plan {
            engines: engines_of(&args.engines)?,
            only: args.only.clone(),
            rounds: args.rounds.max(1),
            threads: match &args.threads[..] {
                [] if quick => vec![16, 64],
                [] => vec![2, 4, 8, 16, 32, 64],
                threads => threads.to_vec(),
            },
            lone_seconds: args.seconds.unwrap_or(if quick { 1.0 } else { 12.0 }),
            commit_seconds: args.seconds.unwrap_or(if quick { 1.0 } else { 5.0 }),
            stall_seconds: if quick { 0.5 } else { 5.0 },
            read_seconds: if quick { 0.3 } else { 3.0 },
            turn_max: if quick { QUICK_TURN_MAX } else { Duration::MAX },
            counts_syncs: args.count_syncs,
            seed: args.seed,
        })
    }

    /// Whether a workload runs.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}
