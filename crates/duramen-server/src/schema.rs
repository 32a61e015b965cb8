//! The service `Schema`: what collections and views there are, and changes of them.

mod collections;
mod types;
mod views;

use std::sync::{Arc, Mutex, PoisonError};

use duramen::error::{Code, Error, Result};
use duramen::wire;
use duramen::{AsyncDb, Db, Durability, LocalReads as _, Receipt, Snapshot, Span, Transaction};
use duramen_proto::v1::{self, schema_server};
use duramen_proto::view;
use tonic::{Request, Response, Status};

use crate::audit::{Actor, Audit, Begun};
use crate::auth::{Caller, Named, Right};
use crate::call::Call;
use crate::data::{DataService, Identity, Room, call_of, refused};

/// Threads that build views: each call takes one for half a second.
const BUILD_THREADS: usize = 1;

/// The definitions of a database.
#[derive(Clone)]
pub(crate) struct SchemaService {
    reads: AsyncDb,
    writes: AsyncDb,
    builds: AsyncDb,
    identity: Arc<Identity>,
    audit: Arc<Audit>,
}

impl SchemaService {
    /// With the threads of a service.
    pub(crate) fn beside(data: &DataService, audit: &Arc<Audit>) -> SchemaService {
        let builds = AsyncDb::with_threads(data.reads.blocking().clone(), BUILD_THREADS);
        let (reads, writes) = (data.reads.clone(), data.writes.clone());
        let (identity, audit) = (Arc::clone(&data.identity), Arc::clone(audit));
        SchemaService { reads, writes, builds, identity, audit }
    }

    async fn read<T: Send + 'static>(
        &self,
        call: Call,
        read: impl FnOnce(&Snapshot, &mut Room<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, Status> {
        call.take_place().await.map_err(refused)?;
        self.reads.read(move |snapshot| read(snapshot, &mut Room::new(&call))).await.map_err(refused)
    }

    /// A change of the definitions of a collection, as one transaction, of which the audit tells.
    async fn change<T: Send + 'static>(
        &self,
        call: Call,
        (what, collection): (&'static str, &str),
        level: i32,
        change: impl FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<(T, v1::Receipt), Status> {
        call.caller.needs(Right::Schema, Some((Named::Collection, collection))).map_err(refused)?;
        let (on, mut change) = (collection.to_owned(), change);
        let told = move |tx: &mut Transaction<'_>, tell: &Tell| {
            tell.begin(what, &on)?;
            change(tx)
        };
        self.change_by(call, level, told).await.map_err(refused)
    }

    /// A change of definitions by a caller that has been looked at.
    async fn change_by<T: Send + 'static>(
        &self,
        call: Call,
        level: i32,
        mut change: impl FnMut(&mut Transaction<'_>, &Tell) -> Result<T> + Send + 'static,
    ) -> Result<(T, v1::Receipt)> {
        call.take_place().await?;
        let tell = Tell::new(&self.audit, call.actor());
        let within = tell.clone();
        let db = self.writes.at(durability(level)?);
        let run = move |tx: &mut Transaction<'_>| {
            call.begin()?;
            let checked = call.clone();
            tx.only_if(move || checked.check_deadline());
            change(tx, &within)
        };
        let done = db.transact_with_receipt(run).await;
        tell.end(done.as_ref().err().map(Error::code));
        let (out, receipt): (T, Receipt) = done?;
        Ok((out, self.identity.receipt(&receipt, false)))
    }
}

/// Tells the audit of a change, once, however often its transaction runs.
#[derive(Clone)]
struct Tell {
    audit: Arc<Audit>,
    actor: Actor,
    begun: Arc<Mutex<Option<Begun>>>,
}

impl Tell {
    fn new(audit: &Arc<Audit>, actor: Actor) -> Tell {
        Tell { audit: Arc::clone(audit), actor, begun: Arc::default() }
    }

    /// Before the change is committed.
    fn begin(&self, what: &str, on: &str) -> Result<()> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.is_none() {
            *begun = Some(self.audit.begin(&self.actor, what, on)?);
        }
        Ok(())
    }

    /// If this is not reached, the client is gone, and the last run tells that its end is not known.
    fn end(&self, code: Option<Code>) {
        if let Some(begun) = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take() {
            begun.end(code);
        }
    }
}

/// These collections, or all that the caller has any right on.
///
/// # Errors
/// `Forbidden` (E1102) for one of these that it has no right on.
fn visible(snapshot: &Snapshot, names: Vec<String>, caller: &Caller) -> Result<Vec<String>> {
    if names.is_empty() {
        let mut visible = Vec::new();
        for schema in snapshot.collections()? {
            if caller.knows(Named::Collection, schema.name())? {
                visible.push(schema.name().to_owned());
            }
        }
        return Ok(visible);
    }
    for name in &names {
        if !caller.knows(Named::Collection, name)? {
            caller.needs(Right::Reader, Some((Named::Collection, name)))?;
        }
    }
    Ok(names)
}

/// The level of a message.
///
/// # Errors
/// `InvalidArgument` (E0201) if there is no such level.
pub(crate) fn durability(level: i32) -> Result<Durability> {
    match v1::Level::try_from(level) {
        Ok(v1::Level::Disk) => Ok(Durability::Disk),
        Ok(v1::Level::Process) => Ok(Durability::Process),
        Err(_) => Err(Error::invalid(format!("there is no level {level}"))),
    }
}

