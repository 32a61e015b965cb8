//! `duramen bench sync --mix --watch`: repeats the same job, prints a line each time, and detects a slowdown
//! of the disk.

use std::time::Duration;

use duramen::{Disk, Document, OsDisk, Value, doc};
use duramen_lab::measure::{
    Baseline, COUNT_MIN, Course, Job, LAST_COUNT, Mix, Outcome, Summary, baseline, course,
};

use super::failed;
use super::mix::{figures_into, job_as_json, kinds, rates, whole};
use super::table::ns;
use crate::args::BenchSyncArgs;
use crate::failure::{FAILED, Failure, Result};
use crate::numbers::time;
use crate::output::Output;
use crate::signals::Signals;

/// The figures of one repetition, and when it ended. Nothing else is kept of it, however long the watch.
struct Repetition {
    at: Duration,
    took_ns: u64,
    /// The kinds of operations that occurred.
    kinds: Vec<(&'static str, Summary)>,
}

impl Repetition {
    fn of(at: Duration, outcome: &Outcome) -> Repetition {
        Repetition { at, took_ns: outcome.took_ns, kinds: kinds(outcome).collect() }
    }

    fn kind(&self, name: &str) -> Option<&Summary> {
        self.kinds.iter().find(|(kind, _)| *kind == name).map(|(_, summary)| summary)
    }
}

/// A watched figure of one kind of operation.
struct Watched {
    name: &'static str,
    figure: &'static str,
    of: fn(&Summary) -> u64,
    /// The repetitions that have it, from 0, with its values.
    points: Vec<(usize, f64)>,
    /// The values expected from the points so far: recomputed at each doubling of their number.
    expected: Option<Baseline>,
}

/// All repetitions, and their watched figures.
struct Watch {
    all: Vec<Repetition>,
    watched: Vec<Watched>,
}

/// The course of one figure.
struct Went {
    name: &'static str,
    figure: &'static str,
    course: Course,
}

/// Fewer repetitions cannot show a drift.
const REPETITIONS_MIN: usize = COUNT_MIN + LAST_COUNT;

/// Refuses a watch that would end before it can show a drift.
pub(super) fn check(lasts: Duration, watched: Duration) -> Result<()> {
    let needed = lasts.saturating_mul(u32::try_from(REPETITIONS_MIN).unwrap_or(u32::MAX));
    if watched >= needed {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "a watch of {} is too short to tell drift: it takes {REPETITIONS_MIN} repetitions of {}",
            time(watched),
            time(lasts)
        ),
        format!("use --watch {}s or longer, or fewer --seconds", needed.as_secs()),
    ))
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
    let mut watch = Watch::new();
    out.note(&format!("repeating a job of {} for {}", time(lasts), time(watched)));
    loop {
        let outcome = mix.run(lasts, &go_on).map_err(|error| failed(args, &error))?;
        if !go_on() {
            break;
        }
        let at = Duration::from_nanos(clock.monotonic_ns());
        watch.add(Repetition::of(at, &outcome));
        if !out.is_json() {
            out.line(&watch.line(job))?;
        }
        if at >= watched {
            break;
        }
    }
    let went = watch.went();
    if out.is_json() {
        out.object("bench-sync-watch", as_json(args, job, &watch.all, &went))?;
    } else {
        for line in verdict(watch.all.len(), &went) {
            out.line(&line)?;
        }
    }
    match signals.received() {
        Some(signal) => Err(Failure::signal(signal)),
        None if went.iter().any(|went| matches!(went.course, Course::Drift { .. })) => {
            Err(Failure::Exit(FAILED))
        }
        None => Ok(()),
    }
}

