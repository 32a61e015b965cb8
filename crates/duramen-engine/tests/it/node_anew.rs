//! A node takes a copy of another one's state in place of its own, and keeps its id and its vote.

use std::path::Path;
use std::sync::{Arc, Mutex};

use duramen_disk::memory::CrashChoice;
use duramen_disk::{Disk as _, MemDisk};
use duramen_engine::{
    Background, Code, CommitSeq, Durability, Engine, Entry, Founding, Hooks, Ident, NodeHead, NodeTarget,
    OpenReplica, Options, Proposer, Result, TreeId, Vote,
};

const IDENT: Ident = Ident { cluster: 7, node: 1 };
const LAGS: Ident = Ident { cluster: 7, node: 2 };
const VOTE: Vote = Vote { term: 5, node: 3, leads: false };
const TREE: &str = "numbers";

fn options() -> Options {
    Options { background: Background::Stepped, ..Options::default() }
}

/// Keeps what is proposed.
#[derive(Default)]
struct Recorder(Mutex<Vec<Entry>>);

impl Proposer for Recorder {
    fn propose(&self, _: u64, mut entries: Vec<Entry>) {
        self.0.lock().unwrap().append(&mut entries);
    }
}

fn open(disk: &MemDisk, ident: Ident, proposer: &Arc<Recorder>) -> Result<OpenReplica> {
    let founding = Founding { ident, members: b"two", time_ns: 1 };
    let proposer = Arc::clone(proposer) as Arc<dyn Proposer>;
    Engine::open_replica(Arc::new(disk.clone()), "/db", options(), Hooks::default(), Some(founding), proposer)
}

fn lagging(disk: &MemDisk) -> Result<OpenReplica> {
    open(disk, LAGS, &Arc::default())
}

/// Ends it as a process that is killed.
fn end(node: OpenReplica) {
    node.engine.clone().abandon();
}

/// Appends to Raft's log, and waits for its sync.
fn append(node: &OpenReplica, entries: &[Entry]) {
    node.log.append(entries.to_vec(), Box::new(|synced| synced.unwrap())).unwrap();
    node.log.step().unwrap();
}

fn digest_of(engine: &Engine) -> u128 {
    let mut source = engine.copy_source().unwrap();
    while source.next(&|_, value| value).unwrap().is_some() {}
    source.digest()
}

/// A node that leads, and the disk of one that lacks the last of its entries.
struct Two {
    leader: OpenReplica,
    proposals: Arc<Recorder>,
    tree: TreeId,
    lags: MemDisk,
}

impl Two {
    /// Both have the first commits. The one that lags has further entries in its log, of an earlier term, on
    /// which no majority has decided.
    fn new() -> Two {
        let disk = MemDisk::new(57);
        let engine = Engine::open(Arc::new(disk.clone()), "/db", options(), Hooks::default()).unwrap();
        let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree(TREE, None)).unwrap();
        engine.close().unwrap();
        drop(engine);
        let lags = disk.deep_clone();
        let proposals = Arc::default();
        let leader = open(&disk, IDENT, &proposals).unwrap();
        let two = Two { leader, proposals, tree, lags };
        let node = lagging(&two.lags).unwrap();
        two.lead(2);
        let both_have = two.commit(1);
        append(&node, &both_have);
        node.replica.apply(&both_have).unwrap();
        append(&node, &[Entry::blank(&node.log.end(), 3)]);
        node.log.save_vote(VOTE, Box::new(|saved| saved.unwrap())).unwrap();
        node.log.step().unwrap();
        node.engine.close().unwrap();
        two.lead(4);
        for value in 2..40 {
            two.commit(value);
        }
        two
    }

    fn lead(&self, term: u64) {
        self.leader.replica.lead(term, self.leader.replica.end().unwrap()).unwrap();
    }

    /// Commits a value, and returns its entries.
    fn commit(&self, value: u8) -> Vec<Entry> {
        let put = |tx: &mut duramen_engine::Transaction| tx.put(self.tree, &[value], &[value; 90]);
        self.leader.engine.transact_and_wait_later(Durability::Disk, put).unwrap();
        self.leader.engine.step().unwrap();
        let entries = std::mem::take(&mut *self.proposals.0.lock().unwrap());
        append(&self.leader, &entries);
        self.leader.replica.apply(&entries).unwrap();
        entries
    }

    /// Copies the state of the leader to the one that lags, unless that needs no copy.
    fn copy_to(&self, disk: &MemDisk) -> Result<Option<NodeHead>> {
        let (mut source, head) = self.leader.engine.node_source(&self.leader.log).unwrap();
        let (at, path) = (Arc::new(disk.clone()), Path::new("/db"));
        let Some(mut target) = NodeTarget::begin_anew(at, path, options(), Hooks::default(), head)? else {
            return Ok(None);
        };
        while let Some(part) = source.next(&|_, value| value).unwrap() {
            target.take(source.tree().unwrap(), part)?;
        }
        target.finish(source.digest())?;
        Ok(Some(head))
    }
}

/// What a node has: its state, and where its log begins.
fn state_of(node: &OpenReplica) -> (u128, CommitSeq) {
    assert_eq!((node.found.ident, node.found.vote), (LAGS, Some(VOTE)), "the id and the vote stay");
    (digest_of(&node.engine), node.found.purged.id.seq)
}

