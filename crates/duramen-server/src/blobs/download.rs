//! A download: the bytes of a blob, in messages that a thread makes.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen::blobs::{BlobInfo, BlobReader, PIECE_BYTES_MAX};
use duramen::error::{Code, Error, Result};
use duramen::tuple::Element;
use duramen::{Db, LocalReads as _};
use duramen_proto::{key, v1};

use super::{BlobService, info};
use crate::auth::{Caller, Named, Right};
use crate::call::Call;
use crate::on_demand::{OnDemand, Source};

/// Bytes of the blob in a message.
const MESSAGE_BYTES: usize = 256 << 10;

/// Begins a download.
pub(super) async fn run(
    service: &BlobService,
    request: v1::DownloadRequest,
    call: Call,
) -> Result<OnDemand<Download>> {
    call.caller.needs(Right::Reader, Some((Named::Blob, &request.namespace)))?;
    service.identity.wait_for(request.at_least.as_ref(), &call).await?;
    // The piece that is being read.
    call.charge(PIECE_BYTES_MAX).await?;
    call.take_place().await?;
    let (identity, begun, state_lasts) = (Arc::clone(&service.identity), call.clone(), service.state_lasts);
    let begin = move |db: &Db| {
        begun.check_deadline()?;
        identity.check(request.at_least.as_ref(), &db.snapshot()?)?;
        Download::new(db, request, state_lasts)
    };
    let download = service.downloads.run(begin).await?;
    Ok(OnDemand::new(service.downloads.clone(), download, service.unread, call))
}

/// A download between two messages.
pub(crate) struct Download {
    namespace: String,
    key: Vec<Element>,
    /// `None` if there is no such blob.
    opened: Option<Opened>,
    is_info_told: bool,
    /// The next byte, and the one behind the last.
    at: u64,
    to: u64,
    state_lasts: Duration,
}

/// A blob in a snapshot.
struct Opened {
    reader: BlobReader,
    info: BlobInfo,
    since: Instant,
}

impl Download {
    fn new(db: &Db, request: v1::DownloadRequest, state_lasts: Duration) -> Result<Download> {
        let key = key::required(request.key.as_ref())?;
        let length = if request.length == 0 { u64::MAX } else { request.length };
        let (at, to) = (request.offset, request.offset.saturating_add(length));
        let (namespace, opened, is_info_told) = (request.namespace, None, false);
        let mut download = Download { namespace, key, opened, is_info_told, at, to, state_lasts };
        download.opened = download.open(db)?;
        if let Some(opened) = &download.opened {
            download.to = to.min(opened.info.len);
        }
        let found = download.opened.as_ref().map(|opened| &opened.info.sha256[..]);
        if !request.sha256.is_empty() && found != Some(&request.sha256) {
            return Err(replaced());
        }
        Ok(download)
    }

    fn open(&self, db: &Db) -> Result<Option<Opened>> {
        let reader = db.snapshot()?.blobs(&self.namespace).range(&self.key, self.at..self.to)?;
        Ok(reader.map(|reader| Opened { info: reader.info(), reader, since: Instant::now() }))
    }

    /// Goes on in a newer snapshot, if it has the same blob.
    fn renew(&mut self, db: &Db) -> Result<()> {
        let newer = self.open(db)?;
        let bytes_of = |opened: &Opened| (opened.info.len, opened.info.sha256);
        if newer.as_ref().map(bytes_of) != self.opened.as_ref().map(bytes_of) {
            return Err(replaced());
        }
        self.opened = newer;
        Ok(())
    }
}

impl Source for Download {
    type Message = v1::DownloadReply;

    fn message(&mut self, db: &Db, call: &Call) -> Result<Option<v1::DownloadReply>> {
        if self.opened.as_ref().is_some_and(|opened| opened.since.elapsed() >= self.state_lasts) {
            self.renew(db)?;
        }
        let Some(opened) = &mut self.opened else { return Ok(None) };
        if self.is_info_told && self.at >= self.to {
            return Ok(None);
        }
        let left = usize::try_from(self.to.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(MESSAGE_BYTES)];
        call.charge_run(bytes.len())?;
        opened.reader.read_exact(&mut bytes).map_err(Error::from_io)?;
        self.at += bytes.len() as u64;
        let info = (!self.is_info_told).then(|| info(&opened.info));
        self.is_info_told = true;
        Ok(Some(v1::DownloadReply { info, bytes: bytes.into() }))
    }

    fn check(&self, caller: &Caller) -> Result<()> {
        caller.needs(Right::Reader, Some((Named::Blob, &self.namespace)))
    }

    fn ended() -> Error {
        Error::new(
            Code::SnapshotExpired,
            "the download took longer than its deadline, or no message of it was taken for too long",
        )
        .with_hint("go on in a new one, from the offset that was reached, with the SHA-256 of the blob")
    }
}

fn replaced() -> Error {
    Error::new(Code::DocumentChanged, "the blob was replaced or deleted since it was read first")
        .with_hint("begin again from its first byte")
}
