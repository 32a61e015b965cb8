//! `duramen doctor`: whether the disk under a directory can keep level `disk`, what a durable commit costs
//! there, and how to improve it.
//!
//! Owns the order of the examination and the verdict's exit code. Facts come from the probe, figures from the
//! measurement; neither is repeated here.

mod advice;
pub(crate) mod build;
pub(crate) mod facts;
mod shown;

use std::io;
use std::path::Path;
use std::time::Duration;

use duramen::probe::{
    COMMITS_DEFAULT, DirectAlign, Fact, Host, Meter, Reading, Report, Trust, Verdict, WeaknessKind, Witness,
    judge, probe, witness,
};
use duramen::{Disk, OsDisk, PathKind};
use duramen_lab::measure::{Plan, Series, Strategy, Summary, run};

use crate::args::DoctorArgs;
use crate::bench::strategies::{Row, preferred_of};
use crate::failure::{CANNOT_KEEP, Failure, Result};
use crate::output::{Output, printable};
use crate::signals::Signals;

/// The strategies by which a commit of Duramen can become durable, and an unsynced write for comparison.
const STRATEGIES: [Strategy; 4] =
    [Strategy::ZeroedFdatasync, Strategy::ZeroedDsync, Strategy::ZeroedDirectDsync, Strategy::NoSync];

const ROUNDS: u32 = 5;
const TURN: Duration = Duration::from_millis(200);
const TURN_RECORDS_MAX: u32 = 10_000;
const RECORD_BYTES: usize = 4096;

/// The measurement takes little space: nearly full disks need examining too.
const LANE_BYTES: u64 = 1 << 20;
const SPARE_BYTES: u64 = 4 << 20;

/// What a disk reports about itself, and what a burst of syncs showed.
pub(crate) struct Examined {
    pub(crate) report: Report,
    /// Absent if nothing can be written.
    witness: Option<Witness>,
    /// Why it is absent.
    unwritten: Option<Unwritten>,
    pub(crate) verdict: Verdict,
}

/// Why nothing was written, or nothing more.
struct Unwritten {
    why: String,
    /// No program can store data here: the reason is neither space nor rights.
    is_final: bool,
}

impl Unwritten {
    fn from(error: &io::Error) -> Unwritten {
        let wanting =
            [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::PermissionDenied];
        Unwritten { why: error.to_string(), is_final: !wanting.contains(&error.kind()) }
    }
}

/// The findings of an examination.
struct Findings {
    examined: Examined,
    measured: Vec<Series<Reading>>,
    /// Why nothing was measured although writing is possible.
    stopped: Option<Unwritten>,
    /// The source of the counts of disk writes meanwhile.
    counted_by: Fact<String>,
}

/// Examines the disk under a directory.
pub(crate) fn doctor(args: &DoctorArgs, out: Output) -> Result<()> {
    let directory = directory_of(&args.dir)?;
    let signals = Signals::watch()?;
    let host = Host::this();
    let examined = examine_disk(&host, directory)?;
    let findings = measure(&host, examined, directory, &signals, out)?;
    if let Some(signal) = signals.received() {
        return Err(Failure::signal(signal));
    }
    if out.is_json() {
        out.object("doctor", facts::of(&findings))?;
    } else {
        for line in shown::lines(&findings) {
            out.line(&line)?;
        }
    }
    match findings.cannot_keep() {
        None => Ok(()),
        Some(_) => Err(Failure::Exit(CANNOT_KEEP)),
    }
}

/// The path, if it is a directory.
pub(crate) fn directory_of(path: &Path) -> Result<&Path> {
    match OsDisk::new().kind(path).map_err(|error| Failure::io("look at", path, &error))? {
        Some(PathKind::Directory) => Ok(path),
        Some(_) => Err(Failure::data(
            format!("{} is not a directory", path.display()),
            "name the directory that holds, or will hold, the database",
        )),
        None => Err(Failure::data(
            format!("there is no directory {}", path.display()),
            "create it first, or name the one it will be in",
        )),
    }
}

/// Collects the facts about a directory's disk, and writes a burst of syncs if writing is possible.
pub(crate) fn examine_disk(host: &Host, directory: &Path) -> Result<Examined> {
    let report = probe(host, directory).map_err(|error| Failure::io("look at", directory, &error))?;
    let written = if report.mounts().next().is_some_and(|mounted| mounted.read_only.is(&true)) {
        Err(Unwritten { why: "nothing can be written: read-only".to_owned(), is_final: true })
    } else {
        witness(host, &OsDisk::new(), &report, COMMITS_DEFAULT).map_err(|error| Unwritten::from(&error))
    };
    // Facts that need no writing matter most where writing fails.
    Ok(match written {
        Ok(witness) => {
            let verdict = witness.verdict.clone();
            Examined { report, witness: Some(witness), unwritten: None, verdict }
        }
        Err(unwritten) => {
            let verdict = judge(&report, None);
            Examined { report, witness: None, unwritten: Some(unwritten), verdict }
        }
    })
}

