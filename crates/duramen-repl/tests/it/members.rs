//! Members come and go: new nodes copy the state of one that runs, vote once they have caught up, and are
//! refused where they do not belong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duramen::prelude::*;
use duramen::{Code, DbOptions};
use duramen_engine::Engine;
use duramen_repl::{NodeError, TokioRuntime};
use openraft_rt::AsyncRuntime;

use crate::cluster::{Cluster, until};

fn digest_of(engine: &Engine) -> (u64, u128) {
    let mut source = engine.copy_source().unwrap();
    while source.next(&|_, value| value).unwrap().is_some() {}
    (source.seq().0, source.digest())
}

fn fill(db: &Db) {
    db.ensure(&Schema::new("things").key(["id"]).column("id", ColumnType::Int)).unwrap();
    for id in 0..200_u16 {
        let text = "long ".repeat(usize::from(id));
        let thing = doc! { "id": i64::from(id), "name": format!("thing {id}"), "text": text };
        db.documents("things").put(thing).unwrap();
    }
    db.bytes("large").put("value", vec![7; 1 << 20]).unwrap();
    // Ids of trees have gaps then.
    db.transact(|tx| tx.put_bytes("gone", b"a", b"b")).unwrap();
    db.kv("sessions").put("ann", &1).unwrap();
}

/// Writes go on while nodes join. All copies are equal then, also those of nodes that lead.
#[test]
fn nodes_that_join_are_equal_to_the_first() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start_first(fill).await;
        for machine in 2..=5_u16 {
            let put = move |db: &Db| {
                (0..50_i64).try_for_each(|n| {
                    let thing = doc! { "id": 1000 * i64::from(machine) + n, "more": format!("{n}") };
                    db.documents("things").put(thing).map(drop)
                })
            };
            let (joined, ()) = futures_util::join!(cluster.join(machine.into()), cluster.on_leader(put));
            joined.unwrap();
            cluster.start_node(machine.into()).await;
        }
        let five_vote = || (cluster.node(1).members().voters.len() == 5).then_some(());
        until("five vote", five_vote).await;
        cluster.settle().await;
        let ids: BTreeSet<u64> = cluster.nodes().iter().map(|node| node.ident().node).collect();
        assert_eq!(ids.len(), 5);
        let equal = || {
            let digests: BTreeSet<_> = cluster.nodes().iter().map(|node| digest_of(node.engine())).collect();
            (digests.len() == 1).then_some(())
        };
        until("all are equal", equal).await;
        for node in cluster.nodes() {
            assert_eq!(node.db().snapshot().unwrap().documents("things").count(Span::all()).unwrap(), 400);
            assert!(node.db().check().unwrap().is_clean());
            assert!(node.db().check_documents().unwrap().is_clean());
        }
    });
}

/// Each gets an id of its own.
#[test]
fn nodes_that_join_at_once_are_different_ones() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start_first(fill).await;
        let joins = (2..=5).map(|machine| cluster.join(machine));
        let joined = futures_util::future::join_all(joins).await;
        let ids: BTreeSet<u64> = joined.into_iter().map(|joined| joined.unwrap().node).collect();
        assert_eq!(ids.len(), 4, "{ids:?}");
        for machine in 2..=5 {
            cluster.start_node(machine).await;
        }
        let five_vote = || (cluster.node(1).members().voters.len() == 5).then_some(());
        until("five vote", five_vote).await;
        cluster.settle().await;
    });
}

/// A node of one cluster speaks to none of another, also where its vote would make a majority.
#[test]
fn nodes_of_another_cluster_are_refused() {
    TokioRuntime::new(4).block_on(async {
        let (ours, mut theirs) = futures_util::join!(Cluster::start(fill), Cluster::start(|_| ()));
        // A vote goes to a node with as many entries.
        for n in 0..20 {
            ours.on_leader(move |db| db.kv("counts").put("n", &n).map(drop)).await;
        }
        ours.settle().await;
        ours.stop_node(2).await;
        theirs.stop_node(2).await;
        theirs.stop_node(3).await;
        let term = theirs.node(1).leader().1;
        // The directory is started at the same address in another network.
        theirs.set_disk(2, ours.disk(2).clone());
        theirs.start_node(2).await;
        let stranger = theirs.node(2);
        let why = stranger.catch_up(Duration::from_millis(1500)).await.unwrap_err();
        assert!(matches!(why, NodeError::Refused(_)), "{why}");
        assert_ne!(stranger.leader().0, Some(stranger.ident().node));
        assert_eq!(theirs.node(1).leader().1, term);
        drop(stranger);
        theirs.stop_node(2).await;
        ours.start_node(2).await;
        ours.settle().await;
    });
}

/// A member is told that it was removed, also if it was stopped meanwhile.
#[test]
fn a_node_that_was_removed_is_told() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(fill).await;
        cluster.settle().await;
        let second = cluster.node(2).ident().node;
        cluster.stop_node(2).await;
        let (_, leader) = cluster.leader().await;
        leader.remove(second).await.unwrap();
        cluster.start_node(2).await;
        let told = || cluster.node(2).failure();
        let why = until("it is told", told).await;
        assert!(matches!(&why, NodeError::Database(why) if why.code() == Code::IdentityRetired), "{why}");
        assert!(cluster.node(1).failure().is_none() && cluster.node(3).failure().is_none());
    });
}

/// Under the same numbers stand other entries: a follower refuses its leader, and says why.
#[test]
fn a_node_with_another_history_refuses_its_leader() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start_apart().await;
        let refuses = || cluster.nodes().iter().find_map(|node| node.refuses());
        let why = until("the follower refuses", refuses).await;
        assert_eq!(why.code(), Code::WrongCluster, "{why}");
        for node in cluster.nodes() {
            assert!(node.failure().is_none(), "it goes on voting: which of both is wrong is not known");
        }
    });
}

/// What was copied so far is copied anew, and the node gets another id.
#[test]
fn a_join_that_was_cut_short_is_made_again() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start_first(fill).await;
        let mut nodes = BTreeSet::new();
        for pieces in [0, 1, 3, 6, 9] {
            cluster.join_and_stop_after(2, pieces).await;
            let is_open = DbOptions::default().open_on(Arc::new(cluster.disk(2).clone()), "/db");
            drop(is_open.unwrap_err());
            let members = cluster.node(1).members();
            let added: Vec<u64> = members.peers.keys().copied().filter(|node| *node != 1).collect();
            assert_eq!(added.len(), 1, "the id of the try before is gone: {members:?}");
            assert!(nodes.insert(added[0]), "{added:?} was given before");
        }
        let ident = cluster.join(2).await.unwrap();
        assert!(nodes.insert(ident.node));
        cluster.start_node(2).await;
        cluster.settle().await;
        assert_eq!(digest_of(cluster.node(2).engine()).1, digest_of(cluster.node(1).engine()).1);
    });
}
