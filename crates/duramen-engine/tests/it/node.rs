//! A node of a cluster with threads: writers, and a consensus of one that changes its term under them. What
//! an opening keeps, and keeps out.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use duramen_disk::memory::CrashChoice;
use duramen_disk::{Access, Disk, MemDisk};
use duramen_engine::data_file::SUPERBLOCK_OFFSETS;
use duramen_engine::{
    Background, Code, CommitSeq, CopySource, Durability, Engine, Entry, EntryKind, Founding, Hooks, Ident,
    NodeHead, NodeTarget, OpenReplica, Options, OrderedOn, Proposer, RaftLog, Replica, Result, TreeId, Vote,
};

const FOUNDING: Founding<'_> = Founding { ident: Ident { cluster: 7, node: 1 }, members: b"one", time_ns: 1 };
const WRITERS: u64 = 6;
const INCREMENTS: u64 = 400;

/// What the consensus thread is told.
enum Message {
    Decided(Vec<Entry>),
    Refused(OrderedOn),
    End,
}

/// Takes proposals of its term: what is synced is decided.
struct Consensus {
    log: OnceLock<Arc<RaftLog>>,
    term: AtomicU64,
    messages: Mutex<Sender<Message>>,
}

impl Consensus {
    fn send(&self, message: Message) {
        // After the thread that applies has ended, no writer waits for a decision.
        drop(self.messages.lock().unwrap().send(message));
    }

    /// Appends and decides. Fails if an entry of a later term is there.
    fn append(self: &Arc<Consensus>, entries: Vec<Entry>) -> Result<()> {
        let log = self.log.get().unwrap();
        let (consensus, decided) = (Arc::clone(self), entries.clone());
        log.append(
            entries,
            Box::new(move |synced| {
                if synced.is_ok() {
                    consensus.log.get().unwrap().decide(decided.last().unwrap().id.seq).unwrap();
                    consensus.send(Message::Decided(decided));
                }
            }),
        )
    }
}

struct Speaker(Arc<Consensus>);

impl Proposer for Speaker {
    fn propose(&self, term: u64, entries: Vec<Entry>) {
        let first = entries[0].ordered;
        let is_taken = self.0.term.load(Ordering::SeqCst) == term && self.0.append(entries).is_ok();
        if !is_taken {
            self.0.send(Message::Refused(first));
        }
    }
}

/// Begins to lead in the next term, once what is in the log is applied.
fn change_term(consensus: &Arc<Consensus>, replica: &Replica) {
    let term = consensus.term.fetch_add(1, Ordering::SeqCst) + 1;
    replica.follow().unwrap();
    // A proposal of the term before may come first.
    loop {
        let blank = Entry::blank(&consensus.log.get().unwrap().end(), term);
        if consensus.append(vec![blank]).is_ok() {
            return;
        }
    }
}

/// Applies what is decided, and changes the term now and then.
fn consent(consensus: &Arc<Consensus>, replica: &Replica, messages: &Receiver<Message>) {
    for (count, message) in messages.iter().enumerate() {
        match message {
            Message::Decided(entries) => {
                replica.apply(&entries).unwrap();
                let last = entries.last().unwrap();
                let term = consensus.term.load(Ordering::SeqCst);
                if last.kind == EntryKind::Blank && last.id.term == term {
                    replica.lead(term, replica.end().unwrap()).unwrap();
                }
            }
            Message::Refused(first) => replica.refused(&first).unwrap(),
            Message::End => return,
        }
        if count % 25 == 24 {
            change_term(consensus, replica);
        }
    }
}

