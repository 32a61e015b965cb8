//! An upload: the pieces of a blob arrive, and are stored as they do.
//!
//! What was stored of an upload that does not end well is deleted in the background.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use duramen::blobs::{BlobWriter, PIECE_BYTES_MAX, WRITER_BYTES_MAX};
use duramen::error::{Code, Error, Result};
use duramen::{Db, Durability};
use duramen_proto::v1;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::{BlobService, info};
use crate::call::Call;
use crate::data::refused;
use crate::limit::budget::overloaded;

/// Bytes of a content type.
const CONTENT_TYPE_MAX: usize = 255;

/// What an upload holds beside the message that is charged anyway: the pieces that its writer stores at once,
/// the copy that a transaction has of them, and the message before as it was decoded.
const HELD_BYTES: usize = 2 * WRITER_BYTES_MAX + PIECE_BYTES_MAX;

/// Takes an upload.
pub(super) async fn run(
    service: &BlobService,
    messages: Streaming<v1::UploadRequest>,
    call: Call,
) -> std::result::Result<v1::UploadReply, Status> {
    let permit = Arc::clone(&service.uploads).try_acquire_owned();
    let _permit = permit.map_err(|_| refused(overloaded("upload")))?;
    call.charge(HELD_BYTES).await.map_err(refused)?;
    let mut draining = service.draining.clone();
    tokio::select! {
        done = receive(service, messages, &call) => done,
        _ = draining.wait_for(|draining| *draining) => Err(refused(going_down())),
    }
}

async fn receive(
    service: &BlobService,
    mut messages: Streaming<v1::UploadRequest>,
    call: &Call,
) -> std::result::Result<v1::UploadReply, Status> {
    let first = next(&mut messages, service.silence)
        .await?
        .ok_or_else(|| refused(Error::invalid("the upload has no message")))?;
    let v1::UploadRequest { namespace, content_type, mut bytes } = first;
    let mut writer = begin(service, &namespace, content_type).map_err(refused)?;
    loop {
        check_piece(bytes.len()).map_err(refused)?;
        let store = move |_: &Db| {
            writer.write_all(&bytes).map_err(Error::from_io)?;
            Ok(writer)
        };
        writer = service.bytes.run(store).await.map_err(refused)?;
        call.charges.end_message();
        let Some(message) = next(&mut messages, service.silence).await? else { break };
        if !message.namespace.is_empty() || !message.content_type.is_empty() {
            let error = Error::invalid("only the first message of an upload names its namespace and type");
            return Err(refused(error.with_hint("leave them empty in the others")));
        }
        bytes = message.bytes;
    }
    let upload = service.bytes.run(move |_| writer.finish_unattached()).await.map_err(refused)?;
    let info = Some(info(&upload.info()));
    let id = call.uploads.keep(upload, call.user, namespace).map_err(refused)?;
    Ok(v1::UploadReply { upload: bytes::Bytes::copy_from_slice(&id), info })
}

fn begin(service: &BlobService, namespace: &str, content_type: String) -> Result<BlobWriter> {
    if content_type.len() > CONTENT_TYPE_MAX {
        let what = format!(
            "a content type has at most {CONTENT_TYPE_MAX} bytes, and this one {}",
            content_type.len()
        );
        return Err(Error::invalid(what));
    }
    // The commit that attaches it waits for the disk, and makes everything before it durable.
    let db = service.bytes.blocking().at(Durability::Process);
    Ok(db.blobs(namespace).writer(())?.content_type(content_type))
}

async fn next(
    messages: &mut Streaming<v1::UploadRequest>,
    silence: Duration,
) -> std::result::Result<Option<v1::UploadRequest>, Status> {
    match timeout(silence, messages.message()).await {
        Ok(message) => message,
        Err(_) => {
            let what = format!("the upload had no message for {} s, and was given up", silence.as_secs());
            Err(refused(
                Error::new(Code::DeadlinePassed, what)
                    .with_hint("nothing is left of it: upload the bytes again"),
            ))
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
