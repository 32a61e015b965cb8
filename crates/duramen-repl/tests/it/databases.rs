//! What a database keeps in memory follows the log: names of fields, ids, time, users, requests.

use std::collections::BTreeSet;

use duramen::prelude::*;
use duramen::requests::{self, Request};
use duramen::{doc, wire};
use duramen_repl::TokioRuntime;
use openraft_rt::AsyncRuntime;

use crate::cluster::{Cluster, until};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = city, value = cents, reduce = (Count, Sum)))]
struct Order {
    #[key(assigned)]
    id: u64,
    city: String,
    cents: i64,
}

/// Longer than an id may be ahead of the clock of requests.
const REST_NS: u64 = 600_000_000_000;

fn order(city: &str) -> Order {
    Order { id: 0, city: city.to_owned(), cents: 100 }
}

fn in_a_cluster(fill: impl FnOnce(&Db), run: impl AsyncFnOnce(Cluster)) {
    TokioRuntime::new(4).block_on(async {
        let cluster = Cluster::start(fill).await;
        run(cluster).await;
    });
}

/// Each kind of document is added by another leader. All nodes read all of them.
#[test]
fn documents_of_every_leader_have_their_names_on_every_node() {
    in_a_cluster(
        |db| drop(db.ensure(&Schema::new("things").key(["id"]).column("id", ColumnType::Int)).unwrap()),
        async |cluster| {
            for round in 0..4_i64 {
                let field = format!("field_{round}");
                let add =
                    move |db: &Db| db.documents("things").put(doc! { "id": round }.with(&field, round * 10));
                cluster.on_leader(add).await;
                cluster.change_leader().await;
            }
            cluster.settle().await;
            for node in cluster.nodes() {
                let things = node.db().documents("things");
                for round in 0..4_i64 {
                    let thing = things.get(round).unwrap().unwrap();
                    assert_eq!(thing.get(&format!("field_{round}")), Some(&(round * 10).into()));
                }
                let report = node.db().check_documents().unwrap();
                assert!(report.is_clean(), "{report:?}");
            }
        },
    );
}

/// Also those of documents that were deleted, and once a leader has used up the block of ids that it began in
/// an earlier leadership.
#[test]
fn no_id_is_assigned_twice_by_any_leader() {
    in_a_cluster(
        |db| db.register::<Order>().unwrap(),
        async |cluster| {
            let mut ids = BTreeSet::new();
            for count in [1, 10, 10, 1500, 1500, 1500] {
                let push = move |db: &Db| {
                    db.transact(|tx| {
                        (0..count).map(|_| Ok(tx.push(order("Oslo"))?.id)).collect::<Result<Vec<u64>>>()
                    })
                };
                for id in cluster.on_leader(push).await {
                    assert!(ids.insert(id), "{id} among {count}");
                }
                let last = *ids.last().unwrap();
                assert!(cluster.on_leader(move |db| db.delete::<Order>(last)).await);
                cluster.change_leader().await;
            }
            cluster.settle().await;
            let left = ids.len() as u64 - 6;
            for node in cluster.nodes() {
                let snapshot = node.db().snapshot().unwrap();
                let (orders, cents) = snapshot.view::<ByCity>().key("Oslo").reduce().unwrap();
                assert_eq!((orders, cents), (left, i128::from(left) * 100));
            }
        },
    );
}

/// Nothing is written after a put: the node that leads then ends the value's life for all. A snapshot stays
/// as it is.
#[test]
fn a_value_expires_on_every_node() {
    in_a_cluster(
        |_| (),
        async |cluster| {
            let gone = async |cluster: &Cluster| {
                for node in cluster.nodes() {
                    let gone =
                        || node.db().kv("locks").get::<String>("door").unwrap().is_none().then_some(());
                    until("the lock ends", gone).await;
                }
            };
            let lock = |ms| {
                move |db: &Db| {
                    db.kv("locks").put_with("door", "ann", Ttl::millis(ms))?;
                    db.snapshot()
                }
            };
            for _ in 0..3 {
                let while_locked = cluster.on_leader(lock(300)).await;
                gone(&cluster).await;
                assert!(while_locked.kv("locks").get::<String>("door").unwrap().is_some());
                cluster.change_leader().await;
            }
            // The jobs of each node have rested since it led.
            cluster.on_leader(lock(700)).await;
            cluster.change_leader().await;
            gone(&cluster).await;
            cluster.on_leader(|db| db.kv("locks").put("door", "bob")).await;
        },
    );
}

