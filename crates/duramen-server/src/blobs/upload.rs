//! An upload: the pieces of a blob arrive, and are stored as they do.
//!
//! What was stored of an upload that does not end well is deleted in the background.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use duramen::blobs::{BlobWriter, PIECE_BYTES_MAX};
use duramen::error::{Code, Error, Result};
use duramen::{Db, Durability};
use duramen_proto::v1;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::{BlobService, info};
use crate::auth::{Named, Right};
use crate::call::Call;
use crate::data::refused;
use crate::limit::body::ROOM_WAIT;
use crate::limit::budget::overloaded;

/// Pieces that are stored at a time: each time syncs the data file.
const PIECES_AT_ONCE: usize = 1;

/// What an upload holds at most: the pieces that are to be stored, the message that has arrived, and the
/// buffer in which messages are put together.
const HELD_BYTES_MAX: usize = (PIECES_AT_ONCE + 2) * PIECE_BYTES_MAX;

/// For how long the rest of a refused upload is read, at most: its client stops once it has the answer.
const READ_ON: Duration = Duration::from_secs(2);

/// Bytes of a content type.
const CONTENT_TYPE_MAX: usize = 255;

/// Takes an upload.
pub(super) async fn run(
    service: &BlobService,
    mut messages: Streaming<v1::UploadRequest>,
    call: Call,
) -> std::result::Result<v1::UploadReply, Status> {
    let mut draining = service.draining.clone();
    let done = tokio::select! {
        done = receive(service, &mut messages, &call) => done,
        _ = draining.wait_for(|draining| *draining) => Err(refused(going_down())),
    };
    if done.is_err() {
        // Dropped at once, they would reset the stream, and with it the answer that says why. The charge of a
        // message that has arrived in part goes along.
        call.charges.refuse();
        tokio::spawn(timeout(READ_ON, async move {
            while let Ok(Some(_)) = messages.message().await {}
            drop(call);
        }));
    }
    done
}

async fn receive(
    service: &BlobService,
    messages: &mut Streaming<v1::UploadRequest>,
    call: &Call,
) -> std::result::Result<v1::UploadReply, Status> {
    // One with names: a client that may not write takes no place.
    let first = next(messages, service).await?;
    let namespace = first.namespace.clone();
    let may_write = || call.caller.needs(Right::Writer, Some((Named::Blob, &namespace))).map_err(refused);
    may_write()?;
    let place = call.uploads.place().map_err(refused)?;
    let permit = Arc::clone(&service.uploads).try_acquire_owned();
    let _permit = permit.map_err(|_| refused(overloaded("place for an upload")))?;
    call.charge_within(HELD_BYTES_MAX, ROOM_WAIT).await.map_err(refused)?;
    // That of the first message.
    call.charges.end_message();
    let mut writer = begin(service, &namespace, &first.content_type).map_err(refused)?;
    let mut message = first;
    loop {
        check_piece(message.bytes.len()).map_err(refused)?;
        if !message.bytes.is_empty() {
            // The call goes along: its charges last as long as the bytes.
            let (bytes, of) = (std::mem::take(&mut message.bytes), call.clone());
            let store = move |_: &Db| {
                writer.write_all(&bytes).map_err(Error::from_io)?;
                drop(of);
                Ok(writer)
            };
            writer = service.stores.run(store).await.map_err(refused)?;
        }
        if message.is_last {
            break;
        }
        message = next(messages, service).await?;
        if !message.namespace.is_empty() || !message.content_type.is_empty() {
            let error = Error::invalid("only the first message of an upload names its namespace and type");
            return Err(refused(error.with_hint("leave them empty in the others")));
        }
        may_write()?;
    }
    let of = call.clone();
    let finish = move |_: &Db| {
        let stored = writer.finish_unattached();
        drop(of);
        stored
    };
    let upload = service.stores.run(finish).await.map_err(refused)?;
    let info = Some(info(&upload.info()));
    let user = call.caller.name().to_owned();
    let id = call.uploads.keep(upload, user, namespace.clone(), place).map_err(refused)?;
    Ok(v1::UploadReply { upload: bytes::Bytes::copy_from_slice(&id), info })
}

fn begin(service: &BlobService, namespace: &str, content_type: &str) -> Result<BlobWriter> {
    if content_type.len() > CONTENT_TYPE_MAX {
        let what = format!(
            "a content type has at most {CONTENT_TYPE_MAX} bytes, and this one {}",
            content_type.len()
        );
        return Err(Error::invalid(what));
    }
    // The commit that attaches it waits for the disk, and makes everything before it durable.
    let db = service.stores.blocking().at(Durability::Process);
    Ok(db.blobs(namespace).writer(())?.pieces_at_once(PIECES_AT_ONCE).content_type(content_type))
}

/// The next message. There must be one: the last one says that it is the last.
async fn next(
    messages: &mut Streaming<v1::UploadRequest>,
    service: &BlobService,
) -> std::result::Result<v1::UploadRequest, Status> {
    match timeout(service.silence, messages.message()).await {
        Ok(Ok(Some(message))) => Ok(message),
        Ok(Ok(None)) => {
            let error = Error::invalid("the upload ended before its last message");
            Err(refused(error.with_hint("set `is_last` in the last one, and upload the bytes again")))
        }
        Ok(Err(status)) => Err(status),
        Err(_) => {
            let silence = service.silence.as_secs();
            let error = Error::new(
                Code::DeadlinePassed,
                format!("the upload had no message for {silence} s, and was given up"),
            );
            Err(refused(error.with_hint(
                "nothing is left of it: upload the bytes again, with an empty message now and then while none are there",
            )))
        }
    }
}

fn check_piece(bytes: usize) -> Result<()> {
    if bytes <= PIECE_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "a message of an upload has at most {PIECE_BYTES_MAX} bytes of the blob, and this one {bytes}"
    );
    Err(Error::new(Code::TooLarge, what).with_hint("send them in several messages"))
}

fn going_down() -> Error {
    Error::new(Code::Draining, "the server is going down, and the upload was given up")
        .with_hint("nothing is left of it: upload the bytes again in a moment")
}