type Answer<T> = std::result::Result<Response<T>, Status>;

#[tonic::async_trait]
impl schema_server::Schema for SchemaService {
    async fn collections(&self, request: Request<v1::CollectionsRequest>) -> Answer<v1::CollectionsReply> {
        let (call, names) = (call_of(&request), request.into_inner().names);
        let caller = call.caller.clone();
        let all = move |snapshot: &Snapshot, room: &mut Room<'_>| {
            let mut all = collections::all(snapshot, &visible(snapshot, names, &caller)?, room)?;
            all.iter_mut().try_for_each(|found| collections::hide_keys(found, &caller))?;
            Ok(all)
        };
        let collections = self.read(call, all).await?;
        Ok(Response::new(v1::CollectionsReply { collections }))
    }

    async fn ensure_type(&self, request: Request<v1::EnsureTypeRequest>) -> Answer<v1::EnsureTypeReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let level = request.level;
        call.charge(types::cost(&request).map_err(refused)?).await.map_err(refused)?;
        let definitions = Arc::new(types::definitions(&request).map_err(refused)?);
        let declared = Arc::clone(&definitions);
        let caller = call.caller.clone();
        let change = move |tx: &mut Transaction<'_>, tell: &Tell| {
            let (collection, changed) = types::ensure(tx, &definitions, &caller)?;
            if !changed.is_empty() {
                tell.begin("ensure_type", &changed.join(", "))?;
            }
            Ok(collection)
        };
        let caller = call.caller.clone();
        let (mut collection, receipt) = self.change_by(call, level, change).await.map_err(refused)?;
        collections::hide_keys(&mut collection, &caller).map_err(refused)?;
        // A type that only reads and writes decides nothing for others.
        if types::may_change(&declared, &caller).map_err(refused)? {
            wire::declare_types(self.writes.blocking(), &declared).map_err(refused)?;
        }
        Ok(Response::new(v1::EnsureTypeReply { receipt: Some(receipt), collection: Some(collection) }))
    }

    async fn drop_collection(
        &self,
        request: Request<v1::DropCollectionRequest>,
    ) -> Answer<v1::DropCollectionReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let (name, collection) = (request.collection.clone(), request.collection);
        let change = move |tx: &mut Transaction<'_>| {
            let count = tx.documents(&name).count(Span::all())?;
            tx.drop_collection(&name)?;
            Ok(count)
        };
        let (count, receipt) =
            self.change(call, ("drop_collection", &collection), request.level, change).await?;
        Ok(Response::new(v1::DropCollectionReply { receipt: Some(receipt), count }))
    }

    async fn views(&self, request: Request<v1::ViewsRequest>) -> Answer<v1::ViewsReply> {
        let (call, names) = (call_of(&request), request.into_inner().collections);
        let caller = call.caller.clone();
        let all = move |snapshot: &Snapshot, room: &mut Room<'_>| {
            let mut all = views::all(snapshot, &visible(snapshot, names, &caller)?, room)?;
            for found in &mut all {
                if !caller.has(Right::Reader, Some((Named::Collection, &found.collection)))? {
                    (found.failed, found.rows) = (String::new(), 0);
                }
            }
            Ok(all)
        };
        let views = self.read(call, all).await?;
        Ok(Response::new(v1::ViewsReply { views }))
    }

    async fn add_view(&self, request: Request<v1::AddViewRequest>) -> Answer<v1::AddViewReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let (level, collection) = (request.level, request.collection.clone());
        let spec = view::required(request.view.as_ref()).map_err(refused)?;
        let change =
            move |tx: &mut Transaction<'_>| view::add(tx, &request.collection, &spec, request.replace);
        let (is_new, receipt) = self.change(call, ("add_view", &collection), level, change).await?;
        Ok(Response::new(v1::AddViewReply { receipt: Some(receipt), is_new }))
    }

    async fn drop_view(&self, request: Request<v1::DropViewRequest>) -> Answer<v1::DropViewReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let (level, collection) = (request.level, request.collection.clone());
        let change = move |tx: &mut Transaction<'_>| match request.unfinished_only {
            true => tx.drop_unfinished_view(&request.collection, &request.view),
            false => tx.drop_view(&request.collection, &request.view),
        };
        let (was_there, receipt) = self.change(call, ("drop_view", &collection), level, change).await?;
        Ok(Response::new(v1::DropViewReply { receipt: Some(receipt), was_there }))
    }

    async fn rebuild_view(&self, request: Request<v1::RebuildViewRequest>) -> Answer<v1::RebuildViewReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let (level, collection) = (request.level, request.collection.clone());
        let change = move |tx: &mut Transaction<'_>| tx.rebuild_view(&request.collection, &request.view);
        let ((), receipt) = self.change(call, ("rebuild_view", &collection), level, change).await?;
        Ok(Response::new(v1::RebuildViewReply { receipt: Some(receipt) }))
    }

    async fn build_views(&self, request: Request<v1::BuildViewsRequest>) -> Answer<v1::BuildViewsReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        let of = Some((Named::Collection, &request.collection[..]));
        call.caller.needs(Right::Schema, of).map_err(refused)?;
        call.take_place().await.map_err(refused)?;
        let build = move |db: &Db| views::build(db, &request, &call);
        self.builds.run(build).await.map(Response::new).map_err(refused)
    }
}
