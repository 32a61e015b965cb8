//! A task that stores or reads rows by the generated client.

use std::time::Instant;

use bytes::Bytes;
use duramen::tuple::Element;
use duramen_disk::memory::Random;
use duramen_proto::v1::data_client::DataClient;
use duramen_proto::{key, v1};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::COLLECTION;
use crate::engine::Row;
use crate::serve::server::{Done, Reader, Writer};

/// A connection, and what goes with each call.
pub(in crate::serve) struct Task {
    pub(super) client: DataClient<Channel>,
    /// None for a server that asks for no token.
    pub(super) token: Option<MetadataValue<Ascii>>,
    /// None for puts without a request id.
    pub(super) ids: Option<Ids>,
}

impl Task {
    fn request<T>(&self, message: T) -> Request<T> {
        with_token(message, self.token.as_ref())
    }
}

/// A call with its token.
pub(super) fn with_token<T>(message: T, token: Option<&MetadataValue<Ascii>>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.clone());
    }
    request
}

/// Request ids: UUIDs of version 7, by the server's clock of requests.
pub(super) struct Ids {
    /// What that said, and when.
    pub(super) then_ms: u64,
    pub(super) greeted: Instant,
    pub(super) random: Random,
}

impl Ids {
    fn next(&mut self) -> Bytes {
        let mut id = [0; 16];
        let now_ms = self.then_ms + u64::try_from(self.greeted.elapsed().as_millis()).unwrap_or(0);
        id[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
        id[6..8].copy_from_slice(&self.random.bits().to_be_bytes()[..2]);
        id[8..].copy_from_slice(&self.random.bits().to_be_bytes());
        id[6] = id[6] & 0x0f | 0x70;
        id[8] = id[8] & 0x3f | 0x80;
        Bytes::copy_from_slice(&id)
    }
}

impl Writer for Task {
    fn put<'a>(&'a mut self, row: Row<'a>) -> Done<'a> {
        let put = v1::PutDocument {
            collection: COLLECTION.to_owned(),
            document: Some(v1::Document { form: Some(v1::document::Form::Msgpack(document(row))) }),
            want_before: false,
        };
        let request_id = self.ids.as_mut().map(Ids::next).unwrap_or_default();
        let request = self.request(v1::BatchRequest {
            write: Some(v1::Write { request_id, ..Default::default() }),
            operations: vec![v1::Operation { kind: Some(v1::operation::Kind::Put(put)) }],
            ..Default::default()
        });
        Box::pin(async move {
            self.client.batch(request).await?;
            Ok(())
        })
    }
}

impl Reader for Task {
    fn get<'a>(&'a mut self, row: Row<'a>) -> Done<'a> {
        let of = v1::DocumentKey {
            collection: COLLECTION.to_owned(),
            key: Some(key::of(&[Element::Bytes(row.key.to_vec())])),
        };
        let reads = vec![v1::Read { kind: Some(v1::read::Kind::Get(of)) }];
        let form = v1::DocumentForm::Msgpack.into();
        let request = self.request(v1::ReadRequest { reads, form, ..Default::default() });
        Box::pin(async move {
            let results = self.client.read(request).await?.into_inner().results;
            let Some(v1::read_result::Kind::Found(found)) =
                results.into_iter().next().and_then(|one| one.kind)
            else {
                return Err("a get was not answered as one".into());
            };
            match found.document.and_then(|document| document.form) {
                Some(v1::document::Form::Msgpack(stored)) if stored == document(row) => Ok(()),
                other => Err(format!("a stored row was read as {other:?}").into()),
            }
        })
    }
}

/// `{key: bytes, value: bytes}` as MessagePack, in the form in which documents are stored.
fn document(row: Row<'_>) -> Bytes {
    let mut bytes = Vec::with_capacity(row.value.len() + 64);
    bytes.push(0x82);
    for (name, part) in [("key", row.key), ("value", row.value)] {
        bytes.push(0xa0 | u8::try_from(name.len()).unwrap_or(0));
        bytes.extend_from_slice(name.as_bytes());
        match u8::try_from(part.len()) {
            Ok(length) => bytes.extend_from_slice(&[0xc4, length]),
            Err(_) => {
                bytes.push(0xc5);
                bytes.extend_from_slice(&u16::try_from(part.len()).unwrap_or(0).to_be_bytes());
            }
        }
        bytes.extend_from_slice(part);
    }
    bytes.into()
}