/// A power cut at every operation leaves the node with the old state or the new one, and with its vote. A
/// reader finds the same, or is refused.
#[test]
fn a_node_has_its_old_state_or_the_new_one() {
    let two = Two::new();
    let wanted = digest_of(&two.leader.engine);
    let (old, opening) = {
        let node = lagging(&two.lags.deep_clone()).unwrap();
        let found = (state_of(&node), node.log.incarnation().number);
        node.engine.abandon();
        found
    };
    assert_ne!(old.0, wanted);
    two.lags.record();
    let head = two.copy_to(&two.lags).unwrap().unwrap();
    let new = (wanted, head.end.id.seq);
    let trace = two.lags.stop_recording();
    let (mut cursor, mut olds, mut news, mut refused) = (trace.cursor(), 0, 0, 0);
    loop {
        for choice in [CrashChoice::All, CrashChoice::Random { seed: 1 }, CrashChoice::Random { seed: 2 }] {
            let image = cursor.image(&choice);
            let read_only = Options { read_only: true, ..options() };
            match Engine::open(Arc::new(image.clone()), "/db", read_only, Hooks::default()) {
                Ok(reader) => assert!([old.0, new.0].contains(&digest_of(&reader)), "cut {}", cursor.at()),
                Err(error) => {
                    assert_eq!(error.code(), Code::UnfinishedCopy, "cut {}: {error}", cursor.at());
                    refused += 1;
                }
            }
            let node = lagging(&image).unwrap_or_else(|error| panic!("cut {}: {error}", cursor.at()));
            let found = state_of(&node);
            assert_eq!(node.log.incarnation().number, opening, "a copy of the state is no new node");
            end(node);
            if found == old {
                olds += 1;
                two.copy_to(&image).unwrap().expect("it still lags");
                assert_eq!(state_of(&lagging(&image).unwrap()), new);
            } else {
                assert_eq!(found, new, "cut {}", cursor.at());
                news += 1;
            }
        }
        if !cursor.advance() {
            break;
        }
    }
    assert!(olds > 100 && news > 10 && refused > 10, "{olds} {news} {refused}");
    for seed in 0..20 {
        let image = cursor.image(&CrashChoice::Random { seed });
        assert_eq!(state_of(&lagging(&image).unwrap()), new, "it survives once the call has returned");
    }
}

/// The entries of a log that has the one of the copy may be acknowledged: they stay.
#[test]
fn a_node_that_has_the_entry_needs_no_copy() {
    let two = Two::new();
    two.copy_to(&two.lags).unwrap().unwrap();
    let node = lagging(&two.lags).unwrap();
    let (_, head) = two.leader.engine.node_source(&two.leader.log).unwrap();
    append(&node, &two.commit(50));
    let has = node.log.end();
    two.commit(51);
    node.engine.close().unwrap();
    drop(node);
    assert_ne!(head.end, two.leader.log.end());
    let (at, path) = (Arc::new(two.lags.clone()), Path::new("/db"));
    let refused = NodeTarget::begin_anew(at, path, options(), Hooks::default(), head).unwrap();
    assert!(refused.is_none());
    let node = lagging(&two.lags).unwrap();
    assert_eq!(node.log.end(), has, "it keeps what it has acknowledged");
    end(node);
    // The next one it lacks.
    two.copy_to(&two.lags).unwrap().unwrap();
    assert_eq!(digest_of(&lagging(&two.lags).unwrap().engine), digest_of(&two.leader.engine));
}

/// While a node runs nothing of it is replaced, and what is no node neither.
#[test]
fn only_a_node_that_is_stopped_takes_a_copy() {
    let two = Two::new();
    let node = lagging(&two.lags).unwrap();
    assert!(NodeTarget::is_in_use(&two.lags, Path::new("/db")));
    assert_eq!(two.copy_to(&two.lags).unwrap_err().code(), Code::DatabaseLocked);
    node.engine.close().unwrap();
    drop(node);
    assert!(!NodeTarget::is_in_use(&two.lags, Path::new("/db")));
    let plain = MemDisk::new(58);
    Engine::open(Arc::new(plain.clone()), "/db", options(), Hooks::default()).unwrap().close().unwrap();
    assert_eq!(two.copy_to(&plain).unwrap_err().code(), Code::InvalidArgument);
    let elsewhere = Options { wal_dir: Some("/log".into()), ..options() };
    let (_, head) = two.leader.engine.node_source(&two.leader.log).unwrap();
    let (at, path) = (Arc::new(two.lags.clone()), Path::new("/db"));
    let refused = NodeTarget::begin_anew(at, path, elsewhere, Hooks::default(), head).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

/// Without its vote a node may vote twice in a term: it is not made one again.
#[test]
fn a_node_without_its_vote_takes_no_copy() {
    let two = Two::new();
    let rotten = two.lags.deep_clone();
    for offset in [0, 65536] {
        rotten.flip_bit("/db/raft/vote", offset + 30, 3).unwrap();
    }
    assert_eq!(two.copy_to(&rotten).unwrap_err().code(), Code::CorruptLog);
    let lost = two.lags.deep_clone();
    lost.remove(Path::new("/db/raft/vote")).unwrap();
    assert_eq!(two.copy_to(&lost).unwrap_err().code(), Code::LogMissing);
}
