//! Raft's log lets go of what no member lacks.

use std::time::Duration;

use duramen_repl::{NodeError, TokioRuntime};
use openraft_rt::AsyncRuntime;

use crate::cluster::{Cluster, pass, until};

const MIB: usize = 1 << 20;

/// Bytes that a machine's log of Raft has on its disk.
fn log_bytes(cluster: &Cluster, machine: u64) -> u64 {
    let disk = cluster.disk(machine);
    let files = disk.files().into_iter().filter(|path| path.starts_with("/db/raft"));
    files.map(|path| disk.read_file(&path).unwrap().len() as u64).sum()
}

/// Writes so many MiB, and makes checkpoints of them on every node.
async fn write(cluster: &Cluster, mib: u64) {
    for _ in 0..mib {
        cluster.on_leader(|db| db.bytes("large").put("value", vec![7; MIB])).await;
    }
    cluster.settle().await;
    for node in cluster.nodes() {
        // Both superblocks have it then.
        node.engine().checkpoint().unwrap();
        node.engine().checkpoint().unwrap();
    }
}

fn purged(cluster: &Cluster, machine: u64) -> u64 {
    cluster.node(machine).log().purged().id.seq.0
}

/// Everything that a member lacks is kept by every node, whichever leads; then it is let go.
#[test]
fn what_a_member_lacks_is_kept_until_it_has_it() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(|_| ()).await;
        cluster.settle().await;
        cluster.stop_node(3).await;
        let has = cluster.node(1).log().end().id.seq.0;
        write(&cluster, 40).await;
        cluster.change_leader().await;
        write(&cluster, 20).await;
        assert!(purged(&cluster, 1) <= has && purged(&cluster, 2) <= has);
        cluster.start_node(3).await;
        cluster.settle().await;
        write(&cluster, 4).await;
        for machine in 1..=3 {
            until("it lets go", || (purged(&cluster, machine) > has + 50).then_some(())).await;
        }
        let long: Vec<u64> = (1..=3).map(|machine| log_bytes(&cluster, machine)).collect();
        write(&cluster, 40).await;
        for (machine, before) in (1..=3).zip(long) {
            let bytes = log_bytes(&cluster, machine);
            assert!(bytes <= before, "{bytes} bytes after {before}: segments are used again");
        }
        // With what is left they start again.
        for machine in 1..=3 {
            cluster.stop_node(machine).await;
        }
        for machine in 1..=3 {
            cluster.start_node(machine).await;
        }
        write(&cluster, 1).await;
    });
}

/// Three nodes that keep little of their logs, and the third has been away for too long. Returns its id.
async fn lag(cluster: &mut Cluster) -> u64 {
    cluster.stop_node(1).await;
    cluster.lagging_bytes = Some(16 << 20);
    cluster.start_node(1).await;
    for machine in [2, 3] {
        cluster.join(machine).await.unwrap();
        cluster.start_node(machine).await;
    }
    until("three vote", || (cluster.node(1).members().voters.len() == 3).then_some(())).await;
    cluster.settle().await;
    let third = cluster.node(3).ident().node;
    cluster.stop_node(3).await;
    let has = cluster.node(1).log().end().id.seq.0;
    write(cluster, 60).await;
    for machine in [1, 2] {
        until("it lets go", || (purged(cluster, machine) > has + 20).then_some(())).await;
    }
    third
}

/// A member that lacks more than is kept does not keep the others from letting go.
#[test]
fn a_member_that_is_gone_holds_a_bounded_log() {
    TokioRuntime::new(4).block_on(async {
        let mut cluster = Cluster::start_first(|_| ()).await;
        let third = lag(&mut cluster).await;
        cluster.start_node(3).await;
        let (_, leader) = cluster.leader().await;
        until("the leader knows", || leader.status().members[&third].needs_copy.then_some(())).await;
        cluster.on_leader(|db| db.kv("counts").put("after", &1).map(drop)).await;
        // A new leader has never had an answer that tells how far it is.
        cluster.change_leader().await;
        let (_, next) = cluster.leader().await;
        until("the next one knows", || next.status().members[&third].needs_copy.then_some(())).await;
        let first = leader.ident().node;
        assert!(matches!(next.remove(first).await, Err(NodeError::Refused(_))), "one of two would be left");
        assert!(leader.failure().is_none() && cluster.node(3).failure().is_none());
    });
}

/// Such a member copies the state, and goes on as the node that it was. Until the copy is whole it has its
/// own state, and votes.
#[test]
fn a_member_that_lacks_too_much_copies_the_state() {
    TokioRuntime::new(4).block_on(async {
        let mut cluster = Cluster::start_first(|_| ()).await;
        let third = lag(&mut cluster).await;
        for pieces in [0, 1, 3] {
            cluster.start_node(3).await;
            let copy = until("it is told", || cluster.node(3).needs_copy()).await;
            cluster.stop_node(3).await;
            cluster.copy_and_stop_after(3, copy, pieces).await;
        }
        cluster.start_node(3).await;
        let copy = until("it is told", || cluster.node(3).needs_copy()).await;
        cluster.stop_node(3).await;
        let writes = cluster.on_leader(|db| (0..30).try_for_each(|n| db.kv("counts").put("n", &n).map(drop)));
        let (copied, ()) = futures_util::join!(cluster.copy_anew(3, copy.clone()), writes);
        assert!(copied.unwrap(), "it lacked entries");
        // They keep what it lacks behind the copy, and that is more than they keep for one that lags.
        write(&cluster, 60).await;
        // They look every second what they can let go of.
        pass(Duration::from_secs(3)).await;
        cluster.start_node(3).await;
        cluster.settle().await;
        assert_eq!(cluster.node(3).ident().node, third);
        assert!(cluster.node(3).needs_copy().is_none() && cluster.node(3).db().check().unwrap().is_clean());
        let (_, leader) = cluster.leader().await;
        until("the leader knows", || (!leader.status().members[&third].needs_copy).then_some(())).await;
        assert_eq!(leader.members().voters.len(), 3);
        // It counts for a majority again.
        drop(leader);
        cluster.stop_node(2).await;
        write(&cluster, 1).await;
        cluster.start_node(2).await;
        cluster.settle().await;
        cluster.stop_node(3).await;
        assert!(!cluster.copy_anew(3, copy).await.unwrap(), "it has the state");
    });
}
