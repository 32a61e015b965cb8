//! Full disks of a cluster: no node ends, writes go on while a majority has room, deletes always pass.

use duramen::Db;
use duramen_engine::{Code, Error};
use duramen_repl::TokioRuntime;
use openraft_rt::AsyncRuntime;

use crate::cluster::{Cluster, until};

const MIB: usize = 1 << 20;

fn set_full(cluster: &Cluster, machine: u64, is_full: bool) {
    let disk = cluster.disk(machine);
    disk.set_capacity(is_full.then(|| disk.used_bytes()));
}

/// Puts values until one is refused, or so many are there.
async fn put(cluster: &Cluster, count: u64) -> Result<(), Error> {
    for key in 0..count {
        let (_, leader) = cluster.leader().await;
        let db = leader.db().clone();
        let put = move || db.bytes("large").put(key.to_be_bytes(), vec![7; MIB]);
        let done = TokioRuntime::spawn_blocking(put).await.unwrap();
        match done {
            Err(error) if matches!(error.code(), Code::NotLeader | Code::NoQuorum) => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// Puts values until one is refused.
async fn put_until_refused(cluster: &Cluster) -> Error {
    loop {
        if let Err(error) = put(cluster, 64).await {
            return error;
        }
    }
}

fn delete_all(db: &Db) -> Result<(), Error> {
    (0..64_u64).try_for_each(|key| db.bytes("large").delete(key.to_be_bytes()).map(drop))
}

#[test]
fn a_leader_whose_disk_is_full_lets_another_node_lead() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(|_| ()).await;
        cluster.settle().await;
        let (full, _) = cluster.leader().await;
        set_full(&cluster, full, true);
        // It is refused until the other one leads.
        while put(&cluster, 64).await.is_err() {}
        assert_ne!(cluster.leader().await.0, full);
        assert!(cluster.nodes().iter().all(|node| node.failure().is_none()));
        let (_, leader) = cluster.leader().await;
        let of_full = cluster.node(full).ident().node;
        until("it tells", || leader.status().members[&of_full].is_full.then_some(())).await;
        set_full(&cluster, full, false);
        until("it tells", || (!leader.status().members[&of_full].is_full).then_some(())).await;
        cluster.settle().await;
    });
}

/// A put that the leader alone has room for would stand before every delete.
#[test]
fn a_leader_with_room_refuses_puts_while_a_majority_is_full() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(|_| ()).await;
        put(&cluster, 64).await.unwrap();
        cluster.settle().await;
        let (leads, _) = cluster.leader().await;
        (1..=3).filter(|machine| *machine != leads).for_each(|machine| set_full(&cluster, machine, true));
        assert_eq!(put_until_refused(&cluster).await.code(), Code::DiskFull);
        assert_eq!(cluster.leader().await.0, leads, "it has room itself");
        cluster.on_leader(delete_all).await;
        (1..=3).for_each(|machine| set_full(&cluster, machine, false));
        while put(&cluster, 8).await.is_err() {}
        cluster.settle().await;
    });
}

#[test]
fn a_cluster_whose_disks_are_all_full_takes_deletes_and_goes_on_with_room() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(|_| ()).await;
        put(&cluster, 64).await.unwrap();
        cluster.settle().await;
        (1..=3).for_each(|machine| set_full(&cluster, machine, true));
        assert_eq!(put_until_refused(&cluster).await.code(), Code::DiskFull);
        cluster.on_leader(delete_all).await;
        assert!(cluster.nodes().iter().all(|node| node.failure().is_none()));
        (1..=3).for_each(|machine| set_full(&cluster, machine, false));
        while put(&cluster, 8).await.is_err() {}
        cluster.settle().await;
        assert!(cluster.nodes().iter().all(|node| node.failure().is_none()));
    });
}
