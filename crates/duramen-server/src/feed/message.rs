//! Changes and consumers as messages.

use duramen::error::Result;
use duramen::{AnyChange, AnyChanged, ConsumerState, Origin};
use duramen_proto::{document, key, v1};

use crate::auth::{Caller, Named, Right};
use crate::data::{Identity, check_length};

/// Which changes a watch wants, and how.
pub(super) struct Wanted {
    collections: Vec<String>,
    form: v1::DocumentForm,
    /// Changes that it may not read are left out.
    caller: Caller,
}

impl Wanted {
    pub(super) fn new(request: &v1::WatchRequest, caller: Caller) -> Wanted {
        Wanted { collections: request.collections.clone(), form: request.form(), caller }
    }

    /// A change as a message; `None` if it is not wanted.
    pub(super) fn message(&self, change: AnyChange) -> Result<Option<v1::Change>> {
        let (named, name) = match &change.origin {
            Origin::Collection(name) => (Named::Collection, name),
            Origin::KeyValues(name) => (Named::Kv, name),
            Origin::Bytes(name) => (Named::Bytes, name),
        };
        if !self.caller.has(Right::Reader, Some((named, name)))? {
            return Ok(None);
        }
        let mut message =
            v1::Change { seq: change.seq.0, time: Some(key::of_time(change.time)), ..v1::Change::default() };
        let is_of_documents = matches!(change.origin, Origin::Collection(_));
        match change.origin {
            Origin::Collection(name) => message.collection = name,
            Origin::KeyValues(name) => message.namespace = name,
            Origin::Bytes(name) => message.tree = name,
        }
        if !self.collections.is_empty() && !self.collections.contains(&message.collection) {
            return Ok(None);
        }
        let kind = match change.what {
            AnyChanged::Created => v1::ChangeKind::Created,
            AnyChanged::Dropped => v1::ChangeKind::Dropped,
            AnyChanged::Deleted { key } => {
                message.key = key.into();
                v1::ChangeKind::Deleted
            }
            AnyChanged::Put { key, value } => {
                message.key = key.into();
                if is_of_documents {
                    message.document = Some(document::of_stored(&value, self.form)?);
                } else {
                    message.stored = value.into();
                }
                v1::ChangeKind::Put
            }
        };
        message.kind = kind.into();
        check_length(prost::Message::encoded_len(&message))?;
        Ok(Some(message))
    }
}

/// A consumer as a message.
pub(super) fn consumer(state: &ConsumerState, identity: &Identity) -> v1::Consumer {
    v1::Consumer {
        name: state.name.clone(),
        position: Some(identity.durable(state.position)),
        lag_commits: state.lag_commits,
        refuses_writers: state.refuses_writers,
        has_gap: state.has_gap,
    }
}