/// A follower hears of users that the leader changes.
#[test]
fn users_are_the_same_on_every_node() {
    in_a_cluster(
        |_| (),
        async |cluster| {
            let versions = |cluster: &Cluster| -> Vec<u64> {
                cluster.nodes().iter().map(|node| wire::user_rows_version(node.db())).collect()
            };
            let before = versions(&cluster);
            assert_eq!(before, versions(&cluster), "nothing has changed");
            cluster.on_leader(|db| db.transact(|tx| wire::put_user_row(tx, b"ann", b"writes"))).await;
            cluster.settle().await;
            let after = versions(&cluster);
            assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
        },
    );
}

/// A try on another leader finds the answer of the first.
#[test]
fn a_request_runs_once_whoever_leads() {
    in_a_cluster(
        |_| (),
        async |cluster| {
            let id = cluster.on_leader(requests::new_id).await;
            let pay = move |db: &Db| {
                requests::once(db, &Request::new(id, b"pay"), |tx| {
                    tx.kv("paid").increment("ann", 1)?;
                    Ok(b"paid".to_vec())
                })
            };
            let first = cluster.on_leader(pay).await;
            cluster.restart_leader().await;
            let second = cluster.on_leader(pay).await;
            assert_eq!((first.is_repeated, second.is_repeated), (false, true));
            assert_eq!(first.answer, second.answer);
            assert_eq!(cluster.on_leader(|db| db.kv("paid").get::<i64>("ann")).await, Some(1));
            let other = cluster.on_leader(requests::new_id).await;
            assert!(other.time() >= id.time(), "the clock of requests does not go back: {other} after {id}");
        },
    );
}

/// A node that does not lead has the time of the last commit. What it is asked to do is another node's.
#[test]
fn a_request_after_a_long_rest_is_of_the_leader_everywhere() {
    in_a_cluster(
        |_| (),
        async |cluster| {
            cluster.on_leader(|db: &Db| db.kv("paid").put("ann", &0)).await;
            cluster.settle().await;
            for machine in 1..=3 {
                cluster.stop_node(machine).await;
            }
            for machine in 1..=3 {
                cluster.disk(machine).advance_clock(REST_NS);
                cluster.start_node(machine).await;
            }
            let (leads, _) = cluster.leader().await;
            let follower = cluster.nodes().into_iter().find(|node| node.ident().node != leads).unwrap();
            // Also of a node that does not lead.
            let id = requests::new_id(follower.db()).unwrap();
            drop(follower);
            let pay = move |db: &Db| {
                requests::once(db, &Request::new(id, b"pay"), |tx| {
                    tx.kv("paid").increment("ann", 1)?;
                    Ok(b"paid".to_vec())
                })
            };
            for node in cluster.nodes().into_iter().filter(|node| node.ident().node != leads) {
                let db = node.db().clone();
                let done = TokioRuntime::spawn_blocking(move || pay(&db)).await.unwrap();
                // That node may lead by now.
                let code = done.err().map(|error| error.code());
                assert!(code.is_none_or(|code| code == duramen::Code::NotLeader), "{code:?}");
            }
            assert_eq!(cluster.on_leader(pay).await.answer, b"paid");
        },
    );
}

/// Its pieces may have been collected by another leader meanwhile.
#[test]
fn an_upload_ends_with_the_leadership_that_it_began_in() {
    in_a_cluster(
        |_| (),
        async |cluster| {
            let (id, node) = cluster.leader().await;
            let db = node.db().clone();
            drop(node);
            let upload = TokioRuntime::spawn_blocking(move || db.blobs("pictures").upload(&[7; 3 << 20][..]));
            let upload = upload.await.unwrap().unwrap();
            // Others lead, and then this one again.
            while {
                cluster.change_leader().await;
                cluster.leader().await.0 != id
            } {}
            let db = cluster.node(id).db().clone();
            let attached = TokioRuntime::spawn_blocking(move || {
                db.transact(|tx| tx.blobs("pictures").attach("sea", &upload))
            });
            let refused = attached.await.unwrap().unwrap_err();
            assert_eq!(refused.code(), duramen::Code::InvalidArgument);
        },
    );
}
