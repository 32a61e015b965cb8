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
    /// From whose position it began.
    consumer: Option<String>,
}

impl Wanted {
    pub(super) fn new(request: &v1::WatchRequest, caller: Caller) -> Wanted {
        let consumer = Some(request.consumer.clone()).filter(|name| !name.is_empty());
        Wanted { collections: request.collections.clone(), form: request.form(), caller, consumer }
    }

    /// Whether the caller may still watch.
    ///
    /// # Errors
    /// `Forbidden` (E1102); `Unauthenticated` (E1101).
    pub(super) fn check(&self) -> Result<()> {
        match &self.consumer {
            Some(name) => self.caller.needs(Right::Consumer, Some((Named::Consumer, name))),
            None => self.caller.check(),
        }
    }

    /// Whether a change that cannot be read may be told: it may be of anything.
    ///
    /// # Errors
    /// `Unauthenticated` (E1101).
    pub(super) fn wants_unreadable(&self) -> Result<bool> {
        self.caller.has(Right::Reader, None)
    }

    /// A change as a message; `None` if it is not wanted.
    pub(super) fn message(&self, change: AnyChange) -> Result<Option<v1::Change>> {
        let (named, name) = match &change.origin {
            Origin::Collection(name) => (Named::Collection, name),
            Origin::KeyValues(name) => (Named::Kv, name),
            Origin::Bytes(name) => (Named::Bytes, name),
        };
        if !self.caller.has(Right::Reader, Some((named, name)))? {
            // What was asked for by its name is not left out in silence.
            if named == Named::Collection && self.collections.contains(name) {
                self.caller.needs(Right::Reader, Some((named, name)))?;
            }
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
