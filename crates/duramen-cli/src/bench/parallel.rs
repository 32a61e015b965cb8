//! `duramen bench sync --parallel`: syncs per second by number of threads, and where more threads stop
//! paying.

use std::time::Duration;

use duramen::{Document, Value, doc};
use duramen_lab::measure::{Crowd, GAIN_MIN, ParallelPlan, Rates, Sharing, Summary, parallel, stops_paying};

use super::failed;
use super::strategies::{summary_into, turn};
use super::table::{bar, ns, unsteady};
use crate::args::BenchSyncArgs;
use crate::failure::Result;
use crate::numbers::grouped;
use crate::output::{Output, align_right, new_table};
use crate::signals::Signals;

const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const ROUNDS: u32 = 5;

/// The results.
pub(super) struct Found {
    pub(super) plan: ParallelPlan,
    pub(super) rows: Vec<Row>,
}

/// One number of threads with one kind of file.
pub(super) struct Row {
    pub(super) threads: u32,
    pub(super) sharing: Sharing,
    pub(super) rates: Rates,
    pub(super) summary: Summary,
}

pub(super) fn plan(args: &BenchSyncArgs) -> ParallelPlan {
    let mut threads = if args.threads.is_empty() { THREADS.to_vec() } else { args.threads.clone() };
    threads.sort_unstable();
    threads.dedup();
    ParallelPlan {
        threads,
        record_bytes: args.record,
        rounds: args.rounds.unwrap_or(ROUNDS),
        turn: turn(args),
    }
}

/// The duration of a plan, without creating the files.
pub(super) fn lasts(plan: &ParallelPlan) -> Duration {
    let turns = plan.rounds as usize * plan.threads.len() * Sharing::ALL.len();
    plan.turn * u32::try_from(turns).unwrap_or(u32::MAX)
}

pub(super) fn measure(args: &BenchSyncArgs, signals: &Signals) -> Result<Found> {
    let plan = plan(args);
    let crowds =
        parallel(&args.dir, &plan, &|| signals.received().is_none()).map_err(|error| failed(args, &error))?;
    Ok(Found { plan, rows: crowds.iter().filter_map(Row::of).collect() })
}

impl Row {
    fn of(crowd: &Crowd) -> Option<Row> {
        let (threads, sharing) = (crowd.threads, crowd.sharing);
        Some(Row { threads, sharing, rates: crowd.rates()?, summary: crowd.summary()? })
    }
}

impl Found {
    /// The rows of one kind of file, by number of threads.
    pub(super) fn of(&self, sharing: Sharing) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.sharing == sharing)
    }

    pub(super) fn stops(&self, sharing: Sharing) -> Option<u32> {
        stops_paying(&self.of(sharing).map(|row| (row.threads, row.rates.median)).collect::<Vec<_>>())
    }

    pub(super) fn show(&self, out: Output) -> Result<()> {
        let fastest = self.rows.iter().map(|row| row.rates.median).max().unwrap_or(1);
        let mut table = new_table(&["threads", "", "syncs/s", "rounds", "p50", "p99", "max", ""]);
        for row in &self.rows {
            table.add_row([
                grouped(u64::from(row.threads)),
                row.sharing.name().to_owned(),
                grouped(row.rates.median),
                format!("{} .. {}", grouped(row.rates.least), grouped(row.rates.most)),
                ns(row.summary.p50),
                ns(row.summary.p99),
                ns(row.summary.max),
                bar(row.rates.median, fastest),
            ]);
        }
        align_right(&mut table, [0, 2, 3, 4, 5, 6]);
        out.table(&table)?;
        for line in self.words() {
            out.line(&line)?;
        }
        Ok(())
    }

    /// Where more threads stop paying, and the consequence for commits, as text.
    pub(super) fn words(&self) -> Vec<String> {
        let percent = GAIN_MIN * 100.0;
        let mut words: Vec<String> = Sharing::ALL
            .iter()
            .filter(|sharing| self.of(**sharing).count() > 1)
            .map(|&sharing| match self.stops(sharing) {
                Some(threads) => format!(
                    "{}: more threads than {threads} stop paying: none of the larger numbers gains {percent:.0} % a \
                     doubling",
                    sharing.name()
                ),
                None => format!("{}: the largest number of threads still pays", sharing.name()),
            })
            .collect();
        let shared: Vec<&Row> = self.of(Sharing::OneFile).collect();
        let alone = shared.first().filter(|row| row.threads == 1);
        let best = shared.iter().max_by_key(|row| row.rates.median);
        match (alone, best) {
            (Some(_), Some(best)) if best.threads == 1 && shared.len() > 1 => words.push(
                "group commit: on one file no number of threads makes more syncs a second than one does"
                    .to_owned(),
            ),
            (Some(alone), Some(best)) if best.threads > 1 => {
                #[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
                let times = best.rates.median as f64 / alone.rates.median.max(1) as f64;
                words.push(format!(
                    "group commit: on one file {} threads make {times:.1} times as many syncs a second as one. Duramen makes one \
                     sync for all commits that wait, whatever their number, so that many writers cost it about as many syncs \
                     as one",
                    best.threads
                ));
            }
            _ => {}
        }
        let spreads = self.rows.iter().map(|row| (row.rates.least, row.rates.most));
        words.extend(unsteady(spreads));
        words
    }

    pub(super) fn as_json(&self, args: &BenchSyncArgs) -> Document {
        let rows: Vec<Value> = self.rows.iter().map(|row| Value::Map(row_as_json(row))).collect();
        let stops = |sharing| self.stops(sharing).map_or(Value::Null, |count| Value::from(u64::from(count)));
        doc! {
            "directory": args.dir.display().to_string(),
            "record_bytes": self.plan.record_bytes as u64,
            "rounds": u64::from(self.plan.rounds),
            "rows": rows,
            "stops_paying": doc! {
                "one_file": stops(Sharing::OneFile),
                "file_each": stops(Sharing::FileEach),
            },
        }
    }
}

fn row_as_json(row: &Row) -> Document {
    let mut out = doc! {
        "threads": u64::from(row.threads),
        "sharing": match row.sharing {
            Sharing::OneFile => "one_file",
            Sharing::FileEach => "file_each",
        },
        "syncs_a_second": row.rates.median,
        "round_syncs_a_second": vec![Value::from(row.rates.least), Value::from(row.rates.most)],
    };
    summary_into(&row.summary, &mut out);
    out
}
