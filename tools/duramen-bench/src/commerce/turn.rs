//! One engine's turn, in a child process: loads the shop, runs the agents, audits it, and returns the result.

use std::time::Instant;

use duramen_lab::measure::Summary;

use super::agents;
use super::audit::audit;
use super::generator::Data;
use super::model::{Item, Operation};
use super::plans;
use super::ratings::Ratings;
use super::shop::Store;
use super::shopper::Done;
use super::{Setting, shops};
use crate::engine::{Failure, Result};
use crate::job::{Job, Outcome};
use crate::machine;

/// Rows per transaction of the load: all but the largest data set are loaded in one, with their stock.
const LOAD_ITEMS: usize = 25_000;

/// Runs a job.
///
/// # Errors
/// Errors of the engine or the system; a wrong answer; a failed audit.
#[allow(clippy::cast_precision_loss, reason = "counts of one run are far below 2^53")]
pub(crate) fn turn(job: &Job, setting: Setting) -> Result<Outcome> {
    let data = Data::new(setting.size.counts(), setting.mix.stock(), job.seed);
    let plans = plans::draw(setting.mix, data.counts(), usize::try_from(job.rows)?, job.seed);
    let ratings = Ratings::new(&data);
    let named = shops::named(std::slice::from_ref(&job.engine))?;
    let entry = named.first().ok_or_else(|| format!("this build has no {}", job.engine))?;
    let store = (entry.open)(&job.dir, data.stock())?;
    let load_seconds = load(&*store, &data)?;
    machine::settle(&job.dir);
    let cpu_before = machine::cpu_seconds();
    let (done, seconds) = agents::follow(&*store, &data, &ratings, &plans, job.threads)?;
    let cpu_seconds = machine::cpu_seconds() - cpu_before;
    let note = store.note();
    audit(&mut *store.shop()?, &data, &ratings, &done.ledger)?;
    store.close()?;
    let steps: usize = plans.iter().map(Vec::len).sum();
    Ok(figures(&done)
        .with("operations/s", steps as f64 / seconds)
        .with("plans/s", plans.len() as f64 / seconds)
        .with("seconds", seconds)
        .with("load ms", load_seconds * 1e3)
        .with("process's cpu us each", cpu_seconds * 1e6 / steps as f64)
        .with("MB on disk", machine::space_bytes(&job.dir) as f64 / 1e6)
        .noting(note))
}

/// Loads everything. Returns the seconds that the engine took.
fn load(store: &dyn Store, data: &Data) -> Result<f64> {
    let mut shop = store.shop()?;
    let mut items = data.items().peekable();
    let mut seconds = 0.0;
    while items.peek().is_some() {
        let batch: Vec<Item> = items.by_ref().take(LOAD_ITEMS).collect();
        let begun = Instant::now();
        shop.load(&batch).map_err(|failed| -> Failure { format!("the load: {failed}").into() })?;
        seconds += begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    shop.loaded()?;
    Ok(seconds + begun.elapsed().as_secs_f64())
}

/// The figures of each operation, prefixed with its name; and the totals.
#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
fn figures(done: &Done) -> Outcome {
    let (mut outcome, mut writes, mut retries) = (Outcome::default(), 0, 0);
    for ((operation, name), calls) in Operation::ALL.iter().zip(&done.calls) {
        let Some(summary) = Summary::of(&calls.samples) else { continue };
        let us = |ns: u64| ns as f64 / 1e3;
        for (figure, value) in [
            ("count", summary.count as f64),
            ("mean us", summary.avg / 1e3),
            ("p50 us", us(summary.p50)),
            ("p99 us", us(summary.p99)),
            ("p99.9 us", us(summary.p999)),
            ("max us", us(summary.max)),
            ("retries", calls.retries as f64),
        ] {
            outcome = outcome.with(&format!("{name} {figure}"), value);
        }
        writes += if operation.writes() { calls.samples.len() } else { 0 };
        retries += calls.retries;
    }
    outcome.with("commits in all", writes as f64).with("retries in all", retries as f64)
}