/// Adds one to a number, again and again, until that is decided.
fn increment(engine: &Engine, tree: TreeId, key: &[u8]) {
    loop {
        let added = engine.transact(Durability::Disk, |tx| {
            let before = tx.get(tree, key)?.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            tx.put(tree, key, &(before + 1).to_le_bytes())
        });
        match added {
            Ok(((), receipt)) => {
                receipt.wait(Durability::Disk).unwrap();
                return;
            }
            Err(error) if matches!(error.code(), Code::NotLeader | Code::WriteConflict) => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn number(engine: &Engine, tree: TreeId, key: &[u8]) -> u64 {
    engine.get(tree, key).unwrap().map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// Each call that returns has added one, whatever happens to the leadership meanwhile, and no other has.
#[test]
fn every_increment_that_returns_has_happened_once() {
    let disk = MemDisk::with_system_clock(51);
    let engine = Engine::open(Arc::new(disk.clone()), "/db", Options::default(), Hooks::default()).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("numbers", None)).unwrap();
    engine.close().unwrap();
    drop(engine);
    let (sender, messages) = channel();
    let (log, term) = (OnceLock::new(), AtomicU64::new(0));
    let consensus = Arc::new(Consensus { log, term, messages: Mutex::new(sender) });
    let proposer = Arc::new(Speaker(Arc::clone(&consensus)));
    let (options, hooks) = (Options::default(), Hooks::default());
    let node = Engine::open_replica(Arc::new(disk.clone()), "/db", options, hooks, Some(FOUNDING), proposer);
    let OpenReplica { engine, replica, log, .. } = node.unwrap();
    consensus.log.set(Arc::new(log)).unwrap();
    change_term(&consensus, &replica);
    std::thread::scope(|scope| {
        let (own, applied_to) = (&consensus, &replica);
        let thread = scope.spawn(move || consent(own, applied_to, &messages));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let engine = &engine;
                scope.spawn(move || {
                    (0..INCREMENTS)
                        .for_each(|turn| increment(engine, tree, &[b'a' + ((writer + turn) % 2) as u8]));
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        consensus.send(Message::End);
        thread.join().unwrap();
    });
    assert!(consensus.term.load(Ordering::SeqCst) > 3, "the term has changed under the writers");
    assert_eq!(number(&engine, tree, b"a") + number(&engine, tree, b"b"), WRITERS * INCREMENTS);
    let applied = replica.end().unwrap().id.seq;
    assert!(applied > CommitSeq(WRITERS * INCREMENTS / WRITERS));
    drop(replica);
    engine.close().unwrap();
    assert!(engine.check().unwrap().problems.is_empty());
}

/// Proposes nothing.
struct Silent;

impl Proposer for Silent {
    fn propose(&self, _: u64, _: Vec<Entry>) {
        unreachable!("the node never leads");
    }
}

fn stepped() -> Options {
    Options { background: Background::Stepped, ..Options::default() }
}

fn follower(disk: &MemDisk) -> Result<OpenReplica> {
    let (disk, hooks) = (Arc::new(disk.clone()), Hooks::default());
    Engine::open_replica(disk, "/db", stepped(), hooks, Some(FOUNDING), Arc::new(Silent))
}

fn plain(disk: &MemDisk) -> Result<Engine> {
    Engine::open(Arc::new(disk.clone()), "/db", stepped(), Hooks::default())
}

/// A database becomes a node, and the power fails on the way. The node votes, and then its newer superblock
/// rots: the older one must say that it is a node, too, or its log and vote are taken for left over.
#[test]
fn a_node_keeps_its_vote_when_a_superblock_rots() {
    let disk = MemDisk::new(52);
    plain(&disk).unwrap().close().unwrap();
    disk.record();
    follower(&disk).unwrap().engine.abandon();
    let trace = disk.stop_recording();
    let vote = Vote { term: 7, node: 3, leads: false };
    let mut cursor = trace.cursor();
    loop {
        let image = cursor.image(&CrashChoice::All);
        let OpenReplica { engine, replica, log, .. } = follower(&image).unwrap();
        log.save_vote(vote, Box::new(|saved| saved.unwrap())).unwrap();
        log.step().unwrap();
        drop((replica, log));
        engine.abandon();
        for superblock in SUPERBLOCK_OFFSETS {
            let rotten = image.deep_clone();
            let file = rotten.open(Path::new("/db/data"), Access::WRITE).unwrap();
            file.write_at(&[0xa5; 16], superblock + 100).unwrap();
            file.sync_data().unwrap();
            let node = follower(&rotten).unwrap();
            assert_eq!(node.found.vote, Some(vote), "cut {}, rot at {superblock}", cursor.at());
            node.engine.abandon();
        }
        if !cursor.advance() {
            return;
        }
    }
}

/// Raft's log may outlive the database's handles: its thread still writes.
#[test]
fn raft_log_keeps_other_processes_out() {
    let disk = MemDisk::new(53);
    plain(&disk).unwrap().close().unwrap();
    let OpenReplica { engine, replica, log, .. } = follower(&disk).unwrap();
    engine.close().unwrap();
    drop((engine, replica));
    assert_eq!(plain(&disk).unwrap_err().code(), Code::DatabaseLocked);
    drop(log);
    assert_eq!(plain(&disk).unwrap_err().code(), Code::IsReplica);
}

/// Keeps what is proposed.
#[derive(Default)]
struct Recorder(Mutex<Vec<Entry>>);

impl Proposer for Recorder {
    fn propose(&self, _: u64, mut entries: Vec<Entry>) {
        self.0.lock().unwrap().append(&mut entries);
    }
}

/// Values expire by it, on every node alike. The system's clock is read once in a leadership.
#[test]
fn the_time_of_commits_is_in_the_log_and_never_goes_back() {
    const SECOND_NS: u64 = 1_000_000_000;
    let disk = MemDisk::new(54);
    plain(&disk).unwrap().close().unwrap();
    let of_another = disk.deep_clone();
    let begun_ns = disk.wall_ns();
    let proposals = Arc::new(Recorder::default());
    let proposer = Arc::clone(&proposals) as Arc<dyn Proposer>;
    let (at, hooks) = (Arc::new(disk.clone()), Hooks::default());
    let leader = Engine::open_replica(at, "/db", stepped(), hooks, Some(FOUNDING), proposer).unwrap();
    let founded_ns = leader.engine.snapshot().unwrap().time_ns();
    assert_eq!(founded_ns, FOUNDING.time_ns);
    of_another.set_wall_clock(disk.wall_ns());
    let follower = follower(&of_another).unwrap();

    let commit = || -> u64 {
        let put =
            |tx: &mut duramen_engine::Transaction| tx.create_tree(&format!("{:?}", tx.base_seq()), None);
        leader.engine.transact_and_wait_later(Durability::Disk, put).unwrap();
        leader.engine.step().unwrap();
        let decided = std::mem::take(&mut *proposals.0.lock().unwrap());
        leader.replica.apply(&decided).unwrap();
        follower.replica.apply(&decided).unwrap();
        let time_ns = leader.engine.snapshot().unwrap().time_ns();
        assert_eq!(follower.engine.snapshot().unwrap().time_ns(), time_ns);
        assert_eq!(follower.engine.log_time_ns(), Some(time_ns), "it stands still on a follower");
        time_ns
    };
    leader.replica.lead(1, leader.replica.end().unwrap()).unwrap();
    assert!(leader.engine.takes_transactions().unwrap() && !follower.engine.takes_transactions().unwrap());
    let first_ns = commit();
    assert!((begun_ns..begun_ns + SECOND_NS).contains(&first_ns));
    disk.advance_clock(3 * SECOND_NS);
    disk.set_wall_clock(0);
    let second_ns = commit();
    assert!((first_ns + 3 * SECOND_NS..first_ns + 4 * SECOND_NS).contains(&second_ns));
    disk.set_wall_clock(second_ns + 3600 * SECOND_NS);
    assert!(commit() < second_ns + SECOND_NS);

    // A later leadership begins with the clock, or with the last commit if the clock is behind it.
    let lineage = leader.engine.lineage();
    leader.replica.follow().unwrap();
    leader.replica.lead(2, leader.replica.end().unwrap()).unwrap();
    assert!(leader.engine.lineage() > lineage);
    let ahead_ns = commit();
    assert!(ahead_ns >= second_ns + 3600 * SECOND_NS);
    leader.replica.follow().unwrap();
    disk.set_wall_clock(0);
    leader.replica.lead(3, leader.replica.end().unwrap()).unwrap();
    assert!(commit() >= ahead_ns);
}

/// Raft's log has large values in it, and is let go of with checkpoints. The engine's log only names them.
#[test]
fn large_values_bring_checkpoints() {
    let disk = MemDisk::new(59);
    let engine = plain(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("large", None)).unwrap();
    engine.close().unwrap();
    drop(engine);
    let proposals = Arc::new(Recorder::default());
    let options = Options { checkpoint_log_bytes: Some(1 << 20), ..stepped() };
    let (at, proposer) = (Arc::new(disk), Arc::clone(&proposals) as Arc<dyn Proposer>);
    let leader =
        Engine::open_replica(at, "/db", options, Hooks::default(), Some(FOUNDING), proposer).unwrap();
    leader.replica.lead(1, leader.replica.end().unwrap()).unwrap();
    let begun = leader.replica.checkpointed().unwrap();
    for n in 0..12_u8 {
        let put = |tx: &mut duramen_engine::Transaction| tx.put(tree, &[n], &vec![n; 300_000]);
        leader.engine.transact_and_wait_later(Durability::Disk, put).unwrap();
        leader.engine.step().unwrap();
        let decided = std::mem::take(&mut *proposals.0.lock().unwrap());
        leader.log.append(decided.clone(), Box::new(|synced| synced.unwrap())).unwrap();
        leader.log.step().unwrap();
        leader.replica.apply(&decided).unwrap();
        leader.engine.step().unwrap();
    }
    assert!(leader.replica.checkpointed().unwrap() > begun, "3.6 MB were decided");
}

const JOINED: Ident = Ident { cluster: FOUNDING.ident.cluster, node: 9 };

/// Copies the state of a node, and makes the copy one.
fn join(first: &OpenReplica, disk: &MemDisk) -> NodeHead {
    let (mut source, head) = first.engine.node_source(&first.log).unwrap();
    let (at, path) = (Arc::new(disk.clone()), Path::new("/copy"));
    let mut target = NodeTarget::begin(at, path, stepped(), Hooks::default(), head, JOINED).unwrap();
    copy(&mut source, &mut target);
    target.finish(source.digest()).unwrap();
    head
}

fn copy(source: &mut CopySource, target: &mut NodeTarget) {
    while let Some(part) = source.next(&|_, value| value).unwrap() {
        target.take(source.tree().unwrap(), part).unwrap();
    }
}

fn joined(disk: &MemDisk) -> Result<OpenReplica> {
    let (disk, hooks) = (Arc::new(disk.clone()), Hooks::default());
    Engine::open_replica(disk, "/copy", stepped(), hooks, None, Arc::new(Silent))
}

fn digest_of(engine: &Engine) -> u128 {
    let mut source = engine.copy_source().unwrap();
    while source.next(&|_, value| value).unwrap().is_some() {}
    source.digest()
}

/// A power cut at every operation of a join leaves the whole node, or a copy that does not open and is made
/// again. Once the join has returned, the node is there.
#[test]
fn a_copy_becomes_a_whole_node_or_none() {
    let disk = MemDisk::new(55);
    let engine = plain(&disk).unwrap();
    // Ids of trees have a gap then.
    for name in ["gone", "lost"] {
        engine.transact(Durability::Disk, |tx| tx.create_tree(name, None)).unwrap();
    }
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("numbers", None)).unwrap();
    for name in ["gone", "lost"] {
        engine.transact(Durability::Disk, |tx| tx.drop_tree(name)).unwrap();
    }
    let put =
        |tx: &mut duramen_engine::Transaction| (0..90_u8).try_for_each(|n| tx.put(tree, &[n], &[n; 90]));
    engine.transact(Durability::Disk, put).unwrap();
    engine.close().unwrap();
    drop(engine);
    let first = follower(&disk).unwrap();
    let wanted = digest_of(&first.engine);
    let check = |node: &OpenReplica, head: &NodeHead| {
        assert_eq!((node.found.ident, node.replica.end().unwrap()), (JOINED, head.end));
        assert_eq!(digest_of(&node.engine), wanted);
        assert_eq!(node.engine.node_source(&node.log).unwrap().1, *head, "a copy of it would be the same");
        assert_eq!(
            node.engine.get(tree, &[7]).unwrap().as_deref(),
            Some(&[7; 90][..]),
            "trees keep their ids"
        );
    };

    let other = MemDisk::new(56);
    other.record();
    let head = join(&first, &other);
    let trace = other.stop_recording();
    let (mut cursor, mut refused, mut whole) = (trace.cursor(), 0, 0);
    loop {
        let is_last = {
            let choices =
                [CrashChoice::All, CrashChoice::Random { seed: 1 }, CrashChoice::Random { seed: 2 }];
            for choice in choices {
                let image = cursor.image(&choice);
                match joined(&image) {
                    Ok(node) => {
                        check(&node, &head);
                        node.engine.abandon();
                        whole += 1;
                    }
                    Err(error) => {
                        let codes = [Code::UnfinishedCopy, Code::NoSuchDatabase, Code::NotADatabase];
                        assert!(codes.contains(&error.code()), "cut {}: {error}", cursor.at());
                        let head = join(&first, &image);
                        check(&joined(&image).unwrap(), &head);
                        refused += 1;
                    }
                }
            }
            !cursor.advance()
        };
        if is_last {
            break;
        }
    }
    assert!(refused > 100 && whole > 0, "{refused} cuts before its end, {whole} after");
    for seed in 0..20 {
        check(&joined(&cursor.image(&CrashChoice::Random { seed })).unwrap(), &head);
    }
}
