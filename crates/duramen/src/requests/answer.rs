//! The stored form of an answer.
//!
//! Owns the format; docs/format.md, section "Requests".

use super::RequestId;
use crate::store::error::{Code, Error, Result};

const ANSWER: u8 = 1;
const NEVER: u8 = 2;

const DIGEST_BYTES: usize = 32;

/// What is stored of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    /// It was committed with this answer. The digest is that of its body.
    Answer { digest: [u8; DIGEST_BYTES], answer: Vec<u8> },
    /// It was not committed, and never will be.
    Never,
}

impl Row {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Row::Answer { digest, answer } => [&[ANSWER][..], digest, answer].concat(),
            Row::Never => vec![NEVER],
        }
    }

    pub(super) fn decode(stored: &[u8]) -> Result<Row> {
        match stored {
            [ANSWER, rest @ ..] if rest.len() >= DIGEST_BYTES => {
                let (digest, answer) = rest.split_at(DIGEST_BYTES);
                let digest = digest.try_into().expect("split at its length");
                Ok(Row::Answer { digest, answer: answer.to_vec() })
            }
            [NEVER] => Ok(Row::Never),
            [ANSWER | NEVER, ..] | [] => {
                Err(Error::new(Code::CorruptData, "the stored answer of a request cannot be read"))
            }
            [kind, ..] => {
                let message = format!("a later release stored the answer of a request, as kind {kind}");
                Err(Error::new(Code::Unsupported, message)
                    .with_hint("open the database with the release that wrote it"))
            }
        }
    }
}

/// The key of a request, in the tree of its minute.
pub(super) fn key(id: RequestId, user: &str) -> Vec<u8> {
    [&id.bytes(), user.as_bytes()].concat()
}

/// What is wrong with a stored answer, if anything.
pub(crate) fn problem_of(minute: u64, key: &[u8], stored: &[u8]) -> Option<String> {
    let Some((id, user)) = key.split_first_chunk() else {
        return Some("its key is shorter than an id".to_owned());
    };
    let id = match RequestId::from_bytes(*id) {
        Ok(id) => id,
        Err(error) => return Some(error.message().to_owned()),
    };
    if std::str::from_utf8(user).is_err() {
        return Some(format!("{id}: the name of its user is no text"));
    }
    if id.minute() != minute {
        return Some(format!("{id}: it lies in the tree of another minute"));
    }
    Row::decode(stored).err().map(|error| format!("{id}: {}", error.message()))
}
