//! What a batch asks of the cluster: nothing for what a leader commits, and the newest state for the rest.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duramen::CommitSeq;
use duramen::error::Code;
use duramen::prelude::*;
use duramen_client::Freshness;
use duramen_proto::v1::{self, condition};
use duramen_server::{Cluster, Doing};

use super::batches::batch;
use super::{Served, order_key, put};

/// A cluster in which this node believes that it leads. To catch up changes the database, as what another
/// node has acknowledged would.
#[derive(Debug, Default)]
struct Believed {
    follows: AtomicBool,
    catches: AtomicU32,
    catches_to_an_age: AtomicU32,
    waits_for: Mutex<Vec<CommitSeq>>,
    newer: Mutex<Option<(Db, i64)>>,
}

impl Believed {
    fn asked(&self) -> u32 {
        self.catches.swap(0, Ordering::Relaxed)
    }

    /// How often it was asked for the newest state, and for one of some age.
    fn asked_for_both(&self) -> (u32, u32) {
        (self.asked(), self.catches_to_an_age.swap(0, Ordering::Relaxed))
    }
}

impl Cluster for Believed {
    fn catch_up(&self) -> Doing<'_> {
        self.catches.fetch_add(1, Ordering::Relaxed);
        let newer = self.newer.lock().expect("no panic").take();
        if let Some((db, id)) = newer {
            db.documents("orders").delete(("Oslo", id)).expect("deleted");
        }
        Box::pin(async { Ok(()) })
    }

    fn catch_up_to_age(&self, _: Duration) -> Doing<'_> {
        self.catches_to_an_age.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn published(&self, seq: CommitSeq) -> Doing<'_> {
        self.waits_for.lock().expect("no panic").push(seq);
        Box::pin(async { Ok(()) })
    }

    fn leads(&self) -> bool {
        !self.follows.load(Ordering::Relaxed)
    }

    fn state(&self) -> v1::ClusterReply {
        v1::ClusterReply::default()
    }

    fn transfer(&self, _: u64) -> Doing<'_> {
        Box::pin(async { Ok(()) })
    }

    fn remove(&self, _: u64) -> Doing<'_> {
        Box::pin(async { Ok(()) })
    }
}

fn served() -> (Served, Arc<Believed>) {
    let cluster = Arc::new(Believed::default());
    let served = Served::with(|server| server.cluster(Arc::clone(&cluster) as Arc<dyn Cluster>));
    cluster.asked();
    (served, cluster)
}

/// Puts an order if there is none.
fn if_absent(id: i64) -> v1::BatchRequest {
    let absent = condition::Kind::Absent(order_key("Oslo", id));
    let mut request = batch(vec![put("Oslo", id, 5)]);
    request.conditions = vec![v1::Condition { kind: Some(absent) }];
    request
}

#[test]
fn a_leader_commits_without_asking_a_majority_whether_it_leads() {
    let (served, cluster) = served();
    served.client.batch(batch(vec![put("Oslo", 3, 5)])).expect("committed");
    let committed = served.client.batch(if_absent(4)).expect("committed");
    assert_eq!((committed.failed_condition, cluster.asked()), (0, 0));
    // Its reads may be answered in a later state.
    let mut reads = batch(vec![put("Oslo", 5, 5)]);
    reads.reads = vec![v1::Read { kind: Some(v1::read::Kind::Count(super::all_orders())) }];
    served.client.batch(reads).expect("committed");
    assert_eq!(cluster.asked(), 1);
    cluster.follows.store(true, Ordering::Relaxed);
    served.client.batch(batch(vec![put("Oslo", 3, 5)])).expect("committed");
    assert_eq!(cluster.asked(), 1);
}

