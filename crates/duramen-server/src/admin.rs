//! The service `Admin`: how the database fares, and its users.

mod backup;
mod facts;
mod users;

use std::sync::Arc;
use std::time::Duration;

use duramen::error::{Error, Result};
use duramen::{Db, Histogram, SlowCommit};
use duramen_proto::document;
use duramen_proto::v1::{self, admin_server};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::audit::{self, Audit};
use crate::auth::Right;
use crate::call::Call;
use crate::cluster::{Cluster, Doing};
use crate::data::{DataService, Identity, Room, call_of, refused};
pub use facts::facts;

/// Backups at once, each with a thread: one may wait for memory on it.
const BACKUPS: usize = 2;

/// What is known of a database.
#[derive(Clone)]
pub(crate) struct AdminService {
    reads: duramen::AsyncDb,
    writes: duramen::AsyncDb,
    listeners: Arc<[v1::Listener]>,
    audit: Arc<Audit>,
    backups: duramen::AsyncDb,
    backup_places: Arc<Semaphore>,
    identity: Arc<Identity>,
    /// A backup of which no message is taken for so long ends.
    unread: Duration,
    cluster: Option<Arc<dyn Cluster>>,
}

impl AdminService {
    /// With the threads of a service.
    pub(crate) fn beside(
        data: &DataService,
        listeners: Arc<[v1::Listener]>,
        audit: &Arc<Audit>,
    ) -> AdminService {
        AdminService {
            reads: data.reads.clone(),
            writes: data.writes.clone(),
            listeners,
            audit: Arc::clone(audit),
            backups: duramen::AsyncDb::with_threads(data.reads.blocking().clone(), BACKUPS),
            backup_places: Arc::new(Semaphore::new(BACKUPS)),
            identity: Arc::clone(&data.identity),
            unread: data.unread,
            cluster: data.cluster.clone(),
        }
    }

