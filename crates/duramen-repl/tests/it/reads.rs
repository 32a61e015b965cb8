//! Reads of states of some age: a node that has asked the leader of late needs no answer of it.

use std::time::Duration;

use duramen_repl::{NodeError, TokioRuntime};
use openraft_rt::AsyncRuntime;

use crate::cluster::Cluster;

/// Longer than the test takes.
const LONG: Duration = Duration::from_secs(3600);
/// How long a read waits for the leader.
const SHORT: Duration = Duration::from_millis(700);

#[test]
fn a_node_by_itself_reads_states_of_the_age_that_it_knows() {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(|_| ()).await;
        cluster.on_leader(|db| db.kv("counts").put("a", &1)).await;
        cluster.settle().await;
        let (leads, leader) = cluster.leader().await;
        let follows = (1..=3).find(|node| *node != leads).unwrap();
        let follower = cluster.node(follows);
        let seen = follower.catch_up_to_age(LONG, SHORT).await.unwrap();
        assert_eq!(seen, leader.catch_up(SHORT).await.unwrap());
        drop(leader);
        for other in (1..=3).filter(|node| *node != follows) {
            cluster.stop_node(other).await;
        }
        assert_eq!(follower.catch_up_to_age(LONG, SHORT).await.unwrap(), seen);
        for refused in [follower.catch_up_to_age(Duration::ZERO, SHORT).await, follower.catch_up(SHORT).await]
        {
            assert!(matches!(refused, Err(NodeError::Refused(_))), "{refused:?}");
        }
        // What it has goes on to be known.
        assert_eq!(follower.catch_up_to_age(LONG, SHORT).await.unwrap(), seen);
    });
}
