//! The sync method chosen at creation, as stored in the superblock. A pure codec.

use std::fmt;

use duramen_disk::SyncMethod;

/// Bytes in a superblock.
pub(super) const SYNC_CHOICE_BYTES: usize = 13;

/// Where the figures lie, in microseconds, after the method.
const FIGURES_AT: [usize; 3] = [1, 5, 9];

const _: () = assert!(FIGURES_AT[0] == 1 && FIGURES_AT[1] == FIGURES_AT[0] + 4);
const _: () = assert!(FIGURES_AT[2] == FIGURES_AT[1] + 4, "the figures follow each other");
const _: () = assert!(FIGURES_AT[2] + 4 == SYNC_CHOICE_BYTES, "the last figure ends the choice");

/// A method, and the figures behind the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncChoice {
    /// The method.
    pub method: SyncMethod,
    /// The measured figures.
    pub measured: Measured,
}

/// Microseconds of the median durable write of 4 KiB by each method; 0 if it was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// By `fdatasync`.
    pub fdatasync_us: u32,
    /// By a write with `RWF_DSYNC`.
    pub dsync_us: u32,
    /// By a direct write with `RWF_DSYNC`.
    pub direct_us: u32,
}

impl Measured {
    /// The figure of a method.
    pub fn of_mut(&mut self, method: SyncMethod) -> &mut u32 {
        match method {
            SyncMethod::Fdatasync => &mut self.fdatasync_us,
            SyncMethod::Dsync => &mut self.dsync_us,
            SyncMethod::DirectDsync => &mut self.direct_us,
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("fdatasync", self.fdatasync_us),
            ("RWF_DSYNC", self.dsync_us),
            ("O_DIRECT with RWF_DSYNC", self.direct_us),
        ];
        let told = all.iter().filter(|(_, us)| *us > 0);
        let told: Vec<String> = told.map(|(name, us)| format!("{name} {us} µs")).collect();
        f.write_str(&told.join(", "))
    }
}

pub(super) fn encode(choice: Option<&SyncChoice>) -> [u8; SYNC_CHOICE_BYTES] {
    let mut out = [0; SYNC_CHOICE_BYTES];
    if let Some(SyncChoice { method, measured }) = choice {
        out[0] = match method {
            SyncMethod::Fdatasync => 1,
            SyncMethod::Dsync => 2,
            SyncMethod::DirectDsync => 3,
        };
        let figures = [measured.fdatasync_us, measured.dsync_us, measured.direct_us];
        for (at, us) in FIGURES_AT.into_iter().zip(figures) {
            out[at..at + 4].copy_from_slice(&us.to_le_bytes());
        }
    }
    out
}

/// An unknown method decodes as none: every method of this build keeps the same promise.
pub(super) fn decode(bytes: &[u8; SYNC_CHOICE_BYTES]) -> Option<SyncChoice> {
    let method = match bytes[0] {
        1 => SyncMethod::Fdatasync,
        2 => SyncMethod::Dsync,
        3 => SyncMethod::DirectDsync,
        _ => return None,
    };
    let us = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let [fdatasync_us, dsync_us, direct_us] = FIGURES_AT.map(us);
    let measured = Measured { fdatasync_us, dsync_us, direct_us };
    Some(SyncChoice { method, measured })
}
