//! Backups: the parts of one state, in messages of at most 1 MiB.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use duramen::Db;
use duramen::error::{Code, Error, Result};
use duramen::wire::{BackupSource, CopyPart, ReducerSpec};
use duramen_proto::v1::{self, backup_reply::Kind};
use tokio_stream::Stream;
use tonic::Status;

use super::AdminService;
use crate::audit::Event;
use crate::auth::{Caller, Right};
use crate::call::Call;
use crate::on_demand::{OnDemand, Source};

/// What a message has of a value at most.
const PIECE_BYTES: usize = 1 << 20;

pub(super) type Replies = Pin<Box<dyn Stream<Item = std::result::Result<v1::BackupReply, Status>> + Send>>;

/// Begins a backup.
pub(super) async fn run(service: &AdminService, call: Call) -> Result<Replies> {
    call.caller.needs(Right::Backup, None)?;
    call.take_place().await?;
    let actor = call.actor();
    let event = Event { what: "backup".to_owned(), user: actor.user, from: actor.from, ..Event::default() };
    service.audit.tell(event);
    let identity = Arc::clone(&service.identity);
    let begun = call.clone();
    let begin = move |db: &Db| {
        begun.check_deadline()?;
        let source = BackupSource::of(db)?;
        let at = Some(identity.of_seq(source.seq(), db));
        let first = Kind::Begun(v1::BackupBegun { at, entries: source.entries() });
        Ok(Backup { source: Some(source), waiting: VecDeque::from([first]) })
    };
    let backup = service.scans.run(begin).await?;
    Ok(Box::pin(OnDemand::new(service.scans.clone(), backup, service.unread, call)))
}

/// A backup between two messages.
struct Backup {
    /// `None` behind its last part.
    source: Option<BackupSource>,
    /// What is left of the part before.
    waiting: VecDeque<Kind>,
}

impl Source for Backup {
    type Message = v1::BackupReply;

    fn message(&mut self, _db: &Db, call: &Call) -> Result<Option<v1::BackupReply>> {
        if self.waiting.is_empty()
            && let Some(source) = &mut self.source
        {
            match source.next()? {
                Some(part) => self.waiting.extend(messages(part)),
                None => {
                    let digest = source.digest().to_be_bytes().to_vec().into();
                    self.waiting.push_back(Kind::Ended(v1::BackupEnded { digest }));
                    self.source = None;
                }
            }
        }
        call.charge_run(self.waiting.iter().map(bytes).sum())?;
        Ok(self.waiting.pop_front().map(|kind| v1::BackupReply { kind: Some(kind) }))
    }

    fn check(&self, caller: &Caller) -> Result<()> {
        caller.needs(Right::Backup, None)
    }

    fn ended() -> Error {
        Error::new(
            Code::SnapshotExpired,
            "the backup took longer than its deadline, or no message of it was taken for too long",
        )
        .with_hint("delete what was made of the copy, and begin it again, on a faster disk or network")
    }
}

fn bytes(kind: &Kind) -> usize {
    match kind {
        Kind::Entries(of) => of.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum(),
        Kind::Piece(piece) => piece.bytes.len(),
        _ => 0,
    }
}

/// A part, in messages: only one with a large value at its end takes several.
fn messages(part: CopyPart) -> Vec<Kind> {
    let entries = match part {
        CopyPart::Tree { name, reducer, features } => {
            let reducer = reducer.map(|ReducerSpec { name, version, params }| v1::BackupReducer {
                name,
                version,
                parameters: params.into(),
            });
            return vec![Kind::Tree(v1::BackupTree { name, reducer, features: features.bits() })];
        }
        CopyPart::Entries(entries) => entries,
    };
    let entry = |(key, value): (Vec<u8>, Vec<u8>)| v1::BackupEntry { key: key.into(), value: value.into() };
    let mut entries: Vec<v1::BackupEntry> = entries.into_iter().map(entry).collect();
    let mut rest = match entries.last_mut() {
        Some(last) if last.value.len() > PIECE_BYTES => last.value.split_off(PIECE_BYTES),
        _ => Bytes::new(),
    };
    let mut messages = vec![Kind::Entries(v1::BackupEntries { entries, goes_on: !rest.is_empty() })];
    while !rest.is_empty() {
        let bytes = rest.split_to(rest.len().min(PIECE_BYTES));
        messages.push(Kind::Piece(v1::BackupPiece { bytes, goes_on: !rest.is_empty() }));
    }
    messages
}
