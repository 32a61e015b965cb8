//! Which pending changes survive a power cut: the choices, and the image each of them leaves.
//!
//! Owns the mapping from a model and a [`CrashChoice`] to a durable state. It never changes the model it
//! reads. Every crash test of D1 to D3 rests on these choices being at least as bad as a real disk.

use std::sync::Arc;

use super::content::{Content, mix};
use super::model::{InodeId, Model, Names, Node, OpSeq};
use super::pending::{Change, ModelFile};
use super::random::Random;

/// Bytes that a device writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// Which of the pending changes a power cut leaves.
///
/// Indices count the pending changes of the whole disk (file contents, lengths and directory entries
/// together) in the order they were issued; see [`Cursor::pending_len`](super::Cursor::pending_len).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashChoice {
    /// No pending change survives.
    None,
    /// All survive.
    All,
    /// All but this one survive.
    AllBut(usize),
    /// Only this one survives.
    Only(usize),
    /// The first changes up to this count survive.
    Prefix(usize),
    /// Those before `index` survive, `index` is torn at sectors, later ones are lost.
    Torn {
        /// The torn change.
        index: usize,
        /// Chooses the sectors.
        seed: u64,
    },
    /// Contents and lengths survive, directory entries do not.
    DataOnly,
    /// Directory entries survive, contents and lengths do not.
    EntriesOnly,
    /// A random subset survives, in random order, each write whole or torn at sectors.
    Random {
        /// Chooses everything; the same seed leaves the same image.
        seed: u64,
    },
    /// As `Random`; of a torn write, a sector may hold neither the old bytes nor the new ones.
    Garbled {
        /// Chooses everything; the same seed leaves the same image.
        seed: u64,
    },
}

/// What the sectors of a torn write hold that did not get the new bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// The old bytes.
    Old,
    /// The old bytes, or any.
    Garbage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Whole,
    Torn,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    Entry(usize),
    Change(InodeId, usize),
}

/// The pending changes of the whole disk in the order they were issued.
pub(super) fn pending_slots(model: &Model) -> Vec<Slot> {
    let entries = model.entries.iter().enumerate().map(|(place, entry)| (entry.seq, Slot::Entry(place)));
    let changes = model.files.iter().flat_map(|(inode, file)| {
        file.pending.iter().enumerate().map(|(place, pending)| (pending.seq, Slot::Change(*inode, place)))
    });
    let mut slots: Vec<(OpSeq, Slot)> = entries.chain(changes).collect();
    slots.sort_by_key(|(seq, _)| *seq);
    slots.into_iter().map(|(_, slot)| slot).collect()
}

fn fates(slots: &[Slot], choice: &CrashChoice, random: &mut Random) -> Vec<Fate> {
    let keep = |kept: bool| if kept { Fate::Whole } else { Fate::Lost };
    // Some images lose nearly everything, some nearly nothing: both ends find bugs the middle does not.
    let (kept_of_eight, torn_of_eight) = ([1, 4, 7][random.below(3)], [0, 2, 6][random.below(3)]);
    let fate = |(index, slot): (usize, &Slot)| match *choice {
        CrashChoice::None => Fate::Lost,
        CrashChoice::All => Fate::Whole,
        CrashChoice::AllBut(lost) => keep(index != lost),
        CrashChoice::Only(kept) => keep(index == kept),
        CrashChoice::Prefix(count) => keep(index < count),
        CrashChoice::Torn { index: torn, .. } if index == torn => Fate::Torn,
        CrashChoice::Torn { index: torn, .. } => keep(index < torn),
        CrashChoice::DataOnly => keep(matches!(slot, Slot::Change(..))),
        CrashChoice::EntriesOnly => keep(matches!(slot, Slot::Entry(_))),
        CrashChoice::Random { .. } | CrashChoice::Garbled { .. } if !random.chance(kept_of_eight, 8) => {
            Fate::Lost
        }
        CrashChoice::Random { .. } if random.chance(torn_of_eight, 8) => Fate::Torn,
        CrashChoice::Garbled { .. } if random.chance(torn_of_eight.max(2), 8) => Fate::Torn,
        CrashChoice::Random { .. } | CrashChoice::Garbled { .. } => Fate::Whole,
    };
    slots.iter().enumerate().map(fate).collect()
}

