//! How errors become answers: a status for each kind of database error, and one form of JSON.
//!
//! Owns the mapping. Errors that the client cannot mend are reported on standard error, and the answer has
//! only their code: messages of the database name files and keys.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duramen::{Code, Collection, Error, ErrorKind, ReplaceError};
use serde_json::json;

/// What a handler returns.
pub type Answer<T> = Result<T, ApiError>;

/// An answer other than success: `{"error": "...", "code": "E0214"}`.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    code: Option<Code>,
}

impl ApiError {
    /// An error that the database has no part in.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), code: None }
    }

    /// What was sent cannot be taken.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// What was named is not there.
    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, message)
    }

    /// More bytes than the limit were sent.
    pub fn too_large(bytes_max: u64) -> ApiError {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("send at most {bytes_max} bytes"))
    }

    /// The ticket was changed since the client read it.
    pub fn stale() -> ApiError {
        let message = "the document has changed since: read it again, and send the ETag that it has now";
        ApiError {
            code: Some(Code::DocumentChanged),
            ..ApiError::new(StatusCode::PRECONDITION_FAILED, message)
        }
    }

    /// The same answer with a message for this place.
    pub fn because(self, message: &str) -> ApiError {
        ApiError { message: message.into(), ..self }
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

/// The status for a cause. What is not about the request is a 5xx: the client did nothing wrong.
///
/// `InvalidArgument` is a mistake of this program, unless a handler has passed on what the client sent. Such
/// a handler maps it by itself.
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::AlreadyExists | Code::UniqueViolation => StatusCode::CONFLICT,
        Code::DocumentChanged => StatusCode::PRECONDITION_FAILED,
        Code::NoSuchKey => StatusCode::NOT_FOUND,
        Code::KeyTooLong => StatusCode::BAD_REQUEST,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        // The server is ending, or a view is not built yet.
        Code::Closed | Code::Rebuilding => StatusCode::SERVICE_UNAVAILABLE,
        _ => match code.kind() {
            ErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
            // Running it again later may succeed.
            ErrorKind::Conflict
            | ErrorKind::Expired
            | ErrorKind::Locked
            | ErrorKind::Poisoned
            | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            // Not 503: a client that repeats an unknown outcome may do it twice.
            ErrorKind::InDoubt
            | ErrorKind::Invalid
            | ErrorKind::Corrupt
            | ErrorKind::NotFound
            | ErrorKind::Io => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> ApiError {
        let status = status_of(error.code());
        let message = if status.is_server_error() {
            eprintln!("tickets: {error}");
            error.code().summary().to_owned()
        } else {
            error.message().to_owned()
        };
        ApiError { status, message, code: Some(error.code()) }
    }
}

impl<C: Collection> From<ReplaceError<C>> for ApiError {
    fn from(error: ReplaceError<C>) -> ApiError {
        match error {
            ReplaceError::Changed(Some(_)) => ApiError::stale(),
            ReplaceError::Changed(None) => ApiError::not_found("the document was deleted meanwhile"),
            ReplaceError::Failed(error) => error.into(),
        }
    }
}

macro_rules! from_rejections {
    ($($rejection:ty),*) => {$(
        /// With axum's status, such as 413 for a long body, and its sentence.
        impl From<$rejection> for ApiError {
            fn from(rejection: $rejection) -> ApiError {
                ApiError::new(rejection.status(), rejection.body_text())
            }
        }
    )*};
}

from_rejections!(JsonRejection, PathRejection, QueryRejection);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.code.map(|code| code.to_string());
        let body = Json(json!({ "error": self.message, "code": code }));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
