//! Errors, between the library and gRPC.
//!
//! A status carries the library's code as `google.rpc.ErrorInfo` (reason `E0101`, domain `duramen`), the
//! message, and the hint. An error that says "later" also carries `google.rpc.RetryInfo`. A status of the
//! transport has none of them, and says nothing about the call: it may have been done.

use std::collections::HashMap;
use std::time::Duration;

use duramen::error::{Code, Error, ErrorKind};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::v1;

/// Whose codes they are.
const DOMAIN: &str = "duramen";

const HINT: &str = "hint";

/// The number of an operation of a batch, from 1.
const OPERATION: &str = "operation";

/// A message or hint takes this many bytes at most.
const TEXT_BYTES_MAX: usize = 1024;

/// The status of an error.
#[must_use]
pub fn of(error: &Error) -> Status {
    of_after(error, None)
}

/// The status of an error, with the time after which to try again.
#[must_use]
pub fn of_after(error: &Error, retry: Option<Duration>) -> Status {
    let hint = HashMap::from([(HINT.to_owned(), cut(&error.hint()).to_owned())]);
    let mut details = ErrorDetails::with_error_info(error.code().to_string(), DOMAIN, hint);
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    Status::with_error_details(grpc_code(error.code()), cut(error.message()), details)
}

/// The error of a status; `None` if it is not of Duramen but of the transport.
#[must_use]
pub fn error(status: &Status) -> Option<Error> {
    let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
    let code = Code::ALL.iter().find(|code| code.to_string() == info.reason)?;
    let error = Error::new(*code, status.message());
    Some(match info.metadata.get(HINT).filter(|hint| !hint.is_empty()) {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}

/// The status of an error of a batch's operation, with its number from 1.
#[must_use]
pub fn of_operation(status: &Status, number: usize) -> Status {
    let mut details = status.get_error_details();
    if let Some(info) = details.error_info() {
        let mut metadata = info.metadata.clone();
        metadata.insert(OPERATION.to_owned(), number.to_string());
        details.set_error_info(info.reason.clone(), info.domain.clone(), metadata);
    }
    Status::with_error_details(status.code(), status.message(), details)
}

/// The error in a message of a transaction.
#[must_use]
pub fn failed(failed: &v1::Failed) -> Error {
    let code = Code::ALL.iter().find(|code| code.to_string() == failed.code);
    let error = Error::new(*code.unwrap_or(&Code::WrongVersion), &failed.message);
    if failed.hint.is_empty() { error } else { error.with_hint(&failed.hint) }
}

/// After which time to try again, if the status says so.
#[must_use]
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The number of the operation of a batch, from 1, with whose error it ended, if it was one of Duramen's.
#[must_use]
pub fn operation(status: &Status) -> Option<usize> {
    let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
    info.metadata.get(OPERATION)?.parse().ok()
}

fn grpc_code(code: Code) -> tonic::Code {
    use tonic::Code as Grpc;
    match code {
        Code::UniqueViolation | Code::AlreadyExists => return Grpc::AlreadyExists,
        Code::ReadOnly | Code::Unsupported | Code::WrongVersion | Code::RequestTooOld => {
            return Grpc::FailedPrecondition;
        }
        Code::RequestCancelled | Code::Rebuilding => return Grpc::FailedPrecondition,
        Code::Unauthenticated => return Grpc::Unauthenticated,
        Code::Forbidden => return Grpc::PermissionDenied,
        Code::DeadlinePassed => return Grpc::DeadlineExceeded,
        Code::FeedGap => return Grpc::OutOfRange,
        _ => {}
    }
    match code.kind() {
        ErrorKind::Conflict | ErrorKind::Expired => Grpc::Aborted,
        ErrorKind::Invalid => Grpc::InvalidArgument,
        ErrorKind::Full => Grpc::ResourceExhausted,
        ErrorKind::InDoubt => Grpc::Unknown,
        ErrorKind::Corrupt => Grpc::DataLoss,
        ErrorKind::Poisoned | ErrorKind::Unavailable | ErrorKind::Locked => Grpc::Unavailable,
        ErrorKind::NotFound => Grpc::NotFound,
        ErrorKind::Io => Grpc::Internal,
    }
}

/// The beginning of a text that is too long for an answer.
#[must_use]
pub fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    //! A caller decides by the code whether to try again.
    use super::*;

    #[test]
    fn every_code_comes_back_with_message_and_hint() {
        for code in Code::ALL {
            let sent = Error::new(*code, "what happened").with_hint("what to do");
            let status = of(&sent);
            assert_ne!(status.code(), tonic::Code::Ok);
            let got = error(&status).expect("it is of Duramen");
            assert_eq!(
                (got.code(), got.message(), got.hint().as_str()),
                (*code, "what happened", "what to do")
            );
        }
    }

    #[test]
    fn a_status_of_the_transport_is_no_error_of_duramen() {
        assert!(error(&Status::unavailable("connection reset")).is_none());
        let foreign = ErrorDetails::with_error_info("E0101", "elsewhere.example", HashMap::new());
        assert!(error(&Status::with_error_details(tonic::Code::Aborted, "x", foreign)).is_none());
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let status = of(&Error::invalid("ö".repeat(2_000)));
        assert_eq!(status.message().len(), TEXT_BYTES_MAX);
        let status = of(&Error::invalid(format!("a{}", "ö".repeat(2_000))));
        assert_eq!(status.message().len(), TEXT_BYTES_MAX - 1);
    }
}
