//! `duramen doctor`: can the disk under a directory keep level `disk`, what does a durable commit cost there, and what can
//! be done about it.
//!
//! Owns the order of the examination and the verdict's exit code. What is known comes from the probe, what is measured
//! from the measurement; neither is repeated here.

mod advice;
pub(crate) mod build;
pub(crate) mod facts;
mod shown;

use std::path::Path;
use std::time::Duration;

use duramen::measure::{Plan, Series, Strategy, Summary, run};
use duramen::probe::{
    COMMITS_DEFAULT, DirectAlign, Fact, Host, Meter, Reading, Report, Trust, Verdict, WeaknessKind, Witness,
    judge, probe, witness,
};
use duramen::{Disk, OsDisk, PathKind};

use crate::args::DoctorArgs;
use crate::failure::{CANNOT_KEEP, Failure, Result};
use crate::output::Output;
use crate::signals::Signals;

/// The ways a commit of Duramen can become durable, and a write that waits for nothing, to compare.
const STRATEGIES: [Strategy; 4] =
    [Strategy::ZeroedFdatasync, Strategy::ZeroedDsync, Strategy::ZeroedDirectDsync, Strategy::NoSync];

const ROUNDS: u32 = 5;
const TURN: Duration = Duration::from_millis(200);
const TURN_RECORDS_MAX: u32 = 10_000;
const RECORD_BYTES: usize = 4096;

/// What a disk says of itself, and what it did with a burst of syncs.
pub(crate) struct Examined {
    pub(crate) report: Report,
    /// Absent where nothing can be written.
    witness: Option<Witness>,
    pub(crate) verdict: Verdict,
}

/// What an examination found.
struct Findings {
    examined: Examined,
    measured: Vec<Series<Reading>>,
    /// Who counted the disk's writes meanwhile.
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
    if can_keep(&findings) { Ok(()) } else { Err(Failure::Exit(CANNOT_KEEP)) }
}

/// Level `disk` cannot be kept where a sync is worthless or nothing can be written.
fn can_keep(findings: &Findings) -> bool {
    let examined = &findings.examined;
    let is_read_only =
        examined.report.weaknesses.iter().any(|weakness| weakness.kind == WeaknessKind::ReadOnly);
    examined.verdict.trust != Trust::Unsafe && !is_read_only
}

fn directory_of(path: &Path) -> Result<&Path> {
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

/// Learns what can be known of a directory's disk, and writes a burst of syncs where something can be written.
pub(crate) fn examine_disk(host: &Host, directory: &Path) -> Result<Examined> {
    let report = probe(host, directory).map_err(|error| Failure::io("look at", directory, &error))?;
    if report.mounts().next().is_some_and(|mounted| mounted.read_only.is(&true)) {
        let verdict = judge(&report, None);
        return Ok(Examined { report, witness: None, verdict });
    }
    let witness = witness(host, &OsDisk::new(), &report, COMMITS_DEFAULT)
        .map_err(|error| Failure::io("write a probe file in", directory, &error))?;
    let verdict = witness.verdict.clone();
    Ok(Examined { report, witness: Some(witness), verdict })
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
        return Ok(Findings { measured: Vec::new(), counted_by, examined });
    }
    out.note(&format!("measuring syncs in {} for about 4 s", directory.display()));
    let plan =
        Plan { record_bytes: RECORD_BYTES, rounds: ROUNDS, turn: TURN, turn_records_max: TURN_RECORDS_MAX };
    let mut go_on = |_, _| signals.received().is_none();
    let measured = run(directory, &STRATEGIES, &plan, &mut || meter.read(), &mut go_on)
        .map_err(|error| Failure::io("measure in", directory, &error))?;
    Ok(Findings { measured, counted_by, examined })
}

impl Examined {
    /// What a sync took in the burst.
    pub(crate) fn sync_p50(&self) -> Option<Duration> {
        self.witness.as_ref().map(|witness| Duration::from_nanos(witness.burst.latency.p50_ns))
    }

    /// What `O_DIRECT` wants: of the probe file, which the kernel tells more of than of a directory.
    fn direct(&self) -> &Fact<DirectAlign> {
        self.witness.as_ref().map_or(&self.report.direct, |witness| &witness.direct)
    }

    /// The largest write that is all or nothing, in bytes; 0 is none.
    fn atomic_write_bytes_max(&self) -> &Fact<u64> {
        let of_directory = &self.report.atomic_write_bytes_max;
        self.witness.as_ref().map_or(of_directory, |witness| &witness.atomic_write_bytes_max)
    }

    /// Where the directory lies, layer by layer, as names and texts.
    pub(crate) fn places(&self) -> Vec<(&'static str, String)> {
        shown::where_it_lies(self)
    }

    /// What else weakens durability here.
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

    /// Durable commits a second to expect: of one writer, and of sixteen at once.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of syncs is small and positive"
    )]
    fn budget(&self) -> Option<(u64, u64)> {
        const SHARED: u64 = 8;
        let avg_ns = self.summary(Strategy::ZeroedFdatasync)?.avg;
        let alone = (1e9 / avg_ns.max(1.0)) as u64;
        Some((alone, alone.saturating_mul(SHARED)))
    }
}
