//! Downloads: bytes come as they are read. And lists of blobs, page by page.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::marker::PhantomData;
use std::ops::Range;
use std::thread;
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use duramen::blobs::BlobInfo;
use duramen::error::{Code, Result};
use duramen::tuple::{OwnedKey, decode};
use duramen_proto::v1;

use super::info;
use crate::blobs::Downloaded;
use crate::remote::transaction::lacks;
use crate::remote::{Remote, WITHIN, is_transient};

/// Reads a blob of a served database, or a part of one.
///
/// After a lost connection it goes on where it was, if the blob is still the same: else a read fails with
/// `DocumentChanged` (E0803).
#[derive(Debug)]
pub struct RemoteBlobReader<'a> {
    remote: &'a Remote,
    blob: v1::BlobKey,
    info: BlobInfo,
    from: u64,
    to: u64,
    at: u64,
    download: Option<Downloaded>,
    /// What has come and is not read yet: it begins at `next`.
    bytes: Bytes,
    next: u64,
}

impl<'a> RemoteBlobReader<'a> {
    pub(super) fn open(
        remote: &'a Remote,
        blob: v1::BlobKey,
        bytes: Range<u64>,
    ) -> Result<Option<RemoteBlobReader<'a>>> {
        if bytes.is_empty() {
            return RemoteBlobReader::empty(remote, blob, bytes.start);
        }
        let length = bytes.end - bytes.start;
        let request = request(&blob, bytes.start, length, Bytes::new());
        let (download, first) = remote.again(|| {
            let mut download = remote.client.download(request.clone())?;
            let first = download.next()?;
            Ok((download, first))
        })?;
        let Some(first) = first else { return Ok(None) };
        let info = info(first.info.ok_or_else(|| lacks("info"))?)?;
        let to = bytes.end.min(info.len);
        let at = bytes.start.min(to);
        let (download, bytes, next) = (Some(download), first.bytes, at);
        Ok(Some(RemoteBlobReader { remote, blob, info, from: at, to, at, download, bytes, next }))
    }

    /// A range without bytes.
    fn empty(remote: &'a Remote, blob: v1::BlobKey, at: u64) -> Result<Option<RemoteBlobReader<'a>>> {
        let v1::BlobKey { namespace, key } = blob.clone();
        let request = v1::BlobInfoRequest { namespace, key, at_least: None };
        let Some(found) = remote.again(|| remote.client.blob_info(request.clone()))? else {
            return Ok(None);
        };
        let info = info(found)?;
        let at = at.min(info.len);
        let (download, bytes, next) = (None, Bytes::new(), at);
        Ok(Some(RemoteBlobReader { remote, blob, info, from: at, to: at, at, download, bytes, next }))
    }

    /// The metadata of the whole blob, also if only a part was opened.
    #[must_use]
    pub fn info(&self) -> BlobInfo {
        self.info.clone()
    }

    /// The length of the opened part in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Whether the opened part is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// After a seek: within what has come, or in a new download.
    fn go_to_place(&mut self) {
        match self.at.checked_sub(self.next).and_then(|skipped| usize::try_from(skipped).ok()) {
            Some(skipped) if skipped <= self.bytes.len() => self.bytes.advance(skipped),
            _ => {
                self.download = None;
                self.bytes.clear();
            }
        }
        self.next = self.at;
    }

    /// The next bytes, of a new download after a lost connection.
    fn next_bytes(&mut self) -> Result<Bytes> {
        let (until, mut tries) = (Instant::now() + WITHIN, 0);
        loop {
            let error = match self.try_next() {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            self.download = None;
            tries += 1;
            let wait = self.remote.wait_before(tries);
            let may_go_on = is_transient(&error) || error.code() == Code::SnapshotExpired;
            if !may_go_on || Instant::now() + wait > until {
                return Err(error);
            }
            thread::sleep(wait);
        }
    }

    fn try_next(&mut self) -> Result<Bytes> {
        let download = match &mut self.download {
            Some(download) => download,
            none => {
                let sha256 = Bytes::copy_from_slice(&self.info.sha256);
                let request = request(&self.blob, self.at, self.to - self.at, sha256);
                none.insert(self.remote.client.download(request)?)
            }
        };
        match download.next()? {
            Some(reply) if !reply.bytes.is_empty() => Ok(reply.bytes),
            _ => Err(lacks("bytes")),
        }
    }
}

fn request(blob: &v1::BlobKey, offset: u64, length: u64, sha256: Bytes) -> v1::DownloadRequest {
    let v1::BlobKey { namespace, key } = blob.clone();
    v1::DownloadRequest { namespace, key, offset, length, sha256, at_least: None }
}

impl Read for RemoteBlobReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.to || buffer.is_empty() {
            return Ok(0);
        }
        self.go_to_place();
        if self.bytes.is_empty() {
            self.bytes = self.next_bytes().map_err(io::Error::other)?;
        }
        let count = self.bytes.len().min(buffer.len());
        self.bytes.copy_to_slice(&mut buffer[..count]);
        self.at += count as u64;
        self.next = self.at;
        Ok(count)
    }
}

/// Positions count from the start of the opened part. Reads beyond its end return nothing.
impl Seek for RemoteBlobReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => self.from.checked_add(at),
            SeekFrom::End(by) => self.to.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.filter(|at| *at >= self.from).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a place before the start of what was opened")
        })?;
        Ok(self.at - self.from)
    }
}

/// Blobs of a range in key order, from [`RemoteBlobs::scan`](super::RemoteBlobs::scan).
#[derive(Debug)]
pub struct RemoteBlobIter<'a, K> {
    remote: &'a Remote,
    /// The next page; `None` after the last.
    request: Option<v1::ListBlobsRequest>,
    page: VecDeque<v1::ListedBlob>,
    kind: PhantomData<fn() -> K>,
}

impl<'a, K: OwnedKey> RemoteBlobIter<'a, K> {
    pub(super) fn new(remote: &'a Remote, request: v1::ListBlobsRequest) -> RemoteBlobIter<'a, K> {
        RemoteBlobIter { remote, request: Some(request), page: VecDeque::new(), kind: PhantomData }
    }

    fn step(&mut self) -> Result<Option<(K, BlobInfo)>> {
        while self.page.is_empty() {
            // After an error it ends.
            let Some(mut request) = self.request.take() else { return Ok(None) };
            let page = self.remote.again(|| self.remote.client.list_blobs(request.clone()))?;
            self.page = page.blobs.into();
            if !page.page_token.is_empty() {
                request.page_token = page.page_token;
                self.request = Some(request);
            }
        }
        let Some(blob) = self.page.pop_front() else { return Ok(None) };
        let of = blob.info.ok_or_else(|| lacks("info"))?;
        Ok(Some((K::from_elements(decode(&blob.key)?)?, info(of)?)))
    }
}

impl<K: OwnedKey> Iterator for RemoteBlobIter<'_, K> {
    type Item = Result<(K, BlobInfo)>;

    fn next(&mut self) -> Option<Result<(K, BlobInfo)>> {
        self.step().transpose()
    }
}