impl Watch {
    fn new() -> Watch {
        type Figure = (&'static str, fn(&Summary) -> u64);
        const FIGURES: [Figure; 2] = [("p50", |summary| summary.p50), ("p99", |summary| summary.p99)];
        let of_kind = |name| {
            FIGURES.map(|(figure, of)| Watched { name, figure, of, points: Vec::new(), expected: None })
        };
        Watch { all: Vec::new(), watched: ["reads", "writes"].into_iter().flat_map(of_kind).collect() }
    }

    fn add(&mut self, repetition: Repetition) {
        let index = self.all.len();
        for watched in &mut self.watched {
            let Some(summary) = repetition.kind(watched.name) else { continue };
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
            let value = (watched.of)(summary) as f64;
            watched.points.push((index, value));
            let count = watched.points.len();
            if count == COUNT_MIN || count.is_power_of_two() {
                watched.expected = baseline(&watched.points.iter().map(|point| point.1).collect::<Vec<_>>());
            }
        }
        self.all.push(repetition);
    }

    /// The last repetition's figures, with its outliers.
    fn line(&self, job: &Job) -> String {
        let Some(last) = self.all.last() else { return String::new() };
        let mut text = format!("{:>9}", time(last.at));
        for (name, summary) in &last.kinds {
            let (iops, megabytes) = rates(job, last.took_ns, summary.count);
            text.push_str(&format!(
                "  {name} {:>9} IOPS {megabytes:>8.1} MB/s  p50 {:>8}  p99 {:>8}  max {:>8}",
                whole(iops),
                ns(summary.p50),
                ns(summary.p99),
                ns(summary.max)
            ));
        }
        for watched in &self.watched {
            let Some(Baseline { median, limit }) = watched.expected else { continue };
            let newest = watched.points.last().filter(|(index, _)| index + 1 == self.all.len());
            if newest.is_some_and(|(_, value)| watched.points.len() > COUNT_MIN && *value > limit) {
                text.push_str(&format!(
                    "  <- {} of {} above {}, first {}",
                    watched.figure,
                    watched.name,
                    whole_ns(limit),
                    whole_ns(median)
                ));
            }
        }
        text
    }

    /// The course of each figure that occurred.
    fn went(&self) -> Vec<Went> {
        let watched = self.watched.iter().filter(|watched| !watched.points.is_empty());
        let went = watched.map(|watched| Went {
            name: watched.name,
            figure: watched.figure,
            course: course(&watched.points),
        });
        went.collect()
    }
}

impl Went {
    /// `p50 of reads`.
    fn title(&self) -> String {
        format!("{} of {}", self.figure, self.name)
    }
}

/// The findings as text, the worst first.
fn verdict(repetitions: usize, went: &[Went]) -> Vec<String> {
    if repetitions < REPETITIONS_MIN {
        return vec![format!(
            "drift cannot be told of {repetitions} repetitions: it takes {COUNT_MIN} to begin with and {LAST_COUNT} more; use a \
             longer --watch or fewer --seconds"
        )];
    }
    let told = |each: &dyn Fn(&Went) -> Option<String>| went.iter().filter_map(each).collect::<Vec<_>>();
    let drifts = told(&|went| match went.course {
        Course::Drift { from } => Some(format!("{} from repetition {} on", went.title(), from + 1)),
        _ => None,
    });
    let recovered = told(&|went| match went.course {
        Course::Recovered { from, to } => {
            Some(format!("{} from repetition {} to {}", went.title(), from + 1, to + 1))
        }
        _ => None,
    });
    let too_short = told(&|went| (went.course == Course::TooShort).then(|| went.title()));
    let steady = told(&|went| (went.course == Course::Steady).then(|| went.title()));
    let mut lines = Vec::new();
    if !drifts.is_empty() {
        lines.push(format!(
            "DRIFT: the last {LAST_COUNT} are slower than what the first lead to expect: {}. A disk that slows down under the \
             same load wears out, heats up or cleans up; or something else began to use it",
            drifts.join(", ")
        ));
    }
    if !recovered.is_empty() {
        lines.push(format!("slower for a while, since recovered: {}", recovered.join(", ")));
    }
    if !steady.is_empty() {
        lines.push(format!("no drift: {}", steady.join(", ")));
    }
    if !too_short.is_empty() {
        lines.push(format!("too few repetitions have it to tell drift: {}", too_short.join(", ")));
    }
    lines
}

fn whole_ns(nanoseconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in nanoseconds")]
    ns(nanoseconds as u64)
}

fn as_json(args: &BenchSyncArgs, job: &Job, all: &[Repetition], went: &[Went]) -> Document {
    let repetitions: Vec<Value> = all
        .iter()
        .map(|repetition| {
            let mut told = doc! { "at_ns": u64::try_from(repetition.at.as_nanos()).unwrap_or(u64::MAX) };
            figures_into(job, repetition.took_ns, &repetition.kinds, &mut told);
            Value::Map(told)
        })
        .collect();
    let (mut drifts, mut recovered) = (Vec::new(), Vec::new());
    for went in went {
        let named = doc! { "of": went.name, "figure": went.figure };
        match went.course {
            Course::Drift { from } => drifts.push(Value::Map(named.with("from", from as u64))),
            Course::Recovered { from, to } => {
                recovered.push(Value::Map(named.with("from", from as u64).with("to", to as u64)));
            }
            Course::Steady | Course::TooShort => {}
        }
    }
    let can_tell = !went.is_empty() && went.iter().all(|went| went.course != Course::TooShort);
    job_as_json(args, job)
        .with("can_tell", can_tell)
        .with("drifts", drifts)
        .with("recovered", recovered)
        .with("repetitions", repetitions)
}

#[cfg(test)]
mod tests {
    //! The texts must match the figures.
    use super::*;

