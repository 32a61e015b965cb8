//! Tasks that store or read one row after the other, or make one transfer after the other, and what they
//! measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen_disk::memory::mixed;
use tokio::runtime::{Builder, Runtime};

use super::server::{Done, Reader, Server, Teller, Transfer, Writer};
use super::{Serve, Work};
use crate::data::{Key, Rows};
use crate::engine::{Result, Row};
use crate::job::Outcome;
use crate::machine;

/// Commits before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// What gets choose from.
pub(super) const STORED_ROWS: u64 = 10_000;
const FILLING_TASKS: usize = 64;

/// What the tasks have done.
pub(super) struct Driven {
    /// Answered pieces of work, with those of the warm-up.
    pub(super) done: u64,
    pub(super) outcome: Outcome,
}

/// A task: does the piece of work of a number.
trait Task: Send {
    fn step(&mut self, number: u64) -> Done<'_>;
}

/// The row that was drawn last.
struct Drawn {
    rows: Rows,
    key: Key,
    value: Vec<u8>,
}

impl Drawn {
    fn of(rows: Rows) -> Drawn {
        Drawn { rows, key: rows.key(0), value: Vec::new() }
    }

    fn row(&mut self, number: u64) -> Row<'_> {
        self.rows.value(number, &mut self.value);
        self.key = self.rows.key(number);
        Row { key: self.key.bytes(), value: &self.value }
    }
}

/// Stores the row of a number.
struct Storing {
    writer: Box<dyn Writer>,
    drawn: Drawn,
}

impl Task for Storing {
    fn step(&mut self, number: u64) -> Done<'_> {
        self.writer.put(self.drawn.row(number))
    }
}

/// Reads one of the stored rows.
struct Reading {
    reader: Box<dyn Reader>,
    drawn: Drawn,
}

impl Task for Reading {
    fn step(&mut self, number: u64) -> Done<'_> {
        self.reader.get(self.drawn.row(mixed(number) % STORED_ROWS))
    }
}

/// Makes the transfer of a number.
struct Moving {
    teller: Box<dyn Teller>,
    seed: u64,
}

impl Task for Moving {
    fn step(&mut self, number: u64) -> Done<'_> {
        self.teller.transfer(Transfer::of(self.seed, number))
    }
}

fn tasks_of(
    server: &dyn Server,
    words: &Serve,
    runtime: &Runtime,
    tasks: usize,
) -> Result<Vec<Box<dyn Task>>> {
    let connections = words.connections.clamp(1, tasks);
    let rows = words.rows();
    Ok(match words.work {
        Work::Put => {
            let writers = server.writers(runtime, tasks, connections)?.into_iter();
            let task = |writer| Box::new(Storing { writer, drawn: Drawn::of(rows) });
            writers.map(|writer| task(writer) as Box<dyn Task>).collect()
        }
        Work::Get => {
            let readers = server.readers(runtime, tasks, connections)?.into_iter();
            let task = |reader| Box::new(Reading { reader, drawn: Drawn::of(rows) });
            readers.map(|reader| task(reader) as Box<dyn Task>).collect()
        }
        Work::Transfer => {
            let tellers = server.tellers(runtime, tasks, connections)?.into_iter();
            let task = |teller| Box::new(Moving { teller, seed: words.seed });
            tellers.map(|teller| task(teller) as Box<dyn Task>).collect()
        }
    })
}

/// Stores the rows that gets read.
pub(super) fn fill(server: &dyn Server, words: &Serve) -> Result<()> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let next = Arc::new(AtomicU64::new(0));
    let rows = words.rows();
    let store = |mut writer: Box<dyn Writer>| {
        let next = Arc::clone(&next);
        runtime.spawn(async move {
            let mut drawn = Drawn::of(rows);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= STORED_ROWS {
                    return Result::Ok(());
                }
                writer.put(drawn.row(number)).await?;
            }
        })
    };
    let writers = server.writers(&runtime, FILLING_TASKS, words.connections)?;
    let storing: Vec<_> = writers.into_iter().map(store).collect();
    storing.into_iter().try_for_each(|task| runtime.block_on(task)?)
}

/// Lets tasks work for the wanted time; rows and transfers are numbered from `first`.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 commits")]
pub(super) fn drive(server: &dyn Server, words: &Serve, tasks: usize, first: u64) -> Result<Driven> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let tasks = tasks_of(server, words, &runtime, tasks)?;
    let next = Arc::new(AtomicU64::new(first));
    let begun = Instant::now() + WARM_UP;
    let end = begun + Duration::from_secs_f64(words.seconds);
    let running: Vec<_> =
        tasks.into_iter().map(|task| runtime.spawn(work(task, Arc::clone(&next), begun, end))).collect();
    let (server_before, clients_before) = runtime.block_on(async {
        tokio::time::sleep_until(begun.into()).await;
        (servers_seconds(server), machine::cpu_seconds())
    });
    let (server_seconds, clients_seconds) = runtime.block_on(async {
        tokio::time::sleep_until(end.into()).await;
        (servers_seconds(server) - server_before, machine::cpu_seconds() - clients_before)
    });
    let mut latencies = Vec::new();
    for task in running {
        latencies.extend(runtime.block_on(task)??);
    }
    latencies.sort_unstable();
    let measured = latencies.len().max(1) as f64;
    let us = |part: f64| duramen_lab::measure::quantile(&latencies, part).unwrap_or(0) as f64 / 1e3;
    let outcome = Outcome::default()
        .with(words.work.rate(), latencies.len() as f64 / words.seconds)
        .with("p50 us", us(0.5))
        .with("p99 us", us(0.99))
        .with("processor us each, servers", server_seconds * 1e6 / measured)
        .with("processor us each, clients", clients_seconds * 1e6 / measured);
    Ok(Driven { done: next.load(Ordering::Relaxed) - first, outcome })
}

fn servers_seconds(server: &dyn Server) -> f64 {
    server.processes().into_iter().map(machine::cpu_seconds_of).sum()
}

/// Works until the end. Returns the nanoseconds of each piece of work of the measured time.
async fn work(
    mut task: Box<dyn Task>,
    next: Arc<AtomicU64>,
    begun: Instant,
    end: Instant,
) -> Result<Vec<u64>> {
    let mut latencies = Vec::new();
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(latencies);
        }
        task.step(next.fetch_add(1, Ordering::Relaxed)).await?;
        let answered = Instant::now();
        if sent >= begun && answered <= end {
            latencies.push(u64::try_from((answered - sent).as_nanos())?);
        }
    }
}
