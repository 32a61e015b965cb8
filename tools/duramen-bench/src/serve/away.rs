//! `serve-away`: writes at a steady rate to a cluster, while a node joins it and is killed again and again
//! on the way, and while a follower is away for long.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use duramen::{Db, LocalReads as _, doc};
use tokio::runtime::Runtime;

use super::duramen::{COLLECTION, Nodes, all_vote, rows_at, tasks_at};
use super::server::Writer;
use crate::data::Rows;
use crate::engine::{Result, Row};
use crate::tables::Grid;
use crate::workloads::SEED;
use crate::workloads::commits::VALUE_BYTES;
use crate::{child, machine, output};

/// How to measure nodes that come and go.
#[derive(Debug, Args)]
pub(crate) struct ServeAway {
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// The program duramen, whose `serve` is each node.
    #[arg(long, default_value = "duramen", value_name = "FILE")]
    pub duramen: PathBuf,
    /// MiB of rows of 1 KiB that are there before a node joins.
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    pub stored_mib: u64,
    /// Writes a second, each of one row of 1 KiB.
    #[arg(long, default_value_t = 5000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: u64,
    /// How often the node that joins is killed on the way.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub kills: u64,
    /// How long a follower is away.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub away_seconds: u64,
}

/// Tasks that write.
const TASKS: usize = 64;
const CONNECTIONS: usize = 4;
/// Rows of a transaction that fills the database.
const TOGETHER: u64 = 1_000;
/// How long a node may take to be there again.
const PATIENCE: Duration = Duration::from_secs(1800);
const LOOK: Duration = Duration::from_millis(200);

/// Writes that were acknowledged, and how long each took from when it was due.
#[derive(Default)]
struct Load {
    next: AtomicU64,
    ends: AtomicBool,
    taken: Mutex<Vec<u64>>,
}

impl Load {
    fn begin(
        runtime: &Runtime,
        words: &ServeAway,
        serves: &str,
        rows: Rows,
        first: u64,
    ) -> Result<Arc<Load>> {
        let load = Arc::new(Load::default());
        let begun = Instant::now();
        for task in runtime.block_on(tasks_at(serves, TASKS, CONNECTIONS))? {
            let (load, rate) = (Arc::clone(&load), words.rate);
            runtime.spawn(async move { load.write(Box::new(task), (rows, first), (begun, rate)).await });
        }
        Ok(load)
    }

    async fn write(
        &self,
        mut writer: Box<dyn Writer>,
        (rows, first): (Rows, u64),
        (begun, rate): (Instant, u64),
    ) {
        let mut value = Vec::new();
        while !self.ends.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let due = begun
                + Duration::from_secs(1) * u32::try_from(number / rate).unwrap_or(u32::MAX)
                + Duration::from_nanos(number % rate * 1_000_000_000 / rate);
            tokio::time::sleep_until(due.into()).await;
            rows.value(first + number, &mut value);
            let key = rows.key(first + number);
            while let Err(error) = writer.put(Row { key: key.bytes(), value: &value }).await {
                output::progress(&format!("a write failed, and is repeated: {error}"));
                tokio::time::sleep(LOOK).await;
            }
            let nanos = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(nanos);
        }
    }

    /// What was acknowledged since the last call.
    fn taken(&self) -> Vec<u64> {
        let mut taken = std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner));
        taken.sort_unstable();
        taken
    }
}

