//! The codec of all calls: Protocol Buffers, with bounds on what a message becomes in memory.
//!
//! tonic holds a message's declared length against the limit of the service before it reads the message. This
//! codec then counts its parts, and decodes it only if they are few enough.

use std::marker::PhantomData;

use bytes::Buf as _;
use duramen::error::Error;
use prost::{Message, Name};
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::{shape, status};

/// How the names of messages end that clients send.
const REQUEST: &str = "Request";

/// Encodes `T`, decodes `U`.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encoding<T>;
    type Decoder = Decoding<U>;

    fn encoder(&mut self) -> Encoding<T> {
        Encoding(PhantomData)
    }

    fn decoder(&mut self) -> Decoding<U> {
        Decoding(PhantomData)
    }
}

/// Encodes messages of a type.
#[derive(Debug)]
pub struct Encoding<T>(PhantomData<T>);

impl<T: Message> Encoder for Encoding<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // It would grow step by step, and be copied with each.
        out.reserve(message.encoded_len());
        message.encode(out).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Decodes messages of a type.
#[derive(Debug)]
pub struct Decoding<U>(PhantomData<U>);

impl<U: Message + Name + Default> Decoder for Decoding<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, encoded: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let encoded = encoded.copy_to_bytes(encoded.remaining());
        decode(encoded).map(Some).map_err(|error| status::of(&error))
    }
}

/// Decodes a message.
///
/// # Errors
/// `TooLarge` (E0203) for a request of too many parts, or too deep ones; `InvalidArgument` (E0201) if it is
/// no message.
pub fn decode<U: Message + Name + Default>(encoded: bytes::Bytes) -> duramen::Result<U> {
    // A client trusts the server that it has asked: answers have as many parts as they need.
    if U::NAME.ends_with(REQUEST) {
        shape::check(&U::full_name(), &encoded)?;
    }
    U::decode(encoded).map_err(|error| {
        Error::invalid(format!("the message cannot be read: {error}"))
            .with_hint("encode it by the .proto files of this release")
    })
}
