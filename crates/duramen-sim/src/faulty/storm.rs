//! The faults of a life: drawn from its seed, armed before one of its events, and over after a few.
//!
//! Owns the kinds of faults and how often each is drawn. The memory disk implements them.

use std::io;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault, FaultPlan};

use crate::search::random::Random;

/// The file within which writes are misdirected, and whose bytes flip.
pub const DATA: &str = "/db/data";

/// Calls before the one that fails, at most. An event of a life makes some dozens.
const CALLS_BEFORE_MAX: usize = 24;

/// Room on a disk that is nearly full, in pages.
const ROOM_PAGES_MAX: usize = 8;

macro_rules! kinds {
    ($($name:ident = $text:literal,)*) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has its words in `name`")]
        pub enum FaultKind { $($name,)* }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [FaultKind] = &[$(FaultKind::$name,)*];

            /// In words.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    AnyOnce = "any call fails once",
    AllFromHere = "all calls fail from one on",
    Write = "a write fails",
    WriteFull = "a write finds the disk full",
    WriteShort = "a write takes half",
    SyncKept = "a sync fails, data kept",
    SyncGone = "a sync fails, data gone",
    SyncInPart = "a sync fails, data gone in part",
    SyncFull = "a sync is the first to find the disk full",
    Names = "a sync of a directory fails",
    Files = "making, naming or sizing a file fails",
    Read = "a read fails",
    FullDisk = "the disk is full",
    FlippedWrite = "a write to the data file flips a bit",
    LostWrite = "a write to the data file is lost",
    MisdirectedWrite = "a write to the data file lands elsewhere",
    LyingSync = "a sync of the data file lies",
    FlippedRead = "a read of the data file flips a bit",
}

impl FaultKind {
    /// Whether an answer of the disk is wrong without an error: the medium lies, or a read does.
    #[must_use]
    pub fn corrupts(self) -> bool {
        self.lies() || self == FaultKind::FlippedRead
    }

    /// Whether the medium itself holds something else than it acknowledged.
    #[must_use]
    pub fn lies(self) -> bool {
        matches!(
            self,
            FaultKind::FlippedWrite
                | FaultKind::LostWrite
                | FaultKind::MisdirectedWrite
                | FaultKind::LyingSync
        )
    }
}

/// A fault in force.
#[derive(Debug)]
pub struct Armed {
    /// What it is.
    pub kind: FaultKind,
    /// The error returned by the calls that it hits.
    pub error: Option<io::ErrorKind>,
    disk: MemDisk,
}

impl Armed {
    /// Draws a fault other than a lie, and arms it.
    pub fn draw(disk: &MemDisk, random: &mut Random) -> Armed {
        let honest: Vec<FaultKind> = FaultKind::ALL.iter().copied().filter(|kind| !kind.corrupts()).collect();
        Armed::arm(*random.pick(&honest), disk, random)
    }

    /// Draws a lie of the medium, or a read that flips a bit, and arms it.
    pub fn draw_lie(disk: &MemDisk, random: &mut Random) -> Armed {
        let lies = [
            FaultKind::FlippedWrite,
            FaultKind::LostWrite,
            FaultKind::MisdirectedWrite,
            FaultKind::LyingSync,
            FaultKind::FlippedRead,
        ];
        Armed::arm(*random.pick(&lies), disk, random)
    }

    /// Draws a fault for an opening: an honest one, or sometimes a read that flips a bit.
    pub fn draw_for_opening(disk: &MemDisk, random: &mut Random) -> Armed {
        if random.chance(1, 8) {
            return Armed::arm(FaultKind::FlippedRead, disk, random);
        }
        Armed::draw(disk, random)
    }

    /// Makes the write of the log after the next one find the disk full.
    ///
    /// A group that formed while the one before it was synced is then dropped.
    pub fn second_group(disk: &MemDisk) -> Armed {
        disk.set_faults(Fault::new(CallKind::Write, 1, Effect::ENOSPC).on(".wal"));
        Armed { kind: FaultKind::WriteFull, error: Effect::ENOSPC.error_kind(), disk: disk.clone() }
    }

    fn arm(kind: FaultKind, disk: &MemDisk, random: &mut Random) -> Armed {
        let error = if kind == FaultKind::FullDisk {
            let room = random.below(ROOM_PAGES_MAX) as u64 * 4096;
            disk.set_faults(FaultPlan::none());
            disk.set_capacity(Some(disk.used_bytes() + room));
            Some(io::ErrorKind::StorageFull)
        } else {
            let fault = plan(kind, disk, random);
            let error = fault.effect().error_kind();
            disk.set_faults(fault);
            error
        };
        Armed { kind, error, disk: disk.clone() }
    }

