//! `duramen bench sync`: the sync benchmark. It measures the cost of a durable write in a directory.
//!
//! Owns the choice of measurements and their output; each measurement has a file of its own. An interrupted
//! run shows the results so far.

mod every;
mod html_file;
mod mix;
mod parallel;
mod report;
pub(crate) mod strategies;
pub(crate) mod table;
mod unused;
mod watch;

use std::io;
use std::time::Duration;

use duramen::probe::{Host, probe};
use duramen::{Disk, Document, OsDisk};
use duramen_lab::measure::Strategy;

use self::html_file::HtmlFile;
use crate::args::BenchSyncArgs;
use crate::doctor;
use crate::failure::{Failure, Result};
use crate::file_system;
use crate::numbers::{bytes, counted, time};
use crate::output::{Output, printable};
use crate::signals::Signals;

/// The results. A part is absent if it was not requested, or the run ended before it.
#[derive(Default)]
struct SyncBenchmark {
    file_system: String,
    strategies: Option<strategies::Found>,
    every: Option<every::Found>,
    parallel: Option<parallel::Found>,
}

/// The requested measurements, except the job of `--mix`.
struct Parts {
    is_all: bool,
    strategies: bool,
    every: bool,
    parallel: bool,
}

impl Parts {
    fn of(args: &BenchSyncArgs) -> Parts {
        let is_all = args.html.is_some() && !args.every && !args.parallel;
        Parts {
            is_all,
            strategies: !args.every && !args.parallel,
            every: is_all || args.every,
            parallel: is_all || args.parallel,
        }
    }
}

/// The error of the system during a measurement.
fn failed(args: &BenchSyncArgs, error: &io::Error) -> Failure {
    /// On Linux: this process has too many open files.
    const EMFILE: i32 = 24;
    let failure = Failure::io("measure in", &args.dir, error);
    if error.raw_os_error() == Some(EMFILE) {
        return failure.hinted("let it open more files, `ulimit -n 4096`, or say fewer --threads");
    }
    failure
}

/// Measures, and prints the figures.
pub(crate) fn sync(args: &BenchSyncArgs, out: Output) -> Result<()> {
    unused::check(args)?;
    doctor::directory_of(&args.dir)?;
    if !args.anyway {
        file_system::check(
            &args.dir,
            "its syncs mean nothing there: name a directory on a disk, or use --anyway",
        )?;
    }
    let signals = Signals::watch()?;
    if args.mix {
        return mix::run(args, &signals, out);
    }
    match &args.html {
        Some(path) => {
            // Fails before minutes are spent.
            let file = HtmlFile::begin(path)?;
            with_report(args, file, &signals, out)?;
        }
        None => {
            let host = Host::this();
            let benchmark = measure(args, &host, None, &signals, out)?;
            benchmark.show(args, out)?;
        }
    }
    match signals.received() {
        Some(signal) => Err(Failure::signal(signal)),
        None => Ok(()),
    }
}

/// Examines the disk as `doctor` does, measures, prints, and writes the report.
fn with_report(args: &BenchSyncArgs, file: HtmlFile, signals: &Signals, out: Output) -> Result<()> {
    let host = Host::this();
    let examined = doctor::examine_disk(&host, &args.dir)?;
    let benchmark = measure(args, &host, examined.sync_p50(), signals, out)?;
    let found = report::Found {
        args,
        examined: &examined,
        benchmark: &benchmark,
        is_interrupted: signals.received().is_some(),
    };
    let figures = found.as_json();
    if out.is_json() {
        out.object("bench-sync-report", figures.clone())?;
    } else {
        benchmark.show(args, out)?;
    }
    file.finish(&found.page(&figures)?.to_html())?;
    let place = args.html.as_deref().unwrap_or(&args.dir).display().to_string();
    out.note(&format!("the report is in {}", printable(&place)));
    Ok(())
}

