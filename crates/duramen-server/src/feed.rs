//! The service `Feed`: changes of commits as a stream, and consumers, which have a position in the database.

mod message;
mod watching;

use std::sync::Arc;

use duramen::error::{Code, Error, Result};
use duramen::{AnyChange, AsyncDb, ChangeIter, CommitSeq, Db, wire};
use duramen_proto::v1::{self, feed_server};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};

use crate::auth::{Named, Right};
use crate::call::Call;
use crate::data::{DataService, Identity, call_of, refused};
use crate::limit::Limits;
use crate::limit::budget::overloaded;

/// Threads that read changes.
const THREADS: usize = 2;

/// Watches that hold a commit before it is charged: how large it is shows when it was read.
const READING_MAX: usize = 4;

/// Changes of a database.
#[derive(Clone)]
pub(crate) struct FeedService {
    reads: AsyncDb,
    writes: AsyncDb,
    changes: AsyncDb,
    identity: Arc<Identity>,
    /// A permit for each watch.
    watches: Arc<Semaphore>,
    /// A permit for each watch that reads a commit.
    reading: Arc<Semaphore>,
    limits: Limits,
    /// Whether the server goes down.
    draining: watch::Receiver<bool>,
}

type Answer<T> = std::result::Result<Response<T>, Status>;

impl FeedService {
    /// With the threads of a service.
    pub(crate) fn beside(
        data: &DataService,
        limits: &Limits,
        draining: watch::Receiver<bool>,
    ) -> FeedService {
        FeedService {
            reads: data.reads.clone(),
            writes: data.writes.clone(),
            changes: AsyncDb::with_threads(data.reads.blocking().clone(), THREADS),
            identity: Arc::clone(&data.identity),
            watches: Arc::new(Semaphore::new(limits.watches.min(Semaphore::MAX_PERMITS))),
            reading: Arc::new(Semaphore::new(READING_MAX)),
            limits: limits.clone(),
            draining,
        }
    }

    async fn begin(&self, request: &v1::WatchRequest, call: &Call) -> Result<watching::Watching> {
        for collection in &request.collections {
            call.caller.needs(Right::Reader, Some((Named::Collection, collection)))?;
        }
        if request.consumer.is_empty() {
            call.caller.needs_any(Right::Reader)?;
        } else {
            call.caller.needs(Right::Consumer, Some((Named::Consumer, &request.consumer)))?;
        }
        let permit = Arc::clone(&self.watches).try_acquire_owned();
        let permit = permit.map_err(|_| overloaded("watch"))?;
        call.take_place().await?;
        let (request, identity) = (request.clone(), Arc::clone(&self.identity));
        let wanted = message::Wanted::new(&request, call.caller.clone());
        let ends = request.ends;
        let (changes, at) = self.changes.run(move |db| start(db, &identity, &request)).await?;
        call.give_place_back();
        Ok(watching::Watching::new(changes, at, wanted, ends, permit, call.clone()))
    }

    /// A change of a consumer, on a thread.
    async fn change<T: Send + 'static>(
        &self,
        call: Call,
        name: &str,
        change: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, Status> {
        call.caller.needs(Right::Consumer, Some((Named::Consumer, name))).map_err(refused)?;
        call.take_place().await.map_err(refused)?;
        let run = move |db: &Db| {
            call.begin()?;
            change(db)
        };
        self.writes.run(run).await.map_err(refused)
    }
}

/// Changes from where a request begins, and the commit behind which that is.
fn start(
    db: &Db,
    identity: &Identity,
    request: &v1::WatchRequest,
) -> Result<(ChangeIter<AnyChange>, CommitSeq)> {
    let changes = db.all_changes();
    let mut begun = if request.consumer.is_empty() {
        match request.start() {
            v1::WatchStart::Now => changes.from_now(),
            v1::WatchStart::Oldest => changes.from_oldest(),
            v1::WatchStart::Beginning => changes.from_beginning(),
            v1::WatchStart::After => changes.since(after(db, identity, request.after.as_ref())?),
        }
    } else {
        changes.since(wire::consumer_named(db, &request.consumer).position()?)
    };
    match begun.position() {
        Some(at) => Ok((begun, at)),
        // It has failed, and says why.
        None => match begun.next_commit().and_then(|items| items.into_iter().next()) {
            Some(Err(error)) => Err(error),
            _ => Ok((begun, CommitSeq(0))),
        },
    }
}