    /// Whether a call has met it.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.disk.room_refused_count() + self.disk.fault_hit_count() > 0
    }

    /// Whether a sync has failed: pages in the cache may count as clean that are not on the medium.
    #[must_use]
    pub fn has_failed_syncs(&self) -> bool {
        let hits = self.disk.fault_hits();
        hits.of(CallKind::Sync) + hits.of(CallKind::SyncDir) > 0
    }

    /// Whether a read has failed.
    #[must_use]
    pub fn has_failed_reads(&self) -> bool {
        self.disk.fault_hits().of(CallKind::Read) > 0
    }

    /// Ends the fault.
    pub fn end(self) {
        self.disk.set_faults(FaultPlan::none());
        self.disk.set_capacity(None);
    }
}

fn plan(kind: FaultKind, disk: &MemDisk, random: &mut Random) -> Fault {
    let any_error = [io::ErrorKind::Other, io::ErrorKind::StorageFull];
    let nth = random.below(CALLS_BEFORE_MAX) as u64;
    // There are fewer writes and syncs than calls.
    let few = random.below(4) as u64;
    let bit = random.bits() % (4096 * 8);
    let in_some_file = |fault: Fault, random: &mut Random| match random.below(4) {
        0 => fault.on(".wal"),
        1 => fault.on("/data"),
        _ => fault,
    };
    let sync =
        |effect: Effect, random: &mut Random| in_some_file(Fault::new(CallKind::Sync, few, effect), random);
    let fault = match kind {
        FaultKind::AnyOnce => return Fault::any(nth, Effect::EIO),
        FaultKind::AllFromHere => return Fault::any(nth, Effect::EIO).for_good(),
        FaultKind::Write => in_some_file(Fault::new(CallKind::Write, few, Effect::EIO), random),
        FaultKind::WriteFull | FaultKind::FullDisk => {
            in_some_file(Fault::new(CallKind::Write, few, Effect::ENOSPC), random)
        }
        FaultKind::WriteShort => {
            let effect = Effect::ShortWrite(*random.pick(&any_error));
            in_some_file(Fault::new(CallKind::Write, few, effect), random)
        }
        FaultKind::SyncKept => sync(Effect::EIO, random),
        FaultKind::SyncGone => sync(Effect::SyncErrorDataGone(io::ErrorKind::Other), random),
        FaultKind::SyncInPart => {
            sync(Effect::SyncErrorGoneInPart(io::ErrorKind::Other, random.bits()), random)
        }
        FaultKind::SyncFull => {
            let full = io::ErrorKind::StorageFull;
            let effects = [
                Effect::Error(full),
                Effect::SyncErrorDataGone(full),
                Effect::SyncErrorGoneInPart(full, random.bits()),
            ];
            sync(*random.pick(&effects), random)
        }
        FaultKind::Names => {
            let in_part = Effect::SyncErrorGoneInPart(io::ErrorKind::Other, random.bits());
            Fault::new(CallKind::SyncDir, few, *random.pick(&[Effect::EIO, Effect::ENOSPC, in_part]))
        }
        FaultKind::Files => of_files(few, random),
        FaultKind::Read => Fault::new(CallKind::Read, nth, Effect::EIO),
        FaultKind::FlippedWrite => return lie(CallKind::Write, few, Effect::FlippedWrite(bit % (512 * 8))),
        FaultKind::LostWrite => return lie(CallKind::Write, few, Effect::LostWrite),
        FaultKind::MisdirectedWrite => {
            let bytes = disk.read_file(DATA).map_or(0, |bytes| bytes.len());
            let block = random.below(bytes / 512 + 1) as u64;
            return lie(CallKind::Write, few, Effect::MisdirectedWrite(block * 512));
        }
        FaultKind::LyingSync => return lie(CallKind::Sync, few, Effect::LyingSync),
        FaultKind::FlippedRead => return lie(CallKind::Read, nth, Effect::FlippedRead(bit)),
    };
    if random.chance(1, 3) { fault.for_good() } else { fault }
}

/// Once, and in the data file only: what the end of the log holds is known from the log itself (D5).
fn lie(call: CallKind, nth: u64, effect: Effect) -> Fault {
    Fault::new(call, nth, effect).on(DATA)
}

/// A call that creates, names, sizes or inspects a file.
fn of_files(nth: u64, random: &mut Random) -> Fault {
    let calls = [
        CallKind::Create,
        CallKind::Open,
        CallKind::SetLen,
        CallKind::Reserve,
        CallKind::Rename,
        CallKind::Remove,
        CallKind::Punch,
        CallKind::WriteOut,
        CallKind::Len,
        CallKind::List,
        CallKind::Kind,
    ];
    let call = *random.pick(&calls);
    let takes_room = matches!(call, CallKind::Create | CallKind::SetLen | CallKind::Reserve);
    let is_full = takes_room && random.chance(1, 2);
    Fault::new(call, nth, if is_full { Effect::ENOSPC } else { Effect::EIO })
}
