//! Which unflushed writes survive a power cut: the choice, by seed and variant, and the content it leaves.
//!
//! Owns tearing: sectors survive whole or not at all, and so do the blocks that a file system expects to be
//! whole. A sector never holds an older write than the newest that survived on it: a drive's cache is
//! coherent.

use std::fmt;

use crate::content::{Content, PAGE_BYTES};
use crate::drive::{Drive, Write};
use crate::random::Random;

/// The unit that a drive writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// The choice that a power cut makes among the unflushed writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// None survives.
    Nothing,
    /// The first writes survive, this many, and perhaps a part of the next.
    Prefix(usize),
    /// All but this one survive.
    AllBut(usize),
    /// Each write survives with a probability in eighths; a survivor is torn with another.
    Subset {
        /// The eighths with which a write survives.
        kept_of_eight: u64,
        /// The eighths with which a survivor is torn.
        torn_of_eight: u64,
    },
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Survival::Nothing => write!(f, "nothing unflushed"),
            Survival::Prefix(count) => write!(f, "the first {count}"),
            Survival::AllBut(index) => write!(f, "all but number {index}"),
            Survival::Subset { kept_of_eight, torn_of_eight } => {
                write!(f, "{kept_of_eight}/8 of the unflushed, {torn_of_eight}/8 of them torn")
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Torn,
    Whole,
}

/// The result of a cut.
#[derive(Debug)]
pub struct Survivors {
    /// The content of the drive when the power is back.
    pub content: Content,
    /// The choice.
    pub survival: Survival,
    /// Writes that survived whole.
    pub kept: usize,
    /// Writes that survived in part.
    pub torn: usize,
    /// Writes that are lost.
    pub dropped: usize,
}

/// Draws a choice. Losing nearly everything or nearly nothing finds bugs that the middle does not.
fn draw(random: &mut Random, unflushed_count: usize) -> Survival {
    match random.below(8) {
        0 => Survival::Nothing,
        1 | 2 => Survival::Prefix(random.index(unflushed_count + 1)),
        3 if unflushed_count > 0 => Survival::AllBut(random.index(unflushed_count)),
        _ => Survival::Subset {
            kept_of_eight: [1, 4, 7][random.index(3)],
            torn_of_eight: [0, 2, 6][random.index(3)],
        },
    }
}

fn fate(survival: Survival, index: usize, random: &mut Random) -> Fate {
    let keep = |kept| if kept { Fate::Whole } else { Fate::Lost };
    match survival {
        Survival::Nothing => Fate::Lost,
        Survival::Prefix(count) if index == count && random.chance(1, 2) => Fate::Torn,
        Survival::Prefix(count) => keep(index < count),
        Survival::AllBut(lost) => keep(index != lost),
        Survival::Subset { kept_of_eight, .. } if !random.chance(kept_of_eight, 8) => Fate::Lost,
        Survival::Subset { torn_of_eight, .. } if random.chance(torn_of_eight, 8) => Fate::Torn,
        Survival::Subset { .. } => Fate::Whole,
    }
}

/// The purpose of the streams for the choices of the drives after the first.
const OTHER_DRIVES: u64 = 0xd21f_0000;

/// The seed for the choice of a drive: each drive has its own, and that of the first is the run's.
#[must_use]
pub fn seed_of_drive(seed: u64, drive_index: usize) -> u64 {
    match drive_index {
        0 => seed,
        _ => Random::for_purpose(seed, OTHER_DRIVES + drive_index as u64).draw(),
    }
}

/// The content of a drive after a cut now.
///
/// `variant` selects one of the possible contents after the same cut. `whole_blocks` are the offsets of
/// blocks of [`PAGE_BYTES`] in which no write is torn.
#[must_use]
pub fn survivors(drive: &Drive, seed: u64, variant: u64, whole_blocks: &[u64]) -> Survivors {
    let unflushed_count = drive.pending_count() + drive.in_flight_count();
    let mut random = Random::for_purpose(seed, 0x5eed_0000 + variant);
    let survival = draw(&mut random, unflushed_count);
    let mut left = Survivors { content: drive.durable().clone(), survival, kept: 0, torn: 0, dropped: 0 };
    for (index, write) in drive.unflushed().enumerate() {
        match fate(survival, index, &mut random) {
            Fate::Lost => left.dropped += 1,
            Fate::Whole => {
                left.content.write(write.offset, &write.bytes);
                left.kept += 1;
            }
            Fate::Torn => {
                tear(&mut left.content, write, whole_blocks, &mut random);
                left.torn += 1;
            }
        }
    }
    left
}

/// Writes some sectors of a write: those before one, all but one, or any of them.
fn tear(content: &mut Content, write: &Write, whole_blocks: &[u64], random: &mut Random) {
    let units = units(write, whole_blocks);
    let shape = random.below(3);
    let chosen = random.index(units.len().max(1));
    for (index, (from, to)) in units.into_iter().enumerate() {
        let kept = match shape {
            0 => index < chosen,
            1 => index != chosen,
            _ => random.chance(1, 2),
        };
        if kept {
            content.write(write.offset + from as u64, &write.bytes[from..to]);
        }
    }
}

/// The atomic parts of a write, as ranges of its bytes: sectors, and blocks kept whole.
fn units(write: &Write, whole_blocks: &[u64]) -> Vec<(usize, usize)> {
    let mut units: Vec<(usize, usize)> = Vec::new();
    let mut from = 0;
    while from < write.bytes.len() {
        let offset = write.offset + from as u64;
        let block = offset - offset % PAGE_BYTES as u64;
        let unit_bytes = if whole_blocks.contains(&block) { PAGE_BYTES } else { SECTOR_BYTES };
        let into = usize::try_from(offset % unit_bytes as u64).expect("a remainder of a usize");
        let to = (from + unit_bytes - into).min(write.bytes.len());
        units.push((from, to));
        from = to;
    }
    units
}
