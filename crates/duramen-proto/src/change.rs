//! Changes of the feed, from messages.

use duramen::error::{Code, Error, Result};
use duramen::{AnyChange, AnyChanged, CommitSeq, Origin};

use crate::{key, v1};

/// The change of a message, whose document is MessagePack.
///
/// # Errors
/// `Unreadable` (E0213) if the server could not read it; `WrongVersion` (E1109) for what this release does
/// not know.
pub fn of(message: &v1::Change) -> Result<AnyChange> {
    if !message.unreadable.is_empty() {
        let what = format!("a change of commit {} cannot be read: {}", message.seq, message.unreadable);
        return Err(Error::new(Code::Unreadable, what).with_hint("go on behind that commit"));
    }
    let unknown = || {
        Error::new(Code::WrongVersion, "the server's answer has a change that this release does not know")
            .with_hint("use a server and a client of the same release")
    };
    let name = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let origin = name(&message.collection)
        .map(Origin::Collection)
        .or_else(|| name(&message.namespace).map(Origin::KeyValues))
        .or_else(|| name(&message.tree).map(Origin::Bytes))
        .ok_or_else(unknown)?;
    let key = message.key.to_vec();
    let what = match v1::ChangeKind::try_from(message.kind).map_err(|_| unknown())? {
        v1::ChangeKind::Created => AnyChanged::Created,
        v1::ChangeKind::Dropped => AnyChanged::Dropped,
        v1::ChangeKind::Deleted => AnyChanged::Deleted { key },
        v1::ChangeKind::Put => {
            match (&origin, message.document.as_ref().and_then(|found| found.form.as_ref())) {
                (Origin::Collection(_), Some(v1::document::Form::Msgpack(bytes))) => {
                    AnyChanged::Put { key, value: bytes.to_vec() }
                }
                (Origin::Collection(_), _) => return Err(unknown()),
                _ => AnyChanged::Put { key, value: message.stored.to_vec() },
            }
        }
    };
    let time = key::to_time(message.time.as_ref().ok_or_else(unknown)?)?;
    Ok(AnyChange { seq: CommitSeq(message.seq), time, origin, what })
}
