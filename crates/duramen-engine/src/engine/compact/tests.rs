//! Compaction and dropped trees, also beside a thread that leads the commits.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, Weak};
use std::time::Duration;

use duramen_disk::MemDisk;

use super::*;
use crate::engine::event::Event;
use crate::options::Background;
use crate::threads::side_by_side;
use crate::{Durability, Hooks, Options, Transaction};

/// A test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks another thread to lead while a checkpoint runs, wherever the checkpoint has nothing to sync before.
fn hooks(committer: Arc<OnceLock<Weak<Committer>>>, asks: Sender<bool>, answers: Receiver<()>) -> Hooks {
    let other = Mutex::new((answers, false));
    let on_event = move |event: &Event| {
        let Some(committer) = committer.get().and_then(Weak::upgrade) else { return };
        let (answers, leads) = &mut *other.lock().unwrap();
        let begins = matches!(event, Event::CheckpointBegins);
        if begins && committer.durable() >= committer.published().seq || *leads {
            let answered = asks.send(begins).is_ok() && answers.recv_timeout(PATIENCE).is_ok();
            *leads = begins && answered;
        }
    };
    Hooks { on_event: Some(Arc::new(on_event)), ..Hooks::default() }
}

/// Leads whenever it is asked to, until it is asked to end.
fn lead_when_asked(committer: &Committer, asks: &Receiver<bool>, answers: &Sender<()>) {
    while asks.recv_timeout(PATIENCE).unwrap() {
        let led = committer.as_leader(|| {
            answers.send(()).unwrap();
            asks.recv_timeout(PATIENCE).unwrap();
        });
        led.unwrap();
        answers.send(()).unwrap();
    }
}

fn add_tree(engine: &Engine, name: &str) {
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree(name, None)).unwrap().0;
    let put =
        |tx: &mut Transaction| (0..2000_u32).try_for_each(|row| tx.put(tree, &row.to_be_bytes(), &[7; 100]));
    engine.transact(Durability::Disk, put).unwrap();
}

/// The roots list a dropped tree until a checkpoint ends at a moment without a leader. Beside busy writers
/// that may take for ever; its pages are free long before.
#[test]
fn it_ends_beside_writers_of_which_one_always_leads() {
    let (asks, asked) = channel();
    let (answers, answered) = channel();
    let committer = Arc::new(OnceLock::new());
    let hooks = hooks(Arc::clone(&committer), asks.clone(), answered);
    let options = Options { background: Background::Stepped, memory_bytes: 4 << 20, ..Options::default() };
    let engine = Engine::open(Arc::new(MemDisk::new(1)), Path::new("/db"), options, hooks).unwrap();
    add_tree(&engine, "dropped");
    add_tree(&engine, "kept");
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.drop_tree("dropped")).unwrap();
    let here = Arc::clone(engine.parts().unwrap().0);
    committer.set(Arc::downgrade(&here)).unwrap();
    let asked = Mutex::new(asked);
    let compacted = side_by_side(&[0, 1], |role| {
        if role == 1 {
            lead_when_asked(&here, &asked.lock().unwrap(), &answers);
            return None;
        }
        let mut calls = 0;
        let report = engine.compact(&mut |_| {
            calls += 1;
            if calls > 1000 { Err(Error::invalid("it does not end")) } else { Ok(()) }
        });
        asks.send(false).unwrap();
        Some(report)
    });
    let report = compacted[0].clone().unwrap().unwrap();
    assert!(report.after_bytes < report.before_bytes, "{report:?}");
}

/// The pages of dropped trees are room for what lies behind them, from the first round on.
#[test]
fn dropped_trees_are_free_before_anything_is_moved() {
    let options = Options {
        background: Background::Stepped,
        memory_bytes: 4 << 20,
        compress: false,
        ..Options::default()
    };
    let engine =
        Engine::open(Arc::new(MemDisk::new(3)), Path::new("/db"), options, Hooks::default()).unwrap();
    add_tree(&engine, "dropped");
    add_tree(&engine, "kept");
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.drop_tree("dropped")).unwrap();
    let mut waiting = None;
    let compacted = engine.compact(&mut |now| {
        if now.aimed_bytes < now.file_bytes {
            waiting.get_or_insert(engine.stats().space.waiting_blocks);
        }
        Ok(())
    });
    compacted.unwrap();
    // Two pages of the space map and the tree of roots wait for the next checkpoint.
    assert_eq!(waiting, Some(2));
}

/// What a checkpoint replaced is free at once if both superblocks name it. A tree that was reclaimed before
/// is no reason against it, although the roots still list it.
#[test]
fn a_reclaimed_tree_keeps_no_checkpoint_from_both_superblocks() {
    let disk = MemDisk::new(2);
    let open = |disk: &MemDisk| {
        let options =
            Options { background: Background::Stepped, memory_bytes: 4 << 20, ..Options::default() };
        Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap()
    };
    let engine = open(&disk);
    add_tree(&engine, "dropped");
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.drop_tree("dropped")).unwrap();
    let (committer, maintenance) = engine.parts().unwrap();
    let checkpointer = maintenance.checkpointer();
    // The roots forget no tree while a thread leads.
    let checkpoint = || committer.as_leader(|| maintenance.checkpoint_twice(0)).unwrap().unwrap();
    let agree = || checkpointer.freed_to() == checkpointer.superblock().replay.seq;
    let mut names = (0..9).map(|tree| format!("t{tree}"));
    while checkpointer.reclaimed().is_empty() {
        checkpoint();
        assert!(!agree(), "it reclaims the tree");
        add_tree(&engine, &names.next().unwrap());
    }
    checkpoint();
    assert_eq!(checkpointer.reclaimed().len(), 1, "it is listed");
    assert!(agree());
    // D3: forgotten between the two, the tree would be named by the second, with pages that are free.
    add_tree(&engine, "last");
    maintenance.checkpoint_twice(0).unwrap();
    assert!(agree() && checkpointer.reclaimed().is_empty());
    engine.abandon();
    let engine = open(&disk);
    let check = engine.check().unwrap();
    assert!(check.is_clean(), "{check:?}");
    assert!(engine.stats().recovery.record_count == 0, "the check is of the checkpoint");
}
