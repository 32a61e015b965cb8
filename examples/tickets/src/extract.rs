//! What handlers take from a request: axum's extractors with errors as JSON, and the checks of input.
//!
//! Owns the limit of one line, and the form of revisions in `ETag` and `If-Match`.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use duramen::Revision;
use serde::de::DeserializeOwned;

use crate::errors::{Answer, ApiError};

/// The longest title, name, file name or e-mail address.
const LINE_BYTES_MAX: usize = 254;

/// A body of JSON.
pub struct Input<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Input<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Answer<Input<T>> {
        Ok(Input(Json::from_request(request, state).await?.0))
    }
}

/// What the path names: ids and numbers.
pub struct Named<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Named<T>> {
        Ok(Named(Path::from_request_parts(parts, state).await?.0))
    }
}

/// What stands after the question mark.
pub struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Params<T>> {
        Ok(Params(Query::from_request_parts(parts, state).await?.0))
    }
}

/// One line of text, without spaces around it.
pub fn line(what: &str, text: &str) -> Answer<String> {
    let text = text.trim();
    if text.is_empty() || text.len() > LINE_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(ApiError::invalid(format!("{what} must be one line of 1 to {LINE_BYTES_MAX} bytes")));
    }
    Ok(text.to_owned())
}

/// An e-mail address in lower case. Only a mail shows whether it exists.
pub fn email(text: &str) -> Answer<String> {
    let address = line("email", text)?.to_lowercase();
    match address.split_once('@') {
        Some((name, host)) if !name.is_empty() && !host.is_empty() && !host.contains('@') => Ok(address),
        _ => Err(ApiError::invalid("email must be an address such as ada@example.org")),
    }
}

/// A revision as the header `ETag`.
pub fn etag(revision: Revision) -> [(HeaderName, String); 1] {
    [(header::ETAG, format!("\"{revision}\""))]
}

/// The revision in `If-Match`, without which no document is changed: a lost update is worse than one more
/// header.
pub fn if_match(headers: &HeaderMap) -> Answer<Revision> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let message = "send the ETag of the document that you have read as the header If-Match";
        return Err(ApiError::new(StatusCode::PRECONDITION_REQUIRED, message));
    };
    let text = value.to_str().ok().and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| ApiError::invalid("If-Match must be one ETag, with its quotes"))
}
