//! The service `Blobs`: large byte objects, in and out in constant memory.
//!
//! An upload has no key: a batch or a transaction attaches it, by the operation of that name.

mod download;
pub(crate) mod kept;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use duramen::blobs::{BlobInfo, PIECE_BYTES_MAX, encoded_blobs};
use duramen::error::Result;
use duramen::{AsyncDb, Db, LocalReads as _, Span, tuple};
use duramen_proto::{key, v1};
use prost::Message as _;
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::{Named, Right};
use crate::call::Call;
use crate::data::{DataService, Identity, MESSAGE_BYTES, call_of, refused};
use crate::limit::Limits;
use crate::on_demand::OnDemand;
use crate::page::Pages;

/// Threads that read the bytes of blobs, and as many that store them: a slow disk keeps writers waiting,
/// and no readers.
const THREADS: usize = 2;

/// A message of an upload, with the names beside its bytes.
pub(crate) const UPLOAD_BYTES_MAX: usize = PIECE_BYTES_MAX + (8 << 10);

/// Blobs of a page, at most.
const PAGE_MAX: u32 = 1_000;

/// Blobs of a database.
#[derive(Clone)]
pub(crate) struct BlobService {
    reads: AsyncDb,
    downloads: AsyncDb,
    stores: AsyncDb,
    identity: Arc<Identity>,
    /// A permit for each upload under way.
    uploads: Arc<Semaphore>,
    /// An upload without a message for so long is given up.
    silence: Duration,
    /// A download goes on in a newer state after this time.
    state_lasts: Duration,
    /// It ends if none of its messages is taken for so long.
    unread: Duration,
    /// Whether the server goes down.
    draining: watch::Receiver<bool>,
}

type Answer<T> = std::result::Result<Response<T>, Status>;

impl BlobService {
    /// With the threads of a service.
    pub(crate) fn beside(
        data: &DataService,
        limits: &Limits,
        draining: watch::Receiver<bool>,
    ) -> BlobService {
        BlobService {
            reads: data.reads.clone(),
            downloads: AsyncDb::with_threads(data.reads.blocking().clone(), THREADS),
            stores: AsyncDb::with_threads(data.reads.blocking().clone(), THREADS),
            identity: Arc::clone(&data.identity),
            uploads: Arc::new(Semaphore::new(limits.uploads.min(Semaphore::MAX_PERMITS))),
            silence: limits.upload_silence,
            state_lasts: limits.download_state,
            unread: limits.unread_replies,
            draining,
        }
    }

    /// A read on a thread.
    async fn read<T: Send + 'static>(
        &self,
        call: Call,
        read: impl FnOnce(&Db, &Call) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, Status> {
        call.take_place().await.map_err(refused)?;
        let run = move |db: &Db| {
            call.begin()?;
            read(db, &call)
        };
        self.reads.run(run).await.map_err(refused)
    }
}

/// The metadata of a blob as a message.
fn info(of: &BlobInfo) -> v1::BlobInfo {
    v1::BlobInfo {
        length: of.len,
        sha256: bytes::Bytes::copy_from_slice(&of.sha256),
        content_type: of.content_type.clone().unwrap_or_default(),
    }
}

/// A page of the blobs of a range.
fn list(
    db: &Db,
    identity: &Identity,
    request: &v1::ListBlobsRequest,
    call: &Call,
) -> Result<v1::ListBlobsReply> {
    let snapshot = db.snapshot()?;
    identity.check(request.at_least.as_ref(), &snapshot)?;
    let query = v1::ListBlobsRequest {
        namespace: request.namespace.clone(),
        range: request.range.clone(),
        ..v1::ListBlobsRequest::default()
    };
    let pages = Pages::of(0, &query);
    let mut span = key::span(request.range.as_ref())?;
    let behind = pages.position(&request.page_token)?;
    if let Some(behind) = &behind {
        span = span.and(Span::from(tuple::decode(behind)?)?);
    }
    let mut found = encoded_blobs(&snapshot, &request.namespace, span)?
        .filter(|found| !found.as_ref().is_ok_and(|(key, _)| Some(key) == behind.as_ref()));
    let limit = if request.limit == 0 { PAGE_MAX } else { request.limit.min(PAGE_MAX) };
    let (mut blobs, mut bytes) = (Vec::new(), 0);
    while blobs.len() < limit as usize && bytes < MESSAGE_BYTES {
        let Some(blob) = found.next() else { break };
        let (key, of) = blob?;
        let blob = v1::ListedBlob { key: key.into(), info: Some(info(&of)) };
        let taken = size_of::<v1::ListedBlob>() + blob.encoded_len();
        call.charge_run(taken)?;
        bytes += taken;
        blobs.push(blob);
    }
    let last = blobs.last().filter(|_| found.next().is_some());
    let page_token = last.map(|last| pages.token(&last.key).into()).unwrap_or_default();
    Ok(v1::ListBlobsReply { blobs, page_token })
}

#[tonic::async_trait]
impl v1::blobs_server::Blobs for BlobService {
    async fn upload(&self, request: Request<Streaming<v1::UploadRequest>>) -> Answer<v1::UploadReply> {
        let call = call_of(&request);
        upload::run(self, request.into_inner(), call).await.map(Response::new)
    }

    type DownloadStream = OnDemand<download::Download>;

    async fn download(&self, request: Request<v1::DownloadRequest>) -> Answer<Self::DownloadStream> {
        let call = call_of(&request);
        download::run(self, request.into_inner(), call).await.map(Response::new).map_err(refused)
    }

    async fn info(&self, request: Request<v1::BlobInfoRequest>) -> Answer<v1::BlobInfoReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        call.caller.needs(Right::Reader, Some((Named::Blob, &request.namespace))).map_err(refused)?;
        self.identity.wait_for(request.at_least.as_ref(), &call).await.map_err(refused)?;
        let identity = Arc::clone(&self.identity);
        let read = move |db: &Db, _: &Call| {
            let snapshot = db.snapshot()?;
            identity.check(request.at_least.as_ref(), &snapshot)?;
            snapshot.blobs(&request.namespace).info(key::required(request.key.as_ref())?)
        };
        let found = self.read(call, read).await?;
        Ok(Response::new(v1::BlobInfoReply { info: found.as_ref().map(info) }))
    }

    async fn list(&self, request: Request<v1::ListBlobsRequest>) -> Answer<v1::ListBlobsReply> {
        let (call, request) = (call_of(&request), request.into_inner());
        call.caller.needs(Right::Reader, Some((Named::Blob, &request.namespace))).map_err(refused)?;
        self.identity.wait_for(request.at_least.as_ref(), &call).await.map_err(refused)?;
        let identity = Arc::clone(&self.identity);
        let page = self.read(call, move |db, call| list(db, &identity, &request, call)).await?;
        Ok(Response::new(page))
    }
}