    fn told(writes: &[u64], reads: &[usize]) -> (Vec<String>, Vec<Course>) {
        let mut watch = Watch::new();
        for (index, ns) in writes.iter().enumerate() {
            let mut outcome = Outcome { took_ns: 1, ..Outcome::default() };
            outcome.writes.add(*ns);
            if reads.contains(&index) {
                outcome.reads.add(100);
            }
            watch.add(Repetition::of(Duration::from_secs(1), &outcome));
        }
        let went = watch.went();
        (verdict(writes.len(), &went), went.iter().map(|went| went.course).collect())
    }

    #[test]
    fn what_drifts_is_named_with_its_beginning() {
        let (lines, courses) = told(&[&[1000; 5][..], &[3000; 5]].concat(), &[]);
        assert_eq!(courses.len(), 2, "median and 99th percentile of writes; there are no reads");
        assert!(lines[0].starts_with("DRIFT"), "{lines:?}");
        assert!(lines[0].contains("p50 of writes from repetition 6 on"), "{lines:?}");
        assert!(told(&[1000; 10], &[]).0[0].starts_with("no drift: p50 of writes, p99 of writes"));
        assert!(told(&[1000; 9], &[]).0[0].contains("cannot be told of 9"));
    }

    #[test]
    fn what_has_recovered_is_no_drift() {
        let (lines, courses) = told(&[&[1000; 6][..], &[3000; 3], &[1000; 6]].concat(), &[]);
        assert_eq!(courses, [Course::Recovered { from: 6, to: 8 }; 2]);
        assert!(lines[0].contains("since recovered: p50 of writes from repetition 7 to 9"), "{lines:?}");
    }

    #[test]
    fn what_there_was_too_seldom_is_not_called_steady() {
        let (lines, _) = told(&[1000; 20], &[3, 7, 9]);
        let last = lines.last().map(String::as_str);
        assert_eq!(last, Some("too few repetitions have it to tell drift: p50 of reads, p99 of reads"));
    }

    #[test]
    fn a_watch_that_cannot_tell_is_refused() {
        assert!(check(Duration::from_secs(10), Duration::from_secs(99)).is_err());
        assert!(check(Duration::from_secs(10), Duration::from_secs(100)).is_ok());
    }
}
