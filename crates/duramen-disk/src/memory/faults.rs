//! Injected faults: which call fails, how, and how often. Also the counts with which a test can name every
//! call.
//!
//! Owns the plan and its counters. It never touches contents: the memory disk reads from it what should
//! happen to a call. Tests of D6 and D7 rest on it.

use std::fmt;
use std::io;
use std::path::Path;

/// The calls that can be counted and made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CallKind {
    /// Opening an existing file.
    Open,
    /// Creating a file.
    Create,
    /// Creating a directory.
    CreateDir,
    /// Syncing a directory.
    SyncDir,
    /// Listing a directory.
    List,
    /// Removing a file.
    Remove,
    /// Renaming a file.
    Rename,
    /// Reading the kind of a path.
    Kind,
    /// Taking a lock.
    Lock,
    /// Reading bytes.
    Read,
    /// Writing bytes, also as the first half of a durable write.
    Write,
    /// Syncing a file, also as the second half of a durable write.
    Sync,
    /// Reading the length.
    Len,
    /// Setting the length.
    SetLen,
    /// Reserving space.
    Reserve,
    /// Punching a hole.
    Punch,
    /// Writing out ahead of a sync.
    WriteOut,
}

impl CallKind {
    /// Every kind, in declaration order.
    pub const ALL: [CallKind; 17] = [
        CallKind::Open,
        CallKind::Create,
        CallKind::CreateDir,
        CallKind::SyncDir,
        CallKind::List,
        CallKind::Remove,
        CallKind::Rename,
        CallKind::Kind,
        CallKind::Lock,
        CallKind::Read,
        CallKind::Write,
        CallKind::Sync,
        CallKind::Len,
        CallKind::SetLen,
        CallKind::Reserve,
        CallKind::Punch,
        CallKind::WriteOut,
    ];
}

/// What happens to the call that a [`Fault`] hits.
///
/// An effect that does not fit the call (a lost write on a read) leaves the call alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Fails before anything happens. [`Effect::EIO`] and [`Effect::ENOSPC`] are the usual ones.
    ///
    /// On a sync, what was pending stays pending: it may or may not survive a crash.
    Error(io::ErrorKind),
    /// A write takes half of its bytes (rounded down) and fails with `may_be_partial`.
    ShortWrite(io::ErrorKind),
    /// A sync fails, and what was written never becomes durable though reads still show it. Lengths stay
    /// pending.
    SyncErrorDataGone(io::ErrorKind),
    /// A sync fails. A random fate is drawn for each pending change: on the medium, whole or in part; lost;
    /// or still pending. Lengths are on the medium or still pending.
    SyncErrorGoneInPart(io::ErrorKind, u64),
    /// A sync reports `Ok` and does nothing.
    LyingSync,
    /// A write is acknowledged with this bit of it flipped (counted from its first byte).
    FlippedWrite(u64),
    /// A write is acknowledged and lost: reads go on showing the old bytes.
    LostWrite,
    /// A write is acknowledged and lands at this offset instead.
    MisdirectedWrite(u64),
    /// A read succeeds with this bit of its buffer flipped (counted from the buffer's first byte).
    FlippedRead(u64),
}

impl Effect {
    /// An input/output error.
    pub const EIO: Effect = Effect::Error(io::ErrorKind::Other);
    /// No space left on the device.
    pub const ENOSPC: Effect = Effect::Error(io::ErrorKind::StorageFull);

    /// The error that the call returns; `None` if it reports none.
    #[must_use]
    pub fn error_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Effect::Error(kind)
            | Effect::ShortWrite(kind)
            | Effect::SyncErrorDataGone(kind)
            | Effect::SyncErrorGoneInPart(kind, _) => Some(*kind),
            Effect::LyingSync
            | Effect::FlippedWrite(_)
            | Effect::LostWrite
            | Effect::MisdirectedWrite(_)
            | Effect::FlippedRead(_) => None,
        }
    }
}

/// One fault: the n-th matching call from now on, once or for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    kind: Option<CallKind>,
    nth: u64,
    path_part: Option<String>,
    effect: Effect,
    for_good: bool,
    seen: u64,
}

impl Fault {
    /// Hits the call of this kind with index `nth` (0 is the next one), once.
    #[must_use]
    pub fn new(kind: CallKind, nth: u64, effect: Effect) -> Fault {
        Fault { kind: Some(kind), nth, path_part: None, effect, for_good: false, seen: 0 }
    }

    /// Hits the call of any kind with index `nth`, once.
    #[must_use]
    pub fn any(nth: u64, effect: Effect) -> Fault {
        Fault { kind: None, nth, path_part: None, effect, for_good: false, seen: 0 }
    }

    /// Counts and hits only calls on paths that contain `path_part`.
    #[must_use]
    pub fn on(mut self, path_part: &str) -> Fault {
        self.path_part = Some(path_part.to_owned());
        self
    }

    /// Hits every matching call from `nth` on.
    #[must_use]
    pub fn for_good(mut self) -> Fault {
        self.for_good = true;
        self
    }

    /// What happens to the call.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    fn hits(&mut self, kind: CallKind, path: &Path) -> bool {
        let path_fits =
            self.path_part.as_ref().is_none_or(|part| path.to_string_lossy().contains(part.as_str()));
        if !path_fits || self.kind.is_some_and(|wanted| wanted != kind) {
            return false;
        }
        let index = self.seen;
        self.seen += 1;
        index == self.nth || self.for_good && index > self.nth
    }
}

/// The faults in force; an empty plan is a healthy disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// A healthy disk.
    #[must_use]
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// Adds a fault. Where several hit one call, the first added decides.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> FaultPlan {
        self.faults.push(fault);
        self
    }
}

impl From<Fault> for FaultPlan {
    fn from(fault: Fault) -> FaultPlan {
        FaultPlan::none().with(fault)
    }
}

/// How many calls of each kind a disk has served, failed ones included.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts([u64; CallKind::ALL.len()]);

impl CallCounts {
    /// Calls of one kind.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> u64 {
        self.0[kind as usize]
    }

    fn count(&mut self, kind: CallKind) {
        self.0[kind as usize] += 1;
    }

    /// Calls of all kinds: the number of places at which `Fault::any` can hit.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Debug for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(CallKind::ALL.iter().map(|kind| (kind, self.of(*kind)))).finish()
    }
}

/// The plan and the counts of one disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) plan: FaultPlan,
    pub(super) counts: CallCounts,
    /// Calls that the plan has hit.
    pub(super) hits: CallCounts,
}

impl Faults {
    /// Counts a call and returns what should happen to it.
    pub(super) fn call(&mut self, kind: CallKind, path: &Path) -> Option<Effect> {
        self.counts.count(kind);
        let mut effect = None;
        for fault in &mut self.plan.faults {
            if fault.hits(kind, path) && effect.is_none() {
                effect = Some(fault.effect);
            }
        }
        if effect.is_some() {
            self.hits.count(kind);
        }
        effect
    }
}

/// The error that a fault reports.
pub(super) fn injected(kind: io::ErrorKind, call: CallKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("injected fault: {call:?} of {}", path.display()))
}
