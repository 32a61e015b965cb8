//! The run: the order of engines and workloads. Engines are interleaved: in each round every one has a turn,
//! a different one first, in a process of its own.

mod plan;
pub(crate) mod syncs;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duramen_disk::memory::mixed;

use crate::args::Compare;
use crate::bound::BOUNDS;
use crate::child;
use crate::engine::{Entry, Failure, Result, Scope};
use crate::engines;
use crate::job::{Job, Step};
use crate::output;
use crate::results::{Measured, Results};
use crate::verdict::OURS;
use crate::workloads::{BIG_VALUE_THREADS, LOAD_ROWS, UPDATE_ROWS, UPDATE_THREADS};

pub(crate) use plan::Plan;

/// Runs everything that was requested.
///
/// # Errors
/// Errors that make the whole run impossible; a failing engine is a result.
pub(crate) fn run(args: &Compare) -> Result<Results> {
    let plan = Plan::of(args)?;
    let dir = args.dir.join(format!("duramen-bench-{}", std::process::id()));
    child::fresh(&dir)?;
    let dir = fs::canonicalize(dir)?;
    let mut run = Run { plan, dir, results: Results::default(), begun: Instant::now() };
    let done = run.all();
    child::remove(&run.dir)?;
    done?;
    Ok(run.results)
}

struct Run {
    plan: Plan,
    dir: PathBuf,
    results: Results,
    begun: Instant,
}

/// Where the database of a measurement is, and whether an earlier one is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Fresh,
    Kept,
}

impl Run {
    fn all(&mut self) -> Result<()> {
        if self.plan.wants("W1") {
            self.commits("W1", 1)?;
        }
        for threads in self.plan.threads.clone() {
            if self.plan.wants("W2") {
                self.commits(&format!("W2-{threads}"), threads)?;
            }
        }
        if self.plan.wants("W2b") {
            self.updates()?;
        }
        if ["W3", "W4", "W5", "W6"].iter().any(|name| self.plan.wants(name)) {
            self.loads()?;
            for (name, step) in [("W4", Step::Gets), ("W5", Step::Scans), ("W6", Step::Sums)] {
                if self.plan.wants(name) {
                    let names = self.loaded();
                    self.interleave(name, &names, |run, engine, round| {
                        let job = run.job(engine, step, "load", run.plan.read_seconds, LOAD_ROWS);
                        run.measure(name, round, &job, Place::Kept);
                    });
                }
            }
            for entry in self.plan.engines.clone() {
                child::remove(&self.folder(entry.name, "load"))?;
            }
        }
        if self.plan.wants("W7") {
            self.kills()?;
        }
        if self.plan.wants("W8") {
            self.stalls()?;
        }
        if self.plan.wants("W9") {
            self.big_values()?;
        }
        if self.plan.counts_syncs {
            self.count_syncs()?;
        }
        Ok(())
    }

    /// W1 and W2, with the raw loop and the log-only bound in the same rounds.
    fn commits(&mut self, workload: &str, threads: usize) -> Result<()> {
        let raw = BOUNDS.iter().filter(|_| threads == 1).map(|(name, ..)| format!("raw-{name}"));
        let logs = BOUNDS.iter().map(|(name, ..)| format!("log-{name}"));
        let engines = self.plan.engines.iter().map(|entry| entry.name.to_owned());
        let names: Vec<String> = raw.chain(logs).chain(engines).collect();
        self.interleave(workload, &names, |run, engine, round| {
            let step = if engine.starts_with("raw-") { Step::Raw } else { Step::Commits };
            let seconds = if threads == 1 { run.plan.lone_seconds } else { run.plan.commit_seconds };
            let job = Job { threads, ..run.job(engine, step, "commits", seconds, 0) };
            run.measure(workload, round, &job, Place::Fresh);
        });
        names.iter().try_for_each(|name| child::remove(&self.folder(name, "commits")))
    }

    /// W2b: filled once, updated in every round.
    fn updates(&mut self) -> Result<()> {
        let mut names = Vec::new();
        for entry in self.of_scope(Scope::Updates) {
            let job = self.job(entry.name, Step::Fill, "five", 0.0, UPDATE_ROWS);
            if self.prepare("W2b", &job)? {
                names.push(entry.name.to_owned());
            }
        }
        self.interleave("W2b", &names, |run, engine, round| {
            let job = run.job(engine, Step::Update, "five", run.plan.commit_seconds, UPDATE_ROWS);
            run.measure("W2b", round, &Job { threads: UPDATE_THREADS, ..job }, Place::Kept);
        });
        names.iter().try_for_each(|name| child::remove(&self.folder(name, "five")))
    }

