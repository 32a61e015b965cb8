//! The service `Admin`: how the database fares.

mod facts;

use duramen::error::Result;
use duramen::{Db, Histogram, SlowCommit};
use duramen_proto::document;
use duramen_proto::v1::{self, admin_server};
use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::data::{DataService, Room, call_of, refused};
pub use facts::facts;

/// What is known of a database.
#[derive(Clone)]
pub(crate) struct AdminService {
    reads: duramen::AsyncDb,
}

impl AdminService {
    /// With the threads of a service.
    pub(crate) fn beside(data: &DataService) -> AdminService {
        AdminService { reads: data.reads.clone() }
    }
}

#[tonic::async_trait]
impl admin_server::Admin for AdminService {
    async fn stats(
        &self,
        request: Request<v1::StatsRequest>,
    ) -> std::result::Result<Response<v1::StatsReply>, Status> {
        let call = call_of(&request);
        call.take_place().await.map_err(refused)?;
        let read = move |db: &Db| {
            let stats = stats(db)?;
            Room::new(&call).take(stats.encoded_len())?;
            Ok(stats)
        };
        self.reads.run(read).await.map(Response::new).map_err(refused)
    }
}

fn stats(db: &Db) -> Result<v1::StatsReply> {
    let timings = db.timings();
    let parts = [
        ("order", &timings.order),
        ("queue", &timings.queue),
        ("write", &timings.write),
        ("sync", &timings.sync),
        ("publish", &timings.publish),
        ("checkpoint", &timings.checkpoint),
    ];
    let hot = db.hot_keys()?.into_iter().map(|hot| v1::HotKey {
        tree: hot.tree,
        key: hot.key.into(),
        conflicts: hot.conflicts,
        conflicts_min: hot.conflicts_min,
    });
    let held = db
        .held_snapshots()
        .into_iter()
        .map(|held| v1::HeldSnapshot { seq: held.seq.0, age_ns: held.age.map(nanoseconds) });
    Ok(v1::StatsReply {
        facts: Some(document::of(&facts(db)?, v1::DocumentForm::Msgpack)?),
        timings: parts.map(|(part, of)| timing(part, of)).to_vec(),
        slow_commits: db.slow_commits()?.into_iter().map(slow).collect(),
        hot_keys: hot.collect(),
        held_snapshots: held.collect(),
        durable: db.durability_status().durable.0,
    })
}

fn timing(part: &str, of: &Histogram) -> v1::Timing {
    v1::Timing {
        part: part.to_owned(),
        count: of.count(),
        mean_ns: nanoseconds(of.mean()),
        p50_ns: nanoseconds(of.quantile(0.5)),
        p99_ns: nanoseconds(of.quantile(0.99)),
        max_ns: nanoseconds(of.max()),
    }
}

fn slow(commit: SlowCommit) -> v1::SlowCommit {
    let at = commit.published_at_ns;
    let seconds = i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds_of = u32::try_from(at % 1_000_000_000).unwrap_or(0);
    v1::SlowCommit {
        seq: commit.seq.0,
        published_at: Some(v1::Time { seconds, nanoseconds: nanoseconds_of }),
        order_ns: nanoseconds(commit.order),
        queue_ns: nanoseconds(commit.queue),
        write_ns: nanoseconds(commit.write),
        sync_ns: nanoseconds(commit.sync),
        publish_ns: nanoseconds(commit.publish),
        group: commit.group_len as u64,
        trees: commit.trees,
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