/// The commit of a token.
fn after(db: &Db, identity: &Identity, token: Option<&v1::Token>) -> Result<CommitSeq> {
    let token = token.ok_or_else(|| Error::invalid("the token to begin behind is missing"))?;
    if !identity.is_of(token) {
        let what = "the position is of another database: it was restored, repaired or replaced";
        return Err(Error::new(Code::FeedGap, what)
            .with_hint("read the collections anew, and watch from the state that was read"));
    }
    identity.check(Some(token), &db.snapshot()?)?;
    Ok(CommitSeq(token.seq))
}

#[tonic::async_trait]
impl feed_server::Feed for FeedService {
    type WatchStream = watching::Messages;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let (call, request) = (call_of(&request), request.into_inner());
        let begun = self.begin(&request, &call).await.map_err(refused)?;
        let (unread, draining) = (self.limits.unread_replies, self.draining.clone());
        let threads = (self.changes.clone(), Arc::clone(&self.reading));
        Ok(Response::new(begun.run(threads, &self.identity, unread, draining)))
    }

    async fn register_consumer(
        &self,
        request: Request<v1::RegisterConsumerRequest>,
    ) -> Answer<v1::RegisterConsumerReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        if request.refuses_writers {
            call.caller.needs(Right::Operator, None).map_err(refused)?;
        }
        let (name, identity) = (request.name.clone(), Arc::clone(&self.identity));
        let register = move |db: &Db| {
            let options = db.consumer(&request.name);
            let options = match request.start() {
                v1::WatchStart::Now => options.from_now(),
                v1::WatchStart::Oldest => options.from_oldest(),
                v1::WatchStart::Beginning => options.from_beginning(),
                v1::WatchStart::After => options.after(after(db, &identity, request.after.as_ref())?),
            };
            let options = if request.refuses_writers { options.refuse_writers() } else { options };
            options.register()?;
            let all = db.consumers()?;
            let state = all.iter().find(|known| known.name == request.name);
            Ok(state.map(|state| message::consumer(state, &identity)))
        };
        let consumer = self.change(call, &name, register).await?;
        Ok(Response::new(v1::RegisterConsumerReply { consumer }))
    }

    async fn seek_consumer(
        &self,
        request: Request<v1::SeekConsumerRequest>,
    ) -> Answer<v1::SeekConsumerReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let (name, identity) = (request.name.clone(), Arc::clone(&self.identity));
        let seek = move |db: &Db| {
            let to = after(db, &identity, request.after.as_ref())?;
            wire::consumer_named(db, &request.name).seek(to)
        };
        self.change(call, &name, seek).await?;
        Ok(Response::new(v1::SeekConsumerReply {}))
    }

    async fn unregister_consumer(
        &self,
        request: Request<v1::UnregisterConsumerRequest>,
    ) -> Answer<v1::UnregisterConsumerReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let name = request.name.clone();
        let end = move |db: &Db| wire::consumer_named(db, &request.name).unregister();
        let was_there = self.change(call, &name, end).await?;
        Ok(Response::new(v1::UnregisterConsumerReply { was_there }))
    }

    async fn consumers(&self, request: Request<v1::ConsumersRequest>) -> Answer<v1::ConsumersReply> {
        let call = call_of(&request);
        call.take_place().await.map_err(refused)?;
        let identity = Arc::clone(&self.identity);
        let read = move |db: &Db| {
            call.check_deadline()?;
            let sees_all = call.caller.has(Right::Operator, None)?;
            let mut consumers = Vec::new();
            for state in db.consumers()? {
                if sees_all || call.caller.has(Right::Consumer, Some((Named::Consumer, &state.name)))? {
                    consumers.push(message::consumer(&state, &identity));
                }
            }
            Ok(consumers)
        };
        let consumers = self.reads.run(read).await.map_err(refused)?;
        Ok(Response::new(v1::ConsumersReply { consumers }))
    }
}
