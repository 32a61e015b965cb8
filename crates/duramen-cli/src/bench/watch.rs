//! `duramen bench sync --mix --watch`: the same job again and again, a line each time, until it is over; and whether the disk
//! slows down meanwhile.

use std::time::Duration;

use duramen::measure::{BASELINE_COUNT, Baseline, DRIFT_COUNT, Job, Mix, Outcome, Summary, baseline, drift};
use duramen::{Disk, Document, OsDisk, Value, doc};

use super::mix::{job_as_json, kinds, outcome_into, rates, whole};
use super::table::ns;
use crate::args::BenchSyncArgs;
use crate::failure::{FAILED, Failure, Result};
use crate::numbers::time;
use crate::output::Output;
use crate::signals::Signals;

/// One repetition, and when it ended.
struct Repetition {
    at: Duration,
    outcome: Outcome,
}

/// A figure that is watched: of one kind of operation, by repetition.
struct Watched {
    name: &'static str,
    figure: &'static str,
    values: Vec<f64>,
}

pub(super) fn run(
    args: &BenchSyncArgs,
    mix: &Mix,
    job: &Job,
    lasts: Duration,
    watched: Duration,
    signals: &Signals,
    out: Output,
) -> Result<()> {
    let clock = OsDisk::new();
    let go_on = || signals.received().is_none();
    let mut all: Vec<Repetition> = Vec::new();
    out.note(&format!("repeating a job of {} for {}", time(lasts), time(watched)));
    loop {
        let outcome = mix.run(lasts, &go_on).map_err(|error| Failure::io("measure in", &args.dir, &error))?;
        if !go_on() {
            break;
        }
        let at = Duration::from_nanos(clock.monotonic_ns());
        all.push(Repetition { at, outcome });
        if !out.is_json() {
            out.line(&line(job, &all))?;
        }
        if at >= watched {
            break;
        }
    }
    let found = drifts(&all);
    if out.is_json() {
        out.object("bench-sync-watch", as_json(args, job, &all, &found))?;
    } else {
        out.line(&verdict(all.len(), &found))?;
    }
    match signals.received() {
        Some(signal) => Err(Failure::signal(signal)),
        None if found.is_empty() => Ok(()),
        None => Err(Failure::Exit(FAILED)),
    }
}

/// The last repetition's figures, and what of them stands out.
fn line(job: &Job, all: &[Repetition]) -> String {
    let Some(last) = all.last() else { return String::new() };
    let mut text = format!("{:>9}", time(last.at));
    for (name, summary) in kinds(&last.outcome) {
        let (iops, megabytes) = rates(job, &last.outcome, summary.count);
        text.push_str(&format!(
            "  {name} {:>9} IOPS {megabytes:>8.1} MB/s  p50 {:>8}  p99 {:>8}  max {:>8}",
            whole(iops),
            ns(summary.p50),
            ns(summary.p99),
            ns(summary.max)
        ));
    }
    if all.len() > BASELINE_COUNT {
        for series in watched(all) {
            let Some(Baseline { median, limit }) = baseline(&series.values) else { continue };
            let value = series.values.last().copied().unwrap_or_default();
            if value > limit {
                text.push_str(&format!(
                    "  <- {} of {} above {}, first {}",
                    series.figure,
                    series.name,
                    whole_ns(limit),
                    whole_ns(median)
                ));
            }
        }
    }
    text
}

fn watched(all: &[Repetition]) -> Vec<Watched> {
    type Figure = (&'static str, fn(&Summary) -> u64);
    const FIGURES: [Figure; 2] = [("p50", |summary| summary.p50), ("p99", |summary| summary.p99)];
    let mut found = Vec::new();
    for name in ["reads", "writes"] {
        for (figure, of) in FIGURES {
            let of_kind = all.iter().filter_map(|repetition| {
                kinds(&repetition.outcome).find(|(kind, _)| *kind == name).map(|(_, summary)| of(&summary))
            });
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
            let values: Vec<f64> = of_kind.map(|value| value as f64).collect();
            found.push(Watched { name, figure, values });
        }
    }
    found
}

/// Each watched figure that drifts, with the repetition at which that began.
fn drifts(all: &[Repetition]) -> Vec<(Watched, usize)> {
    let watched = watched(all).into_iter();
    watched.filter_map(|series| drift(&series.values).map(|from| (series, from))).collect()
}

fn verdict(repetitions: usize, found: &[(Watched, usize)]) -> String {
    if repetitions < BASELINE_COUNT + DRIFT_COUNT {
        return format!(
            "drift cannot be told of {repetitions} repetitions: it takes {BASELINE_COUNT} to begin with and \
             {DRIFT_COUNT} more; say a longer --watch or fewer --seconds"
        );
    }
    if found.is_empty() {
        return format!(
            "no drift: never {DRIFT_COUNT} times in a row above what the first {BASELINE_COUNT} lead to expect"
        );
    }
    let told: Vec<String> = found
        .iter()
        .map(|(series, from)| format!("{} of {} from repetition {} on", series.figure, series.name, from + 1))
        .collect();
    format!(
        "DRIFT: slower than what the first {BASELINE_COUNT} lead to expect, {DRIFT_COUNT} times in a row: {}. A disk that slows \
         down under the same load wears out, heats up or cleans up; or something else began to use it",
        told.join(", ")
    )
}

fn whole_ns(nanoseconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in nanoseconds")]
    ns(nanoseconds as u64)
}

fn as_json(args: &BenchSyncArgs, job: &Job, all: &[Repetition], found: &[(Watched, usize)]) -> Document {
    let repetitions: Vec<Value> = all
        .iter()
        .map(|repetition| {
            let mut told = doc! { "at_ns": u64::try_from(repetition.at.as_nanos()).unwrap_or(u64::MAX) };
            outcome_into(job, &repetition.outcome, &mut told);
            Value::Map(told)
        })
        .collect();
    let drifts: Vec<Value> = found
        .iter()
        .map(|(series, from)| {
            Value::Map(doc! { "of": series.name, "figure": series.figure, "from": *from as u64 })
        })
        .collect();
    job_as_json(args, job)
        .with("can_tell", all.len() >= BASELINE_COUNT + DRIFT_COUNT)
        .with("drifts", drifts)
        .with("repetitions", repetitions)
}

#[cfg(test)]
mod tests {
    //! The words must be those of the figures.
    use super::*;

    fn repetition(write_ns: u64) -> Repetition {
        let mut outcome = Outcome { took_ns: 1, ..Outcome::default() };
        outcome.writes.add(write_ns);
        Repetition { at: Duration::from_secs(1), outcome }
    }

    #[test]
    fn what_drifts_is_named_with_its_beginning() {
        let all = |later: [u64; 3]| -> Vec<Repetition> {
            [1000; 5].into_iter().chain(later).map(repetition).collect()
        };
        let grey = drifts(&all([3000; 3]));
        assert_eq!(grey.len(), 2, "median and 99th percentile of writes; there are no reads");
        let told = verdict(8, &grey);
        assert!(told.starts_with("DRIFT") && told.contains("p50 of writes from repetition 6 on"), "{told}");
        assert!(verdict(8, &drifts(&all([1000, 3000, 3000]))).starts_with("no drift"));
        assert!(verdict(7, &[]).contains("cannot be told of 7"));
    }
}