/// The durable state after a power cut: a model in which nothing is pending.
pub(super) fn survivors(model: &Model, choice: &CrashChoice) -> Model {
    let slots = if *choice == CrashChoice::None { Vec::new() } else { pending_slots(model) };
    let seed = match choice {
        CrashChoice::Random { seed } | CrashChoice::Garbled { seed } | CrashChoice::Torn { seed, .. } => {
            *seed
        }
        _ => 0,
    };
    let mut random = Random::new(mix(seed, model.seq.0));
    let fates = fates(&slots, choice, &mut random);

    let mut names = model.names.clone();
    let mut contents: Vec<(Slot, Fate)> = Vec::new();
    for (slot, fate) in slots.into_iter().zip(fates) {
        match slot {
            // An entry is one record of a journal: torn means lost or whole.
            Slot::Entry(place) if fate == Fate::Whole || fate == Fate::Torn && random.chance(1, 2) => {
                model.entries[place].change.apply(&mut names);
            }
            Slot::Change(..) if fate != Fate::Lost => contents.push((slot, fate)),
            Slot::Entry(_) | Slot::Change(..) => {}
        }
    }
    drop_orphans(&mut names);
    let is_garbled = matches!(choice, CrashChoice::Garbled { .. });
    if (is_garbled || matches!(choice, CrashChoice::Random { .. })) && random.chance(1, 2) {
        // Between two overlapping writes, either may have reached the medium last.
        random.shuffle(&mut contents);
    }

    let mut image = Model { seq: OpSeq(0), names, ..Model::default() };
    for node in image.names.values() {
        if let Node::File(inode) = node
            && let Some(file) = model.files.get(inode)
        {
            image.files.insert(*inode, ModelFile { durable: file.durable.clone(), pending: Vec::new() });
        }
    }
    for (slot, fate) in contents {
        if let Slot::Change(inode, place) = slot
            && let Some(file) = image.files.get_mut(&inode)
        {
            let change = &model.files[&inode].pending[place].change;
            let rest = if is_garbled { Rest::Garbage } else { Rest::Old };
            apply(change, fate, &mut file.durable, &mut random, rest);
        }
    }
    image
}

fn apply(change: &Change, fate: Fate, content: &mut Content, random: &mut Random, rest: Rest) {
    match change {
        Change::Write { offset, bytes } if fate == Fate::Torn => tear(content, *offset, bytes, random, rest),
        _ if fate == Fate::Torn && random.chance(1, 2) => {}
        _ => change.apply(content),
    }
}

/// Writes some sectors of a write: a prefix, all but one, or any subset.
pub(super) fn tear(content: &mut Content, offset: u64, bytes: &Arc<[u8]>, random: &mut Random, rest: Rest) {
    let end = offset + bytes.len() as u64;
    let first = offset / SECTOR_BYTES;
    let sector_count = super::content::index(end.div_ceil(SECTOR_BYTES) - first);
    let shape = random.below(3);
    let chosen = random.below(sector_count.max(1));
    for sector in 0..sector_count {
        let kept = match shape {
            0 => sector < chosen,
            1 => sector != chosen,
            _ => random.chance(1, 2),
        };
        let sector_start = (first + sector as u64) * SECTOR_BYTES;
        if kept {
            let start = sector_start.max(offset);
            let stop = (sector_start + SECTOR_BYTES).min(end);
            let (from, to) = (super::content::index(start - offset), super::content::index(stop - offset));
            content.write(start, &bytes[from..to]);
        } else if rest == Rest::Garbage && random.chance(1, 2) {
            garble(content, sector_start, end, random);
        }
    }
    // The length is metadata: it may cover sectors that never arrived, which then read as zeroes.
    if random.chance(1, 2) {
        content.grow(end);
    }
}

/// Fills a sector with any bytes, what the write left alone in it included; a file does not grow by that.
fn garble(content: &mut Content, sector_start: u64, end: u64, random: &mut Random) {
    let stop = (sector_start + SECTOR_BYTES).min(content.len().max(end));
    let words = std::iter::repeat_with(|| random.bits().to_le_bytes());
    let bytes: Vec<u8> = words.flatten().take(super::content::index(stop - sector_start)).collect();
    content.write(sector_start, &bytes);
}

/// Drops names in a directory that did not survive.
fn drop_orphans(names: &mut Names) {
    // Parents sort before their children, so one pass in order sees each parent's fate first.
    let orphans: Vec<_> = names
        .keys()
        .filter(|path| path.ancestors().skip(1).any(|above| names.get(above) != Some(&Node::Directory)))
        .cloned()
        .collect();
    for orphan in orphans {
        names.remove(&orphan);
    }
}

/// A hash of names and contents as a reader would find them, whatever the inodes are.
pub(super) fn hash_image<'a>(names: &Names, content: impl Fn(InodeId) -> Option<&'a Content>) -> u64 {
    names.iter().fold(0, |hash, (path, node)| {
        let name = super::content::hash_bytes(path.as_os_str().as_encoded_bytes());
        let part = match node {
            Node::Directory => 1,
            Node::File(inode) => content(*inode).map_or(2, Content::hash),
        };
        mix(mix(hash, name), part)
    })
}
