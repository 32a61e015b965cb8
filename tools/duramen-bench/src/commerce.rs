//! The benchmark `commerce`: agents follow shoppers' plans in a shop, which each engine stores in its own
//! way, at full durability. Every answer that can be predicted is compared, and at the end every row.
//!
//! Owns the run: engines interleaved in rounds, each turn a process of its own, as in `compare`.
//! docs/benchmarks.md describes what is measured, and how it differs from the original benchmark.

mod agents;
mod audit;
mod generator;
mod goals;
mod model;
mod page;
mod plans;
mod ratings;
mod report;
mod shop;
mod shopper;
mod shops;
mod turn;
mod words;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::args;
use crate::child;
use crate::compare::{check_disk, syncs};
use crate::engine::{Failure, Result};
use crate::job::{Job, Outcome, Step};
use crate::machine;
use crate::output;
use crate::results::{Measured, Results};
use shop::Entry;

pub(crate) use generator::Size;
pub(crate) use plans::Mix;
pub(crate) use report::show;
pub(crate) use turn::turn;

/// The workload name of figures over all operations.
const WHOLE: &str = "all operations";

/// The workload name of figures from strace.
const SYNCS: &str = "syncs";

/// Parameters of a child beside the rest of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// The size of the shop.
    pub size: Size,
    /// The mix of shoppers.
    pub mix: Mix,
}

/// Runs everything that was requested.
///
/// # Errors
/// Also for a wrong answer, or a wrong row at the end: the figures of that engine would mean nothing.
pub(crate) fn run(args: &args::Commerce) -> Result<Results> {
    check_disk(&args.dir)?;
    let engines = shops::named(&args.engines)?;
    let dir = args.dir.join(format!("duramen-bench-{}", std::process::id()));
    child::fresh(&dir)?;
    let dir = fs::canonicalize(dir)?;
    let mut run = Run { args, engines, dir, results: Results::default(), begun: Instant::now() };
    let done = run.all();
    child::remove(&run.dir)?;
    done?;
    Ok(run.results)
}

struct Run<'a> {
    args: &'a args::Commerce,
    engines: Vec<Entry>,
    dir: PathBuf,
    results: Results,
    begun: Instant,
}

impl Run<'_> {
    fn all(&mut self) -> Result<()> {
        for round in 0..self.args.rounds() {
            for index in 0..self.engines.len() {
                let entry = self.engines[(index + round as usize) % self.engines.len()];
                let outcome = self.turn(&entry, round, |job| child::run(job).outcome)?;
                self.take(entry.name, round, outcome);
            }
        }
        if self.args.count_syncs {
            for entry in self.engines.clone() {
                let outcome = self.turn(&entry, 0, syncs::count)?;
                self.keep(SYNCS, entry.name, 0, outcome);
            }
        }
        Ok(())
    }

    /// One engine, from an empty directory to the audit.
    fn turn(&self, entry: &Entry, round: u32, run: impl FnOnce(&Job) -> Result<Outcome>) -> Result<Outcome> {
        let job = self.job(entry.name);
        child::fresh(&job.dir)?;
        machine::settle(&self.dir);
        let begun = Instant::now();
        let outcome = run(&job).map_err(|failed| -> Failure {
            format!("{}, round {}: {failed}", entry.name, round + 1).into()
        })?;
        child::remove(&job.dir)?;
        let (at, took) = (self.begun.elapsed().as_secs(), begun.elapsed().as_secs_f64());
        output::progress(&format!("{at:>4} s  round {}  {:14} {took:.1} s", round + 1, entry.name));
        Ok(outcome)
    }

    fn job(&self, engine: &str) -> Job {
        let setting = Setting { size: self.args.size, mix: self.args.mix };
        Job {
            engine: engine.to_owned(),
            step: Step::Commerce(setting),
            dir: self.dir.join(engine),
            seed: self.args.seed,
            seconds: 0.0,
            threads: self.args.agents(),
            rows: self.args.plans() as u64,
        }
    }

    /// A child's figures are those of all operations; here they are sorted by operation.
    fn take(&mut self, engine: &str, round: u32, outcome: Outcome) {
        for (_, operation) in model::Operation::ALL {
            let mut of_one = Outcome::default();
            for (name, figure) in &outcome.figures {
                if let Some(name) = name.strip_prefix(operation).and_then(|name| name.strip_prefix(' ')) {
                    of_one.figures.insert(name.to_owned(), *figure);
                }
            }
            self.keep(operation, engine, round, of_one);
        }
        let is_whole =
            |name: &String| model::Operation::ALL.iter().all(|(_, known)| !name.starts_with(known));
        let figures = outcome.figures.into_iter().filter(|(name, _)| is_whole(name)).collect();
        self.keep(WHOLE, engine, round, Outcome { figures, notes: outcome.notes, ..Outcome::default() });
    }

    fn keep(&mut self, workload: &str, engine: &str, round: u32, outcome: Outcome) {
        self.results.measured.push(Measured::of(workload, engine, round, outcome));
    }
}