/// Measures, and prints a table.
///
/// # Errors
/// If a node is not there again, or lacks a row that was acknowledged.
pub(crate) fn run(words: &ServeAway) -> Result<()> {
    let dir = words.dir.join(format!("duramen-away-{}", std::process::id()));
    child::fresh(&dir)?;
    let dir = std::fs::canonicalize(dir)?;
    let rows = Rows::new(SEED, VALUE_BYTES);
    let stored = words.stored_mib * 1024;
    output::progress(&format!("{stored} rows are stored"));
    let mut nodes = Nodes::found(&dir, &words.duramen, |db| fill(db, &rows, stored))?;
    for count in [2, 3] {
        let node = nodes.add()?;
        if count == 2 {
            nodes.start_member(node)?;
            nodes.until(0, |members| members.len() == count)?;
        }
    }
    machine::settle(&dir);
    let runtime = Runtime::new()?;
    let load = Load::begin(&runtime, words, &nodes.all[0].serves, rows, stored)?;
    let mut table = Phases { nodes: Vec::new(), load: Arc::clone(&load) };
    table.phase("two nodes", Duration::from_secs(10), &nodes, || std::thread::sleep(Duration::from_secs(10)));

    let begun = Instant::now();
    for kill in 0..words.kills {
        nodes.start_member(2)?;
        // Each time a little further on the way.
        std::thread::sleep(Duration::from_millis(500 + 700 * kill));
        nodes.kill(2)?;
    }
    nodes.start_member(2)?;
    until(|| nodes.until(0, all_vote).is_ok())?;
    table.note(&format!("a node joins, killed {} times", words.kills), begun.elapsed(), &nodes);

    nodes.kill(2)?;
    let away = Duration::from_secs(words.away_seconds);
    table.phase("a follower is away", away, &nodes, || std::thread::sleep(away));
    let begun = Instant::now();
    nodes.start_member(2)?;
    until(|| has_caught_up(&runtime, &nodes))?;
    table.note("it comes back", begun.elapsed(), &nodes);

    load.ends.store(true, Ordering::Relaxed);
    // The writes that are under way.
    std::thread::sleep(Duration::from_secs(3));
    let written = stored + load.next.load(Ordering::Relaxed);
    for node in &nodes.all {
        let has = runtime.block_on(rows_at(&node.serves))?;
        if has != written {
            return Err(format!("{} has {has} rows, and {written} were acknowledged", node.serves).into());
        }
    }
    table.show(words, written);
    drop(nodes);
    child::remove(&dir)
}

fn fill(db: &Db, rows: &Rows, count: u64) -> Result<()> {
    let mut value = Vec::new();
    for first in (0..count).step_by(usize::try_from(TOGETHER)?) {
        let mut documents = Vec::new();
        for number in first..count.min(first + TOGETHER) {
            rows.value(number, &mut value);
            documents.push(doc! { "key": rows.key(number).bytes().to_vec(), "value": value.clone() });
        }
        db.transact(|tx| {
            let into = tx.documents(COLLECTION);
            documents.iter().try_for_each(|document| into.put(document.clone()).map(drop))
        })?;
    }
    Ok(())
}

/// Whether the node that came back lacks less than a second of writes.
fn has_caught_up(runtime: &Runtime, nodes: &Nodes) -> bool {
    let is_near = |members: &[duramen_proto::v1::Member]| {
        members.iter().all(|member| member.behind.is_none_or(|behind| behind < 1000) && !member.needs_copy)
    };
    let serves = || runtime.block_on(rows_at(&nodes.all[2].serves)).is_ok();
    nodes.until(0, is_near).is_ok() && serves()
}

fn until(is_so: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("it is not there after {PATIENCE:?}").into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What was measured, phase by phase.
struct Phases {
    nodes: Vec<Vec<String>>,
    load: Arc<Load>,
}

impl Phases {
    fn phase(&mut self, name: &str, lasts: Duration, nodes: &Nodes, during: impl FnOnce()) {
        self.load.taken();
        during();
        self.note(name, lasts, nodes);
    }

    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 writes")]
    fn note(&mut self, name: &str, lasts: Duration, nodes: &Nodes) {
        let taken = self.load.taken();
        let ms = |part: f64| duramen_lab::measure::quantile(&taken, part).unwrap_or(0) as f64 / 1e6;
        let of_both = |of: &dyn Fn(usize) -> u64| format!("{}; {}", of(0) >> 20, of(1) >> 20);
        let memory =
            |node: usize| nodes.process(node).and_then(machine::resident_bytes_max_of).unwrap_or_default();
        output::progress(&format!("{name}: {:.1} s", lasts.as_secs_f64()));
        self.nodes.push(vec![
            name.to_owned(),
            format!("{:.1}", lasts.as_secs_f64()),
            format!("{:.0}", taken.len() as f64 / lasts.as_secs_f64()),
            format!("{:.1}; {:.1}; {:.1}", ms(0.5), ms(0.99), ms(1.0)),
            of_both(&memory),
            of_both(&|node| nodes.space_bytes(node)),
        ]);
    }

    fn show(self, words: &ServeAway, written: u64) {
        output::line(&machine::sentence());
        output::line(&format!(
            "{} MiB of rows first, {} writes/s of 1 KiB wanted; at the end each node has all {written} rows",
            words.stored_mib, words.rate
        ));
        let head =
            ["", "s", "writes/s", "p50; p99; longest, ms", "peak memory of two, MiB", "disk of two, MiB"];
        let head = head.map(str::to_owned).to_vec();
        output::table(&Grid { head, rows: self.nodes }.table());
    }
}
