//! A directory of a node that is an older copy of itself, or runs in two places, takes no part.

use std::time::Duration;

use duramen::{Code, Db};
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_repl::{NodeError, TokioRuntime};
use openraft_rt::AsyncRuntime as _;

use crate::cluster::{Cluster, pass, until};

/// Writes through the leader.
async fn write(cluster: &Cluster, value: &'static str) {
    cluster.on_leader(move |db: &Db| db.kv("kv").put("key", value)).await;
}

/// A cluster whose first node leads.
async fn led_by_the_first() -> Cluster {
    let cluster = Cluster::start(|_| ()).await;
    write(&cluster, "before").await;
    cluster.settle().await;
    assert_eq!(cluster.leader().await.0, 1);
    cluster
}

/// Starts a node from a disk, waits until it takes no more part, and looks that the first two go on.
async fn starts_and_retires(cluster: &mut Cluster, machine: u64, disk: MemDisk) {
    cluster.set_disk(machine, disk);
    cluster.start_node(machine).await;
    let node = cluster.node(machine);
    let why = until("it takes no more part", || node.failure()).await;
    drop(node);
    assert!(matches!(&why, NodeError::Database(why) if why.code() == Code::IdentityRetired), "{why}");
    write(cluster, "after").await;
    assert!(cluster.node(1).failure().is_none() && cluster.node(2).failure().is_none());
}

#[test]
fn a_copy_of_an_earlier_opening_takes_no_part() {
    TokioRuntime::new(4).block_on(async {
        let mut cluster = led_by_the_first().await;
        cluster.stop_node(3).await;
        let older = cluster.disk(3).crash(&CrashChoice::None);
        for _ in 0..2 {
            cluster.start_node(3).await;
            write(&cluster, "meanwhile").await;
            cluster.settle().await;
            cluster.stop_node(3).await;
        }
        starts_and_retires(&mut cluster, 3, older).await;
        // Each opening would have a later number than the one before.
        cluster.end_node(3).await;
        for _ in 0..3 {
            let why = cluster.start_in_vain(3).await;
            assert!(matches!(&why, NodeError::Database(why) if why.code() == Code::IdentityRetired), "{why}");
        }
    });
}

/// The address of a node that is down was given to another one, which has been opened more often.
#[test]
fn what_answers_for_another_node_retires_none() {
    TokioRuntime::new(4).block_on(async {
        let cluster = led_by_the_first().await;
        for _ in 0..3 {
            cluster.stop_node(2).await;
            cluster.start_node(2).await;
        }
        cluster.settle().await;
        cluster.stop_node(3).await;
        cluster.answers_for(3, Some(2));
        write(&cluster, "meanwhile").await;
        pass(Duration::from_secs(1)).await;
        cluster.answers_for(3, None);
        cluster.start_node(3).await;
        cluster.settle().await;
        assert!(cluster.nodes().iter().all(|node| node.failure().is_none()));
    });
}

#[test]
fn a_copy_that_lacks_what_it_has_acknowledged_takes_no_part() {
    TokioRuntime::new(4).block_on(async {
        let mut cluster = led_by_the_first().await;
        let older = cluster.disk(3).crash(&CrashChoice::None);
        write(&cluster, "meanwhile").await;
        cluster.settle().await;
        cluster.stop_node(3).await;
        starts_and_retires(&mut cluster, 3, older).await;
    });
}

#[test]
fn of_two_copies_the_one_that_came_second_takes_no_part() {
    TokioRuntime::new(4).block_on(async {
        let mut cluster = led_by_the_first().await;
        cluster.stop_node(3).await;
        let second = cluster.disk(3).crash(&CrashChoice::None);
        cluster.start_node(3).await;
        cluster.settle().await;
        starts_and_retires(&mut cluster, 4, second).await;
        assert!(cluster.node(3).failure().is_none(), "the first goes on");
    });
}