    /// W3; W4 to W6 read what its last round leaves.
    fn loads(&mut self) -> Result<()> {
        let names: Vec<String> =
            self.of_scope(Scope::All).iter().map(|entry| entry.name.to_owned()).collect();
        self.interleave("W3", &names, |run, engine, round| {
            let job = run.job(engine, Step::Load, "load", 0.0, LOAD_ROWS);
            run.measure("W3", round, &job, Place::Fresh);
        });
        Ok(())
    }

    /// W7.
    fn kills(&mut self) -> Result<()> {
        let names: Vec<String> =
            self.of_scope(Scope::All).iter().map(|entry| entry.name.to_owned()).collect();
        self.interleave("W7", &names, |run, engine, round| {
            // The same moment for all engines of a round.
            let rows = LOAD_ROWS * 3 / 10 + mixed(run.plan.seed ^ u64::from(round)) % (LOAD_ROWS / 5);
            let job = run.job(engine, Step::Doomed, "killed", 0.0, rows);
            match child::fresh(&job.dir).and_then(|()| child::run_and_kill(&job)) {
                Ok(rows) => run.measure("W7", round, &Job { step: Step::Reopen, rows, ..job }, Place::Kept),
                Err(failed) => run.note_failure("W7", engine, round, &failed),
            }
        });
        names.iter().try_for_each(|name| child::remove(&self.folder(name, "killed")))
    }

    /// W8: Duramen only, with the raw loops in the same rounds.
    fn stalls(&mut self) -> Result<()> {
        let raw = BOUNDS.iter().map(|(name, ..)| format!("raw-{name}"));
        let ours = self.plan.engines.iter().filter(|entry| entry.name == OURS);
        let names: Vec<String> = raw.chain(ours.map(|entry| entry.name.to_owned())).collect();
        self.interleave("W8", &names, |run, engine, round| {
            let job = run.job(engine, Step::Stall, "stall", run.plan.stall_seconds, 0);
            run.measure("W8", round, &job, Place::Fresh);
        });
        names.iter().try_for_each(|name| child::remove(&self.folder(name, "stall")))
    }

    /// W9.
    fn big_values(&mut self) -> Result<()> {
        let of_scope = self.of_scope(Scope::All);
        let names: Vec<String> = of_scope.iter().map(|entry| entry.name.to_owned()).collect();
        self.interleave("W9", &names, |run, engine, round| {
            let job = run.job(engine, Step::BigValues, "big", run.plan.commit_seconds, 0);
            run.measure("W9", round, &Job { threads: BIG_VALUE_THREADS, ..job }, Place::Fresh);
        });
        names.iter().try_for_each(|name| child::remove(&self.folder(name, "big")))
    }

    /// Syncs of W1 and of 16 threads of W2, in runs whose times do not count.
    fn count_syncs(&mut self) -> Result<()> {
        for threads in [1, 16] {
            for entry in self.plan.engines.clone() {
                let job = self.job(entry.name, Step::Commits, "counted", self.plan.commit_seconds, 0);
                child::fresh(&job.dir)?;
                let workload = format!("syncs-{threads}");
                match syncs::count(&Job { threads, ..job.clone() }) {
                    Ok(outcome) => {
                        let outcome = Some(outcome);
                        let engine = entry.name.to_owned();
                        let measured = Measured { workload, engine, round: 0, outcome, failed: None };
                        self.results.measured.push(measured);
                    }
                    Err(failed) => self.note_failure(&workload, entry.name, 0, &failed),
                }
                child::remove(&job.dir)?;
            }
        }
        Ok(())
    }

    /// Every engine has a turn in every round, unless it is too slow for the second round of a quick run.
    fn interleave(&mut self, workload: &str, names: &[String], mut turn: impl FnMut(&mut Run, &str, u32)) {
        let mut slow: Vec<&String> = Vec::new();
        for round in 0..self.plan.rounds {
            for index in 0..names.len() {
                let name = &names[(index + round as usize) % names.len()];
                if slow.contains(&name) {
                    continue;
                }
                let begun = Instant::now();
                turn(self, name, round);
                if begun.elapsed() > self.plan.turn_max {
                    slow.push(name);
                }
            }
        }
        if self.plan.rounds > 1 && !slow.is_empty() {
            let slow: Vec<&str> = slow.iter().map(|name| name.as_str()).collect();
            self.results.notes.push(format!(
                "{workload}: not repeated once a turn took more than {} s: {}",
                self.plan.turn_max.as_secs(),
                slow.join(", ")
            ));
        }
    }