/// Runs the requested measurements. `report_sync` is the approximate time of a sync, for a whole report.
fn measure(
    args: &BenchSyncArgs,
    host: &Host,
    report_sync: Option<Duration>,
    signals: &Signals,
    out: Output,
) -> Result<SyncBenchmark> {
    let Parts { is_all, strategies: does_strategies, every: does_every, parallel: does_parallel } =
        Parts::of(args);
    let file_bytes = every::file_bytes(args, report_sync.filter(|_| is_all));
    if let Some(sync) = report_sync {
        let mut lasts = Duration::ZERO;
        for (is_done, takes) in [
            (does_strategies, strategies::lasts(&strategies::plan(args))),
            (does_every, every::lasts(args, file_bytes, sync)),
            (does_parallel, parallel::lasts(&parallel::plan(args))),
        ] {
            lasts += if is_done { takes } else { Duration::ZERO };
        }
        out.note(&format!("the report takes about {}; ^C ends it with what there is", time(lasts)));
    }
    let file_system =
        OsDisk::new().file_system(&args.dir).map_or_else(|_| "unknown".to_owned(), |found| found.name);
    let mut benchmark = SyncBenchmark { file_system, ..SyncBenchmark::default() };
    let goes_on = || signals.received().is_none();
    if does_strategies {
        let plan = strategies::plan(args);
        let (rounds, count) = (counted(u64::from(plan.rounds), "round"), Strategy::ALL.len());
        let place = printable(&args.dir.display().to_string());
        out.note(&format!(
            "{rounds} of {count} ways to make {} bytes durable in {place}, about {}",
            plan.record_bytes,
            time(strategies::lasts(&plan))
        ));
        let report = probe(host, &args.dir).map_err(|error| Failure::io("look at", &args.dir, &error))?;
        benchmark.strategies = Some(strategies::measure(args, host, &report, signals)?);
    }
    if does_every && goes_on() {
        out.note(&format!(
            "{} of writing {} in records of {} bytes, by how often it is synced",
            counted(u64::from(every::trials(args)), "trial"),
            bytes(file_bytes),
            args.record
        ));
        let ends_after = is_all.then_some(every::REPORT_ENDS_AFTER);
        benchmark.every = Some(every::measure(args, file_bytes, ends_after, signals)?);
    }
    if does_parallel && goes_on() {
        let plan = parallel::plan(args);
        out.note(&format!(
            "{} of syncs from up to {}, about {}",
            counted(u64::from(plan.rounds), "round"),
            counted(u64::from(plan.threads.last().copied().unwrap_or(0)), "thread"),
            time(parallel::lasts(&plan))
        ));
        benchmark.parallel = Some(parallel::measure(args, signals)?);
    }
    Ok(benchmark)
}

impl SyncBenchmark {
    /// The results by name, each in the form that its own command prints.
    fn parts(&self, args: &BenchSyncArgs) -> Vec<(&'static str, Document)> {
        let strategies = self.strategies.as_ref().map(|found| found.as_json(&args.dir, &self.file_system));
        let every = self.every.as_ref().map(|found| found.as_json(args));
        let parallel = self.parallel.as_ref().map(|found| found.as_json(args));
        let parts = [("strategies", strategies), ("every", every), ("parallel", parallel)];
        parts.into_iter().filter_map(|(name, part)| Some((name, part?))).collect()
    }

    fn show(&self, args: &BenchSyncArgs, out: Output) -> Result<()> {
        if out.is_json() {
            return self.show_json(args, out);
        }
        if let Some(found) = &self.strategies {
            found.show(&args.dir, &self.file_system, out)?;
        }
        if let Some(found) = &self.every {
            found.show(out)?;
        }
        if let Some(found) = &self.parallel {
            found.show(out)?;
        }
        Ok(())
    }

    /// One measurement is an object of its own kind; several are parts of one object.
    fn show_json(&self, args: &BenchSyncArgs, out: Output) -> Result<()> {
        let mut parts = self.parts(args);
        if let [(name, _)] = parts[..] {
            let kind = match name {
                "every" => "bench-sync-every",
                "parallel" => "bench-sync-parallel",
                _ => "bench-sync",
            };
            return out.object(kind, parts.swap_remove(0).1);
        }
        let told = parts.into_iter().fold(Document::new(), |told, (name, part)| told.with(name, part));
        out.object("bench-sync-report", told)
    }
}
