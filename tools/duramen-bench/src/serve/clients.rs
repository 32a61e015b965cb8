//! Tasks that write one row after the other, and what they measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use super::Serve;
use super::server::{Server, Writer};
use crate::data::Rows;
use crate::engine::{Result, Row};
use crate::job::Outcome;
use crate::machine;
use crate::workloads::commits::VALUE_BYTES;

/// Commits before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

/// What the tasks have done.
pub(super) struct Driven {
    /// Acknowledged rows, with those of the warm-up.
    pub(super) commits: u64,
    pub(super) outcome: Outcome,
}

/// Lets tasks write for the wanted time; rows are numbered from `first`.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 commits")]
pub(super) fn drive(server: &dyn Server, words: &Serve, tasks: usize, first: u64) -> Result<Driven> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let connections = words.connections.clamp(1, tasks);
    let writers = server.writers(&runtime, tasks, connections)?;
    let next = Arc::new(AtomicU64::new(first));
    let rows = Rows::new(words.seed, VALUE_BYTES);
    let begun = Instant::now() + WARM_UP;
    let end = begun + Duration::from_secs_f64(words.seconds);
    let running: Vec<_> = writers
        .into_iter()
        .map(|writer| runtime.spawn(write(writer, rows, Arc::clone(&next), begun, end)))
        .collect();
    let (server_before, clients_before) = runtime.block_on(async {
        tokio::time::sleep_until(begun.into()).await;
        (machine::cpu_seconds_of(server.process()), machine::cpu_seconds())
    });
    let (server_seconds, clients_seconds) = runtime.block_on(async {
        tokio::time::sleep_until(end.into()).await;
        (machine::cpu_seconds_of(server.process()) - server_before, machine::cpu_seconds() - clients_before)
    });
    let mut latencies = Vec::new();
    for task in running {
        latencies.extend(runtime.block_on(task)??);
    }
    latencies.sort_unstable();
    let measured = latencies.len().max(1) as f64;
    let us = |part: f64| duramen_lab::measure::quantile(&latencies, part).unwrap_or(0) as f64 / 1e3;
    let outcome = Outcome::default()
        .with("commits/s", latencies.len() as f64 / words.seconds)
        .with("p50 us", us(0.5))
        .with("p99 us", us(0.99))
        .with("processor us a commit, server", server_seconds * 1e6 / measured)
        .with("processor us a commit, clients", clients_seconds * 1e6 / measured);
    Ok(Driven { commits: next.load(Ordering::Relaxed) - first, outcome })
}

/// Writes until the end. Returns the nanoseconds of each commit of the measured time.
async fn write(
    mut writer: Box<dyn Writer>,
    rows: Rows,
    next: Arc<AtomicU64>,
    begun: Instant,
    end: Instant,
) -> Result<Vec<u64>> {
    let (mut latencies, mut value) = (Vec::new(), Vec::new());
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(latencies);
        }
        let row = next.fetch_add(1, Ordering::Relaxed);
        rows.value(row, &mut value);
        let key = rows.key(row);
        writer.put(Row { key: key.bytes(), value: &value }).await?;
        let answered = Instant::now();
        if sent >= begun && answered <= end {
            latencies.push(u64::try_from((answered - sent).as_nanos())?);
        }
    }
}