    /// What only an administrator may do, on a thread.
    async fn administer<T: Send + 'static>(
        &self,
        call: Call,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        call.caller.needs(Right::Admin, None).map_err(refused)?;
        call.take_place().await.map_err(refused)?;
        let run = move |db: &Db| {
            call.begin()?;
            work(db)
        };
        self.writes.run(run).await.map(Response::new).map_err(refused)
    }

    /// As [`AdminService::administer`], for changes: the audit tells of them.
    async fn change<T: Send + 'static>(
        &self,
        call: Call,
        what: &'static str,
        on: String,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let (audit, actor) = (Arc::clone(&self.audit), call.actor());
        self.administer(call, move |db| audit.act(&actor, (what, &on), || work(db))).await
    }

    /// The cluster that the database is a node of.
    fn node(&self) -> Result<Arc<dyn Cluster>> {
        self.cluster.clone().ok_or_else(|| {
            Error::invalid("the database is no node of a cluster")
                .with_hint("`duramen serve DB --cluster init` makes it the first one")
        })
    }

    /// What an operator does to the cluster. The audit tells of it.
    async fn of_cluster(
        &self,
        call: Call,
        (what, on): (&'static str, &str),
        doing: Doing<'_>,
    ) -> std::result::Result<(), Status> {
        call.caller.needs(Right::Operator, None).map_err(refused)?;
        call.take_place().await.map_err(refused)?;
        let (audit, actor, on) = (Arc::clone(&self.audit), call.actor(), on.to_owned());
        let begun = self.writes.run(move |_| audit.begin(&actor, what, &on)).await.map_err(refused)?;
        let done = doing.await;
        begun.end(done.as_ref().err().map(Error::code));
        done.map_err(refused)
    }

    /// As [`AdminService::change`], of what may not be there: returns whether it was.
    async fn remove(
        &self,
        call: Call,
        (what, on): (&'static str, String),
        work: impl FnOnce(&Db) -> Result<bool> + Send + 'static,
    ) -> std::result::Result<bool, Status> {
        let (audit, actor) = (Arc::clone(&self.audit), call.actor());
        let removed = self.administer(call, move |db| audit.remove(&actor, (what, &on), || work(db)));
        removed.await.map(Response::into_inner)
    }
}

type Answer<T> = std::result::Result<Response<T>, Status>;

#[tonic::async_trait]
impl admin_server::Admin for AdminService {
    async fn stats(&self, request: Request<v1::StatsRequest>) -> Answer<v1::StatsReply> {
        let call = call_of(&request);
        call.caller.needs(Right::Operator, None).map_err(refused)?;
        call.take_place().await.map_err(refused)?;
        let listeners = Arc::clone(&self.listeners);
        let read = move |db: &Db| {
            let mut stats = stats(db, &listeners)?;
            if !call.caller.has(Right::Reader, None)? {
                stats.hot_keys.iter_mut().for_each(|hot| hot.key.clear());
            }
            if !call.caller.has(Right::Admin, None)? {
                // Users, ids of requests.
                stats.hot_keys.retain(|hot| !hot.tree.starts_with("duramen/"));
            }
            Room::new(&call).take(stats.encoded_len())?;
            Ok(stats)
        };
        self.reads.run(read).await.map(Response::new).map_err(refused)
    }

    async fn users(&self, request: Request<v1::UsersRequest>) -> Answer<v1::UsersReply> {
        let call = call_of(&request);
        let all = {
            let call = call.clone();
            move |db: &Db| {
                let all = users::all(db)?;
                Room::new(&call).take(all.encoded_len())?;
                Ok(all)
            }
        };
        self.administer(call, all).await
    }

    async fn put_user(&self, request: Request<v1::PutUserRequest>) -> Answer<v1::PutUserReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let on = request.user.as_ref().map(|user| user.name.clone()).unwrap_or_default();
        self.change(call, "put_user", on, move |db| users::put(db, &request)).await
    }

    async fn drop_user(&self, request: Request<v1::DropUserRequest>) -> Answer<v1::DropUserReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let act = ("drop_user", request.name.clone());
        let was_there = self.remove(call, act, move |db| crate::users::drop_user(db, &request.name)).await?;
        Ok(Response::new(v1::DropUserReply { was_there }))
    }

    async fn add_token(&self, request: Request<v1::AddTokenRequest>) -> Answer<v1::AddTokenReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let on = request.user.clone();
        self.change(call, "add_token", on, move |db| users::add_token(db, &request)).await
    }

    async fn revoke_token(&self, request: Request<v1::RevokeTokenRequest>) -> Answer<v1::RevokeTokenReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let act = ("revoke_token", request.id.clone());
        let was_there = self.remove(call, act, move |db| crate::users::revoke_token(db, &request.id)).await?;
        Ok(Response::new(v1::RevokeTokenReply { was_there }))
    }

    type BackupStream = backup::Replies;

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Answer<Self::BackupStream> {
        backup::run(self, call_of(&request)).await.map(Response::new).map_err(refused)
    }

    async fn cluster(&self, request: Request<v1::ClusterRequest>) -> Answer<v1::ClusterReply> {
        let call = call_of(&request);
        call.caller.needs(Right::Operator, None).map_err(refused)?;
        call.take_place().await.map_err(refused)?;
        Ok(Response::new(self.node().map_err(refused)?.state()))
    }

    async fn transfer(&self, request: Request<v1::TransferRequest>) -> Answer<v1::TransferReply> {
        let (call, cluster) = (call_of(&request), self.node().map_err(refused)?);
        let to = request.into_inner().to;
        let on = to.to_string();
        self.of_cluster(call, ("transfer", &on), cluster.transfer(to)).await?;
        Ok(Response::new(v1::TransferReply {}))
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Answer<v1::RemoveMemberReply> {
        let (call, cluster) = (call_of(&request), self.node().map_err(refused)?);
        let node = request.into_inner().node;
        let on = node.to_string();
        self.of_cluster(call, ("remove member", &on), cluster.remove(node)).await?;
        Ok(Response::new(v1::RemoveMemberReply {}))
    }

    async fn audit(&self, request: Request<v1::AuditRequest>) -> Answer<v1::AuditReply> {
        let mark = |db: &Db| {
            Ok(audit::mark_of(db)?.map_or_else(v1::AuditReply::default, |mark| v1::AuditReply {
                first: mark.first,
                last: mark.last,
                hash: mark.hash.to_vec().into(),
            }))
        };
        self.administer(call_of(&request), mark).await
    }
}

fn stats(db: &Db, listeners: &[v1::Listener]) -> Result<v1::StatsReply> {
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
        listeners: listeners.to_vec(),
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
