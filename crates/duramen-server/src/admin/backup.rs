//! Backups: the parts of one state, in messages of at most about 512 KiB.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use duramen::Db;
use duramen::error::{Code, Error, Result};
use duramen::wire::{BackupSource, CopyPart, ReducerSpec};
use duramen_proto::v1::{self, backup_reply::Kind};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use super::AdminService;
use crate::audit::Begun;
use crate::auth::{Caller, Right};
use crate::call::Call;
use crate::limit::WAIT;
use crate::limit::budget::{Charge, overloaded};
use crate::on_demand::{OnDemand, Source};

/// What a message has of a value at most.
const PIECE_BYTES: usize = 256 << 10;

/// A larger value is refused: it is in memory as a whole until the last piece of it was taken.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// What an entry takes beside its bytes.
const PER_ENTRY: usize = size_of::<v1::BackupEntry>() + 64;

/// How long a backup waits for memory, and between two looks.
const ROOM_WAIT: Duration = Duration::from_secs(20);
const ROOM_LOOK: Duration = Duration::from_millis(20);

pub(super) type Replies = Pin<Box<dyn Stream<Item = std::result::Result<v1::BackupReply, Status>> + Send>>;

/// Begins a backup.
pub(super) async fn run(service: &AdminService, call: Call) -> Result<Replies> {
    call.caller.needs(Right::Backup, None)?;
    call.take_place().await?;
    let place = timeout(WAIT, Arc::clone(&service.backup_places).acquire_owned()).await;
    let place = place.ok().and_then(std::result::Result::ok).ok_or_else(|| overloaded("backups"))?;
    let (identity, audit) = (Arc::clone(&service.identity), Arc::clone(&service.audit));
    let begun = call.clone();
    let begin = move |db: &Db| {
        begun.check_deadline()?;
        let source = BackupSource::of(db)?;
        let at = Some(identity.of_seq(source.seq(), db));
        let first = Kind::Begun(v1::BackupBegun { at, entries: source.entries() });
        // A full disk keeps no backup from being made.
        let told = audit.begin(&begun.actor(), "backup", "").ok();
        Ok(Backup { source: Some(source), waiting: VecDeque::from([first]), held: None, told, _place: place })
    };
    let backup = service.backups.run(begin).await?;
    Ok(Box::pin(OnDemand::new(service.backups.clone(), backup, service.unread, call)))
}

/// A backup between two messages.
struct Backup {
    /// `None` behind its last part.
    source: Option<BackupSource>,
    /// What is left of the part before.
    waiting: VecDeque<Kind>,
    /// For all of that part: its messages share its bytes.
    held: Option<Charge>,
    /// Its end is told when it ends, or that it was given up.
    told: Option<Begun>,
    _place: OwnedSemaphorePermit,
}

impl Backup {
    fn read(&mut self, call: &Call) -> Result<()> {
        self.held = None;
        let Some(source) = &mut self.source else { return Ok(()) };
        let Some(part) = source.next()? else {
            let digest = source.digest().to_be_bytes().to_vec().into();
            self.waiting.push_back(Kind::Ended(v1::BackupEnded { digest }));
            self.source = None;
            if let Some(told) = self.told.take() {
                told.end(None);
            }
            return Ok(());
        };
        if let CopyPart::Entries(entries) = &part {
            self.held = Some(room(call, bytes(entries)?)?);
        }
        self.waiting.extend(messages(part));
        Ok(())
    }
}

/// What entries take.
fn bytes(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<usize> {
    if let Some((_, value)) = entries.last()
        && value.len() > VALUE_BYTES_MAX
    {
        let what = format!("a value has {} bytes, and a server sends at most {VALUE_BYTES_MAX}", value.len());
        return Err(Error::new(Code::TooLarge, what)
            .with_hint("make the backup in the program that serves the database: `Db::backup`"));
    }
    Ok(entries.iter().map(|(key, value)| key.len() + value.len() + PER_ENTRY).sum())
}

/// Waits for memory, on a thread that only backups have. No connection is closed for it.
fn room(call: &Call, bytes: usize) -> Result<Charge> {
    let until = Instant::now() + ROOM_WAIT;
    loop {
        match call.charge_work(bytes) {
            Err(_) if Instant::now() < until && call.check_deadline().is_ok() => thread::sleep(ROOM_LOOK),
            charged => return charged,
        }
    }
}

impl Source for Backup {
    type Message = v1::BackupReply;

    fn message(&mut self, _db: &Db, call: &Call) -> Result<Option<v1::BackupReply>> {
        if self.waiting.is_empty() {
            self.read(call)?;
        }
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
