//! Many threads commit one new row each, durably, on a real disk: how many commits share a sync.
//!
//! `cargo run --release -p duramen-sim --example group_commit -- DIR [THREADS] [SECONDS] [node]`
//!
//! With `node`, the database is the only node of a cluster: its commits wait until Raft's log is synced.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use duramen_disk::OsDisk;
use duramen_engine::{
    Durability, Engine, Entry, Founding, Hooks, Ident, OpenReplica, Options, Proposer, RaftLog, Result,
};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    let threads: u64 = args.next().map_or(16, |n| n.parse().expect("a number of threads"));
    let seconds: u64 = args.next().map_or(5, |n| n.parse().expect("a number of seconds"));
    let is_node = args.next().is_some_and(|word| word == "node");
    let (engine, raft_log) = if is_node { open_node(&dir)? } else { (open_alone(&dir)?, None) };
    let (tree, _) = engine.transact(Durability::Disk, |tx| match tx.tree("rows")? {
        Some(tree) => Ok(tree),
        None => tx.create_tree("rows", None),
    })?;
    let stop = AtomicBool::new(false);
    let next = AtomicU64::new(engine.snapshot()?.tree_info(tree)?.len);
    let before = engine.stats();
    let began = Instant::now();
    let latencies: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| work(&engine, tree, &next, &stop))).collect();
        std::thread::park_timeout(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("workers do not panic")).collect()
    });
    let elapsed = began.elapsed().as_secs_f64();
    let after = engine.stats();
    let mut all: Vec<u64> = latencies.concat();
    all.sort_unstable();
    let commits = after.commit.commits - before.commit.commits;
    let syncs = after.log.sync_count - before.log.sync_count;
    if let Some(log) = &raft_log {
        println!("{} entries decided", log.decided().0);
    }
    println!(
        "{threads} threads: {:.0} commits/s, {:.2} commits per sync, p50 {} us, p99 {} us, max {} us, {} checkpoints",
        commits as f64 / elapsed,
        commits as f64 / syncs as f64,
        all[all.len() / 2],
        all[all.len() * 99 / 100],
        all[all.len() - 1],
        after.checkpoints - before.checkpoints,
    );
    engine.close()
}

fn open_alone(dir: &Path) -> Result<Engine> {
    Engine::open(Arc::new(OsDisk::new()), dir, Options::default(), Hooks::default())
}

/// Opens the only node of a cluster, which leads.
fn open_node(dir: &Path) -> Result<(Engine, Option<Arc<RaftLog>>)> {
    let (applies, decided) = channel();
    let decides = Arc::new(Decides { log: OnceLock::new(), applies });
    let proposer: Arc<dyn Proposer> = Arc::clone(&decides) as Arc<dyn Proposer>;
    let (disk, options) = (Arc::new(OsDisk::new()), Options::default());
    let founding = Founding { ident: Ident { cluster: 1, node: 1 }, members: b"alone", time_ns: 0 };
    let OpenReplica { engine, replica, log, found } =
        Engine::open_replica(disk, dir, options, Hooks::default(), Some(founding), proposer)?;
    let log = Arc::new(log);
    decides.log.set(Arc::clone(&log)).expect("set once");
    let (applied, end) = (replica.end()?, log.end());
    let mut undecided = log.entries(applied.id.seq.next()..end.id.seq.next(), usize::MAX).unwrap_or_default();
    let term = found.last.term + 1;
    let blank = Entry::blank(&end, term);
    log.append(vec![blank.clone()], Box::new(|_| ()))?;
    undecided.push(blank);
    replica.apply(&undecided)?;
    replica.lead(term, log.end())?;
    std::thread::spawn(move || decided.iter().try_for_each(|entries: Vec<Entry>| replica.apply(&entries)));
    Ok((engine, Some(log)))
}

/// A majority of one: what is synced is decided.
struct Decides {
    log: OnceLock<Arc<RaftLog>>,
    applies: Sender<Vec<Entry>>,
}

impl Proposer for Decides {
    fn propose(&self, _term: u64, entries: Vec<Entry>) {
        let log = Arc::clone(self.log.get().expect("the log is open before the node leads"));
        let (applies, decided) = (self.applies.clone(), Arc::clone(&log));
        let last = entries.last().expect("a group has entries").id.seq;
        let synced = move |entries: Vec<Entry>| {
            decided.decide(last).expect("the entry is there");
            // Once the node is closed, the thread that applies has ended.
            drop(applies.send(entries));
        };
        let copy = entries.clone();
        log.append(
            entries,
            Box::new(move |done| {
                if done.is_ok() {
                    synced(copy)
                }
            }),
        )
        .expect("the only leader appends in order");
    }
}

fn work(engine: &Engine, tree: duramen_engine::TreeId, next: &AtomicU64, stop: &AtomicBool) -> Vec<u64> {
    let mut latencies = Vec::new();
    let mut value = vec![7u8; 1024];
    while !stop.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        value[..8].copy_from_slice(&id.to_le_bytes());
        let began = Instant::now();
        let mut tx = engine.begin().expect("the engine is open");
        tx.put(tree, &id.to_be_bytes(), &value).expect("the key is short");
        tx.commit(Durability::Disk).expect("a blind write commits");
        latencies.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    latencies
}
