//! Attachments: files of any length, streamed in and out in constant memory.
//!
//! Owns the namespace of blobs `attachments`. The bytes of an upload are stored first, which may take
//! minutes. Its record and the key of its blob are then one short transaction. An upload that is cut off
//! leaves nothing.

use std::io::{Read, Write};
use std::mem;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use duramen::blobs::{BlobReader, BlobWriter, Upload};
use duramen::prelude::*;
use futures_util::{Stream, StreamExt, stream};

use crate::App;
use crate::errors::{Answer, ApiError};
use crate::extract::{Named, Params, line};
use crate::lists::{Listed, PageParams};
use crate::model::Attachment;
use crate::sessions::Signed;
use crate::tickets;

const BLOBS: &str = "attachments";

/// The size of a blob's pieces: an upload holds eight of them in memory, a download one.
const PIECE_BYTES: usize = 256 * 1024;

/// How much is read or written in one call of the database's threads.
const CHUNK_BYTES: usize = 128 * 1024;

/// How an upload is called.
#[derive(Deserialize)]
pub struct FileName {
    name: String,
}

/// `POST /tickets/{id}/attachments?name=photo.png`, with the file as the body.
///
/// # Errors
/// 400 for an invalid name, 401, 404, 413 for more than `attachment_bytes_max`.
pub async fn upload(
    State(app): State<App>,
    author: Signed,
    Named(ticket): Named<u64>,
    Params(file): Params<FileName>,
    headers: HeaderMap,
    body: Body,
) -> Answer<impl IntoResponse> {
    let name = line("name", &file.name)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or("application/octet-stream").to_owned();
    // Before the bytes are sent in vain. The transaction checks it again.
    app.db.run(move |db| Ok(tickets::check_exists(&db.snapshot()?, ticket))).await??;
    let upload = receive(&app, body).await?;
    let info = upload.info();
    let sha256 = info.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut record =
        Attachment { ticket, number: 0, author: author.user, name, content_type, bytes: info.len, sha256 };
    let stored = app.db.try_transact(move |tx| {
        tickets::check_exists(tx, ticket)?;
        let last: Option<Attachment> = tx.collection().prefix(ticket).reverse().first()?;
        record.number = last.map_or(1, |last| last.number + 1);
        tx.insert(&record)?;
        tx.blobs(BLOBS).attach((ticket, record.number), &upload)?;
        Ok::<_, ApiError>(record.clone())
    });
    let stored = stored.await?;
    let location = format!("/tickets/{ticket}/attachments/{}", stored.number);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(stored)))
}

/// Stores a body. No thread of the database waits for the client: each call has the bytes that it writes.
async fn receive(app: &App, body: Body) -> Answer<Upload> {
    let bytes_max = app.settings.attachment_bytes_max;
    let mut writer = app.db.run(|db| db.blobs(BLOBS).piece_bytes(PIECE_BYTES)?.writer(())).await?;
    let (mut frames, mut received, mut chunk) = (body.into_data_stream(), 0, Vec::new());
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| ApiError::invalid(format!("the body was cut off: {error}")))?;
        received += frame.len() as u64;
        if received > bytes_max {
            return Err(ApiError::too_large(bytes_max));
        }
        chunk.extend_from_slice(&frame);
        if chunk.len() >= CHUNK_BYTES {
            writer = write(app, writer, mem::take(&mut chunk)).await?;
        }
    }
    let writer = write(app, writer, chunk).await?;
    Ok(app.db.run(move |_| writer.finish_unattached()).await?)
}

async fn write(app: &App, mut writer: BlobWriter, bytes: Vec<u8>) -> Answer<BlobWriter> {
    let written = app.db.run(move |_| {
        writer.write_all(&bytes).map_err(Error::from_io)?;
        Ok(writer)
    });
    Ok(written.await?)
}

/// `GET /tickets/{id}/attachments`, in pages.
///
/// # Errors
/// 400 for a wrong page token, 401.
pub async fn list(
    State(app): State<App>,
    _: Signed,
    Named(ticket): Named<u64>,
    Params(page): Params<PageParams>,
) -> Answer<Json<Listed<Attachment>>> {
    let (size, after) = page.checked()?;
    let found =
        app.db.read(move |at| at.collection::<Attachment>().prefix(ticket).page(size, after.as_ref()));
    Listed::of(found.await)
}

/// `GET /tickets/{id}/attachments/{number}`: the file.
///
/// Record and blob are of one snapshot, which the download holds: deleting the ticket meanwhile does not cut
/// it off.
///
/// # Errors
/// 401, 404.
pub async fn download(
    State(app): State<App>,
    _: Signed,
    Named(key): Named<(u64, u32)>,
) -> Answer<impl IntoResponse> {
    let found = app.db.read(move |at| Ok(at.get::<Attachment>(key)?.zip(at.blobs(BLOBS).get(key)?)));
    let (record, reader) = found.await?.ok_or_else(|| ApiError::not_found("no such attachment"))?;
    // Never shown as a page of this site: the uploader chose its type.
    let headers = [
        (header::CONTENT_TYPE, record.content_type),
        (header::CONTENT_LENGTH, record.bytes.to_string()),
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::ETAG, format!("\"{}\"", record.sha256)),
    ];
    Ok((headers, Body::from_stream(chunks(app, reader))))
}

/// A blob as the body of an answer. The next chunk is read once the client has taken the one before.
fn chunks(app: App, reader: BlobReader) -> impl Stream<Item = Result<Bytes>> {
    stream::try_unfold((app, reader), async |(app, mut reader)| {
        let read = app.db.run(move |_| {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let count = (&mut reader).take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
            count.map_err(Error::from_io)?;
            Ok((chunk, reader))
        });
        let (chunk, reader) = read.await?;
        Ok((!chunk.is_empty()).then(|| (Bytes::from(chunk), (app, reader))))
    })
}

/// Deletes the attachments of a ticket, with their blobs.
///
/// # Errors
/// As [`Transaction::delete`].
pub fn delete_all(tx: &mut Transaction<'_>, ticket: u64) -> Result<()> {
    for attachment in tx.collection::<Attachment>().prefix(ticket).to_vec()? {
        tx.blobs(BLOBS).delete((ticket, attachment.number))?;
        tx.delete::<Attachment>((ticket, attachment.number))?;
    }
    Ok(())
}