    fn measure(&mut self, workload: &str, round: u32, job: &Job, place: Place) {
        if place == Place::Fresh
            && let Err(failed) = child::fresh(&job.dir)
        {
            return self.note_failure(workload, &job.engine, round, &failed);
        }
        crate::machine::settle(&self.dir);
        let ran = child::run(job);
        let outcome = match ran.outcome {
            Ok(outcome) => outcome,
            Err(failed) => return self.note_failure(workload, &job.engine, round, &failed),
        };
        let right = if outcome.is_right() { "" } else { " WRONG ANSWER" };
        let engine = job.engine.clone();
        self.tell(workload, &engine, round, &format!("{:.1} s{right}", ran.took.as_secs_f64()));
        self.results.measured.push(Measured::of(workload, &engine, round, outcome));
    }

    fn note_failure(&mut self, workload: &str, engine: &str, round: u32, failed: &Failure) {
        self.tell(workload, engine, round, &format!("FAILED: {failed}"));
        let (workload, engine) = (workload.to_owned(), engine.to_owned());
        let failed = Some(failed.to_string());
        self.results.measured.push(Measured { workload, engine, round, outcome: None, failed });
    }

    fn tell(&self, workload: &str, engine: &str, round: u32, what: &str) {
        let at = self.begun.elapsed().as_secs();
        output::progress(&format!("{at:>4} s  {workload:6} round {}  {engine:14} {what}", round + 1));
    }

    /// A step whose times do not count. Returns whether it succeeded.
    fn prepare(&mut self, workload: &str, job: &Job) -> Result<bool> {
        child::fresh(&job.dir)?;
        let ran = child::run(job);
        let failed = match ran.outcome {
            Ok(outcome) if outcome.is_right() => {
                self.tell(workload, &job.engine, 0, &format!("filled in {:.1} s", ran.took.as_secs_f64()));
                return Ok(true);
            }
            Ok(_) => "what was filled in is not there".into(),
            Err(failed) => failed,
        };
        self.note_failure(workload, &job.engine, 0, &failed);
        Ok(false)
    }

    /// The engines with at least this scope.
    fn of_scope(&self, scope: Scope) -> Vec<Entry> {
        self.plan.engines.iter().filter(|entry| entry.scope >= scope).copied().collect()
    }

    /// The engines whose load succeeded.
    fn loaded(&self) -> Vec<String> {
        let names = self.of_scope(Scope::All).into_iter().map(|entry| entry.name.to_owned());
        names.filter(|name| self.results.wrong("W3", name).is_none()).collect()
    }

    fn folder(&self, engine: &str, what: &str) -> PathBuf {
        self.dir.join(format!("{what}-{engine}"))
    }

    fn job(&self, engine: &str, step: Step, folder: &str, seconds: f64, rows: u64) -> Job {
        let dir = self.folder(engine, folder);
        Job { engine: engine.to_owned(), step, dir, seed: self.plan.seed, seconds, threads: 1, rows }
    }
}

/// With a longer turn, an engine has no second one in a quick run.
const QUICK_TURN_MAX: Duration = Duration::from_secs(10);

/// The engines of these names; without names all.
///
/// # Errors
/// A name that is not in this build.
pub(crate) fn engines_of(names: &[String]) -> Result<Vec<Entry>> {
    if names.is_empty() {
        return Ok(engines::all());
    }
    let find =
        |name: &String| engines::find(name).ok_or_else(|| format!("no engine {name} in this build").into());
    names.iter().map(find).collect()
}

/// Refuses directories without durability.
///
/// # Errors
/// That the directory is in memory; errors of the system.
pub(crate) fn check_disk(dir: &Path) -> Result<()> {
    use duramen_disk::Disk;
    let found = duramen_disk::OsDisk::new().file_system(dir)?;
    if ["tmpfs", "ramfs", "memory"].contains(&found.name.as_str()) {
        let text = format!("{} lies on {}: a sync means nothing there; use --dir", dir.display(), found.name);
        return Err(text.into());
    }
    Ok(())
}