/// What another leader has acknowledged meanwhile, or this one without having published it, counts.
#[test]
fn what_only_rests_on_reads_is_run_again_on_the_newest_state() {
    let (served, cluster) = served();
    let deleted_meanwhile = |id| *cluster.newer.lock().expect("no panic") = Some((served.db.clone(), id));
    let told = served.client.batch(if_absent(1)).expect("answered");
    assert_eq!((told.failed_condition, cluster.asked()), (1, 1), "it is there");
    deleted_meanwhile(1);
    let told = served.client.batch(if_absent(1)).expect("answered");
    assert_eq!((told.failed_condition, cluster.asked()), (0, 1), "it is there no longer");

    let delete = v1::Operation { kind: Some(v1::operation::Kind::Delete(order_key("Oslo", 99))) };
    served.client.batch(batch(vec![delete])).expect("answered");
    assert_eq!(cluster.asked(), 1, "nothing was there, and nothing is committed");

    let insert = v1::PutDocument {
        collection: "orders".to_owned(),
        document: Some(super::order("Oslo", 2, 7)),
        want_before: false,
    };
    let insert = || batch(vec![v1::Operation { kind: Some(v1::operation::Kind::Insert(insert.clone())) }]);
    let failed = served.client.try_batch(insert()).expect_err("it is there");
    assert_eq!((failed.error.code(), failed.operation, cluster.asked()), (Code::AlreadyExists, Some(1), 1));
    deleted_meanwhile(2);
    served.client.batch(insert()).expect("it is there no longer");
    assert_eq!(cluster.asked(), 1);

    // With a request id the answer is committed, and stands.
    let mut request = if_absent(2);
    let id = duramen::requests::new_id(&served.db).expect("an id").bytes().to_vec().into();
    request.write = Some(v1::Write { request_id: id, ..v1::Write::default() });
    let told = served.client.batch(request).expect("answered");
    assert_eq!((told.failed_condition, cluster.asked()), (1, 0));
}

/// Calls that only read see the state that they allow. What a transaction does is decided on the newest.
#[test]
fn reads_alone_may_see_an_older_state() {
    let (served, cluster) = served();
    let client = &served.client;
    client.batch(batch(vec![put("Oslo", 3, 5)])).expect("committed");
    let count = || v1::Read { kind: Some(v1::read::Kind::Count(super::all_orders())) };
    let read = || client.read(v1::ReadRequest { reads: vec![count()], ..v1::ReadRequest::default() });
    let scan = || v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() };
    for (freshness, wanted) in [
        (Freshness::Newest, (3, 0)),
        (Freshness::MaxAge(Duration::from_millis(1500)), (0, 3)),
        (Freshness::Any, (0, 0)),
    ] {
        cluster.asked_for_both();
        client.set_freshness(freshness);
        read().expect("read");
        client.collections(Vec::new()).expect("read");
        client.scan(scan()).expect("begun").next().expect("a message").expect("read");
        assert_eq!(cluster.asked_for_both(), wanted, "{freshness:?}");
        // A batch that reads, and what a commit before has become.
        let mut reads = batch(vec![put("Oslo", 4, 5)]);
        reads.reads = vec![count()];
        client.batch(reads).expect("committed");
        let request_id = client.new_request_id().expect("an id");
        client.outcome(v1::OutcomeRequest { request_id }).expect("told");
        let (newest, of_an_age) = cluster.asked_for_both();
        assert!(newest >= 2 && of_an_age == 0, "{freshness:?}: {newest}, {of_an_age}");
    }
    // One that need not be the newest may lack a commit that the read names.
    let mut at_least =
        client.batch(batch(vec![put("Oslo", 5, 5)])).expect("committed").receipt.and_then(|of| of.at);
    let read = |at_least: Option<v1::Token>| {
        client.read(v1::ReadRequest { reads: vec![count()], at_least, ..v1::ReadRequest::default() })
    };
    read(at_least.clone()).expect("it is there");
    let seq = at_least.as_ref().expect("a token").seq;
    at_least.as_mut().expect("a token").seq += 1_000;
    assert_eq!(read(at_least.clone()).expect_err("no such commit").code(), Code::LostWrites);
    client.set_freshness(Freshness::Newest);
    assert_eq!(read(at_least).expect_err("no such commit").code(), Code::LostWrites);
    assert_eq!(*cluster.waits_for.lock().expect("no panic"), [CommitSeq(seq), CommitSeq(seq + 1_000)]);
}
