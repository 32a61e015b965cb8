//! `duramen bench sync --mix`: a job of reads and writes, once or watched.

use std::time::Duration;

use duramen::{Document, Value, doc};
use duramen_lab::measure::{Job, Mix, Outcome, Pattern, SPARE_BYTES, Summary, Tally, room_or_refuse};

use super::strategies::summary_into;
use super::table::ns;
use super::{failed, watch};
use crate::args::{BenchSyncArgs, PatternWord, SyncWord};
use crate::failure::{Failure, Result};
use crate::numbers::{bytes, counted, grouped};
use crate::output::{Output, align_right, new_table};
use crate::signals::Signals;

/// Blocking threads at most.
const WORKERS_MAX: usize = 1024;

pub(super) fn run(args: &BenchSyncArgs, signals: &Signals, out: Output) -> Result<()> {
    let job = job_of(args)?;
    let lasts = Duration::from_secs(args.job.seconds);
    if let Some(watched) = args.job.watch {
        watch::check(lasts, watched)?;
    }
    let failed = |error| failed(args, &error);
    room_or_refuse(&args.dir, job.file_bytes, SPARE_BYTES).map_err(failed)?;
    out.note(&format!("filling a file of {}", bytes(job.file_bytes)));
    let go_on = || signals.received().is_none();
    let Some(mix) = Mix::prepare(&args.dir, job, &go_on).map_err(failed)? else {
        return signals.received().map_or(Ok(()), |signal| Err(Failure::signal(signal)));
    };
    if let Some(watched) = args.job.watch {
        return watch::run(args, &mix, &job, lasts, watched, signals, out);
    }
    out.note(&format!("{}, for {} s", words(&job), args.job.seconds));
    let outcome = mix.run(lasts, &go_on).map_err(failed)?;
    if out.is_json() {
        let mut told = job_as_json(args, &job);
        figures_into(&job, outcome.took_ns, &kinds(&outcome).collect::<Vec<_>>(), &mut told);
        out.object("bench-sync-mix", told)?;
    } else {
        out.line(&words(&job))?;
        show(&job, &outcome, out)?;
    }
    signals.received().map_or(Ok(()), |signal| Err(Failure::signal(signal)))
}

fn job_of(args: &BenchSyncArgs) -> Result<Job> {
    let threads = match args.threads.as_slice() {
        [] => 1,
        [one] => *one,
        _ => {
            return Err(Failure::usage("a job has one number of threads", "give one number after --threads"));
        }
    };
    let block = args.job.block as u64;
    let job = Job {
        block_bytes: args.job.block,
        reads_percent: usize::from(args.job.reads),
        pattern: match args.job.pattern {
            PatternWord::Random => Pattern::Random,
            PatternWord::Sequential => Pattern::Sequential,
        },
        threads: threads as usize,
        outstanding: args.job.outstanding as usize,
        file_bytes: args.job.size / block * block,
        is_synced: args.job.sync == SyncWord::Each,
        is_direct: args.job.direct,
    };
    if job.is_direct && !block.is_multiple_of(4096) {
        let text = format!("blocks of {block} bytes: direct reads and writes want multiples of 4096");
        return Err(Failure::usage(text, "use a larger --block, or leave --direct out"));
    }
    if job.workers() > WORKERS_MAX {
        let text = format!("{} operations in flight, at most {WORKERS_MAX}", grouped(job.workers() as u64));
        return Err(Failure::usage(text, "say fewer --threads or less --outstanding"));
    }
    if job.file_bytes == 0 {
        return Err(Failure::usage("the file is smaller than a block", "use a larger --size"));
    }
    Ok(job)
}

/// The job as a sentence.
fn words(job: &Job) -> String {
    let pattern = match job.pattern {
        Pattern::Random => "random",
        Pattern::Sequential => "sequential",
    };
    let what = match job.reads_percent {
        0 => "writes".to_owned(),
        100 => "reads".to_owned(),
        reads => format!("reads ({reads} %) and writes"),
    };
    let how = match (job.reads_percent, job.is_synced, job.is_direct) {
        (100, _, true) => ", past the kernel's cache",
        (100, _, false) => "",
        (_, true, false) => ", each write followed by fdatasync",
        (_, true, true) => ", past the kernel's cache, each write with RWF_DSYNC",
        (_, false, false) => ", writes not durable",
        (_, false, true) => ", past the kernel's cache, writes not durable",
    };
    format!(
        "{pattern} {what} of {} in a file of {}{how}; {}, {} in flight each",
        bytes(job.block_bytes as u64),
        bytes(job.file_bytes),
        counted(job.threads as u64, "thread"),
        job.outstanding
    )
}

/// The kinds of operations that occurred.
pub(super) fn kinds(outcome: &Outcome) -> impl Iterator<Item = (&'static str, Summary)> {
    let of = |name, tally: &Tally| tally.summary().map(|summary| (name, summary));
    [of("reads", &outcome.reads), of("writes", &outcome.writes)].into_iter().flatten()
}

/// Operations per second, and megabytes (of 1,000,000 bytes) per second.
#[allow(clippy::cast_precision_loss, reason = "counts and times of hours are below 2^53")]
pub(super) fn rates(job: &Job, took_ns: u64, count: usize) -> (f64, f64) {
    let a_second = count as f64 * 1e9 / took_ns.max(1) as f64;
    (a_second, a_second * job.block_bytes as f64 / 1e6)
}

fn show(job: &Job, outcome: &Outcome, out: Output) -> Result<()> {
    let head = ["", "count", "IOPS", "MB/s", "avg", "stddev", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let mut table = new_table(&head);
    for (name, summary) in kinds(outcome) {
        let (iops, megabytes) = rates(job, outcome.took_ns, summary.count);
        table.add_row([
            name.to_owned(),
            grouped(summary.count as u64),
            whole(iops),
            format!("{megabytes:.1}"),
            of_float(summary.avg),
            of_float(summary.stddev),
            ns(summary.p50),
            ns(summary.p90),
            ns(summary.p99),
            ns(summary.p999),
            ns(summary.p9999),
            ns(summary.max),
        ]);
    }
    align_right(&mut table, 1..=11);
    out.table(&table)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates and times are positive")]
pub(super) fn whole(number: f64) -> String {
    grouped(number.round() as u64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in nanoseconds")]
fn of_float(nanoseconds: f64) -> String {
    ns(nanoseconds.round() as u64)
}

pub(super) fn job_as_json(args: &BenchSyncArgs, job: &Job) -> Document {
    doc! {
        "directory": args.dir.display().to_string(),
        "block_bytes": job.block_bytes as u64,
        "reads_percent": job.reads_percent as u64,
        "pattern": match job.pattern {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
        },
        "threads": job.threads as u64,
        "outstanding": job.outstanding as u64,
        "file_bytes": job.file_bytes,
        "synced": job.is_synced,
        "direct": job.is_direct,
    }
}

/// The figures of a run: `null` for a kind that did not occur.
pub(super) fn figures_into(job: &Job, took_ns: u64, kinds: &[(&'static str, Summary)], out: &mut Document) {
    out.set("took_ns", took_ns);
    for name in ["reads", "writes"] {
        let told = kinds.iter().find(|(kind, _)| *kind == name).map(|(_, summary)| {
            let (iops, megabytes) = rates(job, took_ns, summary.count);
            let mut told = doc! { "iops": iops, "megabytes_a_second": megabytes };
            summary_into(summary, &mut told);
            told
        });
        out.set(name, told.map_or(Value::Null, Value::Map));
    }
}