fn measure(
    host: &Host,
    examined: Examined,
    directory: &Path,
    signals: &Signals,
    out: Output,
) -> Result<Findings> {
    let meter = Meter::new(host, &examined.report);
    let counted_by = meter.source();
    if examined.witness.is_none() {
        return Ok(Findings { measured: Vec::new(), stopped: None, counted_by, examined });
    }
    out.note(&format!("measuring syncs in {} for about 4 s", printable(&directory.display().to_string())));
    let plan = Plan {
        record_bytes: RECORD_BYTES,
        rounds: ROUNDS,
        turn: TURN,
        turn_records_max: TURN_RECORDS_MAX,
        lane_bytes_max: LANE_BYTES,
        spare_bytes: SPARE_BYTES,
    };
    let mut go_on = |_, _| signals.received().is_none();
    let (measured, stopped) = match run(directory, &STRATEGIES, &plan, &mut || meter.read(), &mut go_on) {
        Ok(measured) => (measured, None),
        Err(error) => (Vec::new(), Some(Unwritten::from(&error))),
    };
    Ok(Findings { measured, stopped, counted_by, examined })
}

impl Examined {
    /// The median time of a sync in the burst.
    pub(crate) fn sync_p50(&self) -> Option<Duration> {
        self.witness.as_ref().map(|witness| Duration::from_nanos(witness.burst.latency.p50_ns))
    }

    /// The requirements of `O_DIRECT`: of the probe file, for which the kernel reports more than for a
    /// directory.
    fn direct(&self) -> &Fact<DirectAlign> {
        self.witness.as_ref().map_or(&self.report.direct, |witness| &witness.direct)
    }

    /// The largest atomic write, in bytes; 0 if there is none.
    fn atomic_write_bytes_max(&self) -> &Fact<u64> {
        let of_directory = &self.report.atomic_write_bytes_max;
        self.witness.as_ref().map_or(of_directory, |witness| &witness.atomic_write_bytes_max)
    }

    /// The layers under the directory, as names and texts.
    pub(crate) fn places(&self) -> Vec<(&'static str, String)> {
        shown::where_it_lies(self)
    }

    /// The other reasons for weaker durability here.
    pub(crate) fn other_weaknesses(&self) -> impl Iterator<Item = &str> {
        let others = self.report.weaknesses.iter().map(|weakness| weakness.reason.as_str());
        others.filter(|reason| *reason != self.verdict.reason)
    }
}

impl Findings {
    /// The figures of one strategy.
    fn summary(&self, strategy: Strategy) -> Option<Summary> {
        let series = self.measured.iter().find(|series| series.strategy == strategy)?;
        Summary::of(&series.samples())
    }

    /// Why level `disk` cannot be kept here: a sync is worthless, or nothing can be written.
    fn cannot_keep(&self) -> Option<&str> {
        let report = &self.examined.report;
        if report.weaknesses.iter().any(|weakness| weakness.kind == WeaknessKind::ReadOnly) {
            return Some("read-only");
        }
        if self.examined.verdict.trust == Trust::Unsafe {
            return Some("a sync is worth nothing");
        }
        self.unwritten().filter(|unwritten| unwritten.is_final).map(|unwritten| unwritten.why.as_str())
    }

    fn unwritten(&self) -> Option<&Unwritten> {
        self.examined.unwritten.as_ref().or(self.stopped.as_ref())
    }

    /// Why there are no figures.
    fn unmeasured(&self) -> Option<&str> {
        self.unwritten().map(|unwritten| unwritten.why.as_str())
    }

    fn rows(&self) -> Vec<Row> {
        self.measured.iter().map(Row::of).collect()
    }

    /// Expected durable commits per second, with the strategy that a new database here would use; `None` if
    /// none is durable.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of syncs is small and positive"
    )]
    fn budget(&self) -> Option<Budget> {
        /// With sixteen or more writers half of them share the next sync, where nothing but the sync takes
        /// time.
        const SHARED: u64 = 8;
        if self.examined.verdict.trust == Trust::Unsafe {
            return None;
        }
        let rows = self.rows();
        let file_system = OsDisk::new().file_system(&self.examined.report.path).ok()?.name;
        let (chosen, _) = preferred_of(&rows, &file_system)?;
        let alone = (1e9 / chosen.summary?.avg.max(1.0)) as u64;
        Some(Budget { way: chosen.strategy, alone, together_guess: alone.saturating_mul(SHARED) })
    }
}

/// Durable commits per second.
struct Budget {
    way: Strategy,
    /// With one writer, as measured.
    alone: u64,
    /// With sixteen concurrent writers: estimated, not measured.
    together_guess: u64,
}
