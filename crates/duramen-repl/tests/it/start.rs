//! An embedded database becomes the first node of a cluster as it lies, and a plain database again.

use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duramen::DbOptions;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{Code, CommitSeq, Durability, Engine, Error, Hooks, Options, Receipt, TreeId};
use duramen_repl::{Called, First, Lane, Node, NodeError, Peer, Start, TokioRuntime, Transport, detach_on};
use openraft_rt::AsyncRuntime;

/// There are no peers.
struct Alone;

impl Transport for Alone {
    fn call(&self, node: u64, _: &Peer, _: Lane, _: Vec<u8>) -> Called {
        Box::pin(ready(Err(format!("there is no node {node}"))))
    }
}

fn embedded(disk: &MemDisk) -> Result<Engine, Error> {
    Engine::open(Arc::new(disk.clone()), "/db", Options::default(), Hooks::default())
}

/// Makes a plain database with a tree, and closes it. Returns the tree and the last commit.
fn plain_with_tree(disk: &MemDisk) -> (TreeId, u64) {
    let engine = embedded(disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("numbers", None)).unwrap();
    let last = engine.snapshot().unwrap().seq().0;
    engine.close().unwrap();
    (tree, last)
}

async fn node(disk: &MemDisk, is_first: bool) -> Node<TokioRuntime> {
    let own = Peer { address: "here:1".to_owned(), ..Peer::default() };
    let first = is_first.then(|| First::alone(disk, own));
    let start =
        Start { first, promotes: false, transport: Arc::new(Alone), heartbeat_ms: None, lagging_bytes: None };
    Node::start(Arc::new(disk.clone()), "/db", DbOptions::default(), start).await.unwrap()
}

/// Puts a key once this node leads.
async fn put(node: &Node<TokioRuntime>, tree: TreeId, key: &'static [u8]) -> Receipt {
    let engine = node.engine().clone();
    let put = move || loop {
        match engine.transact(Durability::Disk, |tx| tx.put(tree, key, b"value")) {
            Ok(((), receipt)) => {
                receipt.wait(Durability::Disk).unwrap();
                return receipt;
            }
            Err(error) if matches!(error.code(), Code::NotLeader | Code::WriteConflict) => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    };
    TokioRuntime::spawn_blocking(put).await.unwrap()
}

/// Otherwise its heartbeats would keep the others from electing a node that can write.
#[test]
fn a_leader_whose_database_takes_no_commits_ends_its_part() {
    let disk = MemDisk::with_system_clock(8);
    let (tree, _) = plain_with_tree(&disk);
    TokioRuntime::new(2).block_on(async {
        let first = node(&disk, true).await;
        put(&first, tree, b"one").await;
        assert!(first.failure().is_none());
        let engine = first.engine().clone();
        TokioRuntime::spawn_blocking(move || engine.close()).await.unwrap().unwrap();
        let ends = async {
            while first.leader().0.is_some() {
                TokioRuntime::spawn(async {}).await.unwrap();
            }
        };
        TokioRuntime::timeout(Duration::from_secs(20), ends).await.expect("consensus ends");
        assert!(matches!(first.failure(), Some(NodeError::Database(error)) if error.code() == Code::Closed));
        first.stop().await.unwrap();
    });
}

#[test]
fn an_embedded_database_becomes_the_first_node_and_is_detached() {
    let disk = MemDisk::with_system_clock(7);
    let (tree, n) = plain_with_tree(&disk);
    TokioRuntime::new(2).block_on(async {
        let first = node(&disk, true).await;
        let founded = first.log().end().id.seq;
        assert_eq!(founded, CommitSeq(n + 1), "one commit says who the members are");
        let (one, two) = (put(&first, tree, b"one").await, put(&first, tree, b"two").await);
        println!("leader {:?}, commits {} and {}", first.leader(), one.seq(), two.seq());
        // The first entry of its term comes before.
        assert_eq!((one.seq(), two.seq()), (CommitSeq(n + 3), CommitSeq(n + 4)));
        assert_eq!(first.leader(), (Some(1), 1));
        first.stop().await.unwrap();
        assert_eq!(embedded(&disk).unwrap_err().code(), Code::IsReplica);

        let again = node(&disk, false).await;
        let three = put(&again, tree, b"three").await;
        assert_eq!(three.seq(), CommitSeq(n + 6), "behind the first entry of the second term");
        assert_eq!(again.leader(), (Some(1), 2));
        again.detach().await.unwrap();
    });
    let engine = embedded(&disk).unwrap();
    assert_eq!(engine.snapshot().unwrap().seq(), CommitSeq(n + 6));
    for key in [&b"one"[..], b"two", b"three"] {
        assert_eq!(engine.get(tree, key).unwrap().as_deref(), Some(&b"value"[..]));
    }
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"four", b"value")).unwrap();
    assert!(engine.check().unwrap().problems.is_empty());
}

/// What was acknowledged lies in Raft's log, and is taken over.
#[test]
fn a_node_that_lost_its_power_is_detached_with_everything() {
    let disk = MemDisk::with_system_clock(9);
    let (tree, _) = plain_with_tree(&disk);
    TokioRuntime::new(2).block_on(async {
        let first = node(&disk, true).await;
        put(&first, tree, b"one").await;
        put(&first, tree, b"two").await;
        let left = disk.crash(&CrashChoice::None);
        first.stop().await.unwrap();
        let detached =
            detach_on::<TokioRuntime>(Arc::new(left.clone()), Path::new("/db"), DbOptions::default());
        let detached = detached.await.unwrap();
        assert_eq!((detached.node, detached.undecided, detached.others), (1, 0, 0));
        let engine = embedded(&left).unwrap();
        for key in [&b"one"[..], b"two"] {
            assert_eq!(engine.get(tree, key).unwrap().as_deref(), Some(&b"value"[..]));
        }
        engine.transact(Durability::Disk, |tx| tx.put(tree, b"three", b"value")).unwrap();
        assert!(engine.check().unwrap().problems.is_empty());
    });
}
