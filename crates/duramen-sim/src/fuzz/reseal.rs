//! The files of a database as units with checksums, and the correction of checksums after an edit.
//!
//! A page's checksum is in every pointer to the page, a frame's also in the frame after it. After an edit
//! the unit's old checksum is therefore searched everywhere and replaced. The units that held it count as
//! edited in turn, up to the superblock. Knows the format from docs/format.md, not from the engine's code.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128, xxh3_128_with_seed};

const TAG_BYTES: usize = 16;
/// Where a node's page has its own checksum.
const MARK: std::ops::Range<usize> = 44..48;
const TAG_SEED: u64 = 0x4455_5241_4d45_4e00;
const PAGE_HEADER_BYTES: usize = 48;
const FRAME_HEADER_BYTES: usize = 160;
const PART_ENTRY_BYTES: usize = 40;
const FEED_HEADER_BYTES: usize = 64;

/// The kind of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Superblock,
    Page,
    SegmentHeader,
    Frame,
    FeedHeader,
    FeedFrame,
}

/// Bytes covered by one checksum.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    pub(super) kind: Kind,
    pub(super) path: String,
    pub(super) at: usize,
    pub(super) bytes: usize,
    tag: [u8; TAG_BYTES],
}

/// The files of a database.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) units: Vec<Unit>,
    block_bytes: usize,
}

impl Image {
    /// Finds the units of sound files with blocks of one size.
    pub(super) fn new(files: BTreeMap<String, Vec<u8>>, block_bytes: usize) -> Image {
        let mut image = Image { files, units: Vec::new(), block_bytes };
        let mut units = Vec::new();
        for (path, bytes) in &image.files {
            for at in (0..bytes.len()).step_by(image.block_bytes) {
                if let Some((kind, length)) = kind_at(path, at, &bytes[at..]) {
                    units.push(Unit { kind, path: path.clone(), at, bytes: length, tag: [0; TAG_BYTES] });
                }
            }
        }
        for unit in &mut units {
            unit.tag = image.checksum(unit);
        }
        image.units = units;
        image
    }

    /// The bytes of a unit.
    pub(super) fn unit_mut(&mut self, index: usize) -> &mut [u8] {
        let unit = &self.units[index];
        &mut self.files.get_mut(&unit.path).expect("units lie in files")[unit.at..unit.at + unit.bytes]
    }

    fn unit(&self, unit: &Unit) -> &[u8] {
        &self.files[&unit.path][unit.at..unit.at + unit.bytes]
    }

    /// Changes a page's length in memory, in its header and in every pointer to it.
    pub(super) fn resize_page(&mut self, index: usize, page_bytes: usize) {
        let unit = self.units[index].clone();
        let room = self.files[&unit.path].len() - unit.at;
        if unit.kind != Kind::Page || !(PAGE_HEADER_BYTES..=room).contains(&page_bytes) {
            return;
        }
        // Of a compressed page the header says both lengths.
        if !is_compressed(self.unit(&unit)) {
            self.units[index].bytes = page_bytes;
        }
        let small =
            |bytes: usize| u32::try_from(bytes).expect("files of the simulation are small").to_le_bytes();
        self.unit_mut(index)[32..36].copy_from_slice(&small(page_bytes - PAGE_HEADER_BYTES));
        let length = small(page_bytes);
        for (path, at) in self.places_of(&unit.tag) {
            // A pointer ends with page bytes, flags, tag.
            if let Some(start) = at.checked_sub(8) {
                self.files.get_mut(&path).expect("found in it")[start..start + 4].copy_from_slice(&length);
            }
        }
    }

    /// Replaces the records of the newest frame that has any by this one record. `false` if its segment has
    /// no room for it.
    pub(super) fn replace_last_record(&mut self, record: &[u8]) -> bool {
        let seq_of = |unit: &Unit| u64_at(self.unit(unit), 64);
        let groups =
            |(_, unit): &(usize, &Unit)| unit.kind == Kind::Frame && u32_at(self.unit(unit), 24) == 1;
        let newest = self.units.iter().enumerate().filter(groups).max_by_key(|(_, unit)| seq_of(unit));
        let index = newest.expect("the log has groups").0;
        let unit = &mut self.units[index];
        let file = self.files.get_mut(&unit.path).expect("units lie in files");
        let head = FRAME_HEADER_BYTES + PART_ENTRY_BYTES;
        let Some(frame) = file.get_mut(unit.at..unit.at + head + record.len()) else { return false };
        unit.bytes = frame.len();
        let length = (record.len() as u64).to_le_bytes();
        frame[32..40].copy_from_slice(&length);
        frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 8].copy_from_slice(&length);
        frame[head..].copy_from_slice(record);
        self.reseal(index);
        true
    }

    /// Corrects the checksum of an edited unit, and those of all units that name it.
    pub(super) fn reseal(&mut self, edited: usize) {
        let mut waiting = vec![edited];
        // Edits may have made units name each other in a cycle: no checksum is right there.
        for _ in 0..self.units.len() * 8 {
            let Some(index) = waiting.pop() else { return };
            let unit = self.units[index].clone();
            match unit.kind {
                Kind::Frame => self.reseal_parts(index),
                Kind::Page => self.reseal_mark(&unit),
                _ => {}
            }
            let tag = self.checksum(&unit);
            if let Some(at) = own_place(&unit) {
                self.unit_mut(index)[at..at + TAG_BYTES].copy_from_slice(&tag);
            }
            if tag == unit.tag {
                continue;
            }
            for (path, at) in self.places_of(&unit.tag) {
                self.files.get_mut(&path).expect("found in it")[at..at + TAG_BYTES].copy_from_slice(&tag);
                let holds = |unit: &Unit| unit.path == path && (unit.at..unit.at + unit.bytes).contains(&at);
                let holder = self.units.iter().position(holds).filter(|holder| *holder != index);
                waiting.extend(holder);
            }
            self.units[index].tag = tag;
        }
    }

    /// Where sixteen bytes occur, in all files.
    fn places_of(&self, tag: &[u8; TAG_BYTES]) -> Vec<(String, usize)> {
        let mut places = Vec::new();
        for (path, bytes) in &self.files {
            let found = bytes.windows(TAG_BYTES).enumerate().filter(|(_, window)| window == tag);
            places.extend(found.map(|(at, _)| (path.clone(), at)));
        }
        places
    }

    fn reseal_parts(&mut self, index: usize) {
        let frame = self.unit_mut(index);
        let count = u32_at(frame, 24) as usize;
        let table_end = FRAME_HEADER_BYTES.saturating_add(count.saturating_mul(PART_ENTRY_BYTES));
        if table_end > frame.len() {
            return;
        }
        let mut at = table_end;
        for entry in (FRAME_HEADER_BYTES..table_end).step_by(PART_ENTRY_BYTES) {
            let length = usize::try_from(u64_at(frame, entry)).unwrap_or(usize::MAX);
            let Some(part) = at.checked_add(length).and_then(|end| frame.get(at..end)) else { return };
            let checksum = xxh3_128(part).to_le_bytes();
            frame[entry + 24..entry + 40].copy_from_slice(&checksum);
            at += length;
        }
    }

    /// Corrects the checksum that a node's page has of its own.
    fn reseal_mark(&mut self, unit: &Unit) {
        let page = self.unit(unit);
        if page[MARK].iter().all(|byte| *byte == 0) {
            return;
        }
        let bytes = [&page[..MARK.start], &page[MARK.end..]].concat();
        let low = xxh3_64_with_seed(&bytes, self.seed(unit)) & u64::from(u32::MAX);
        let checksum = u32::try_from(low).expect("32 bits").max(1).to_le_bytes();
        let file = self.files.get_mut(&unit.path).expect("units lie in files");
        file[unit.at..][MARK].copy_from_slice(&checksum);
    }

    /// The seed of a page's checksums.
    fn seed(&self, unit: &Unit) -> u64 {
        let block = (unit.at / self.block_bytes) as u64;
        let seed = [self.database(), &block.to_le_bytes(), &self.unit(unit)[8..16]].concat();
        xxh3_64_with_seed(&seed, TAG_SEED)
    }

    /// The checksum that the format demands for a unit.
    fn checksum(&self, unit: &Unit) -> [u8; TAG_BYTES] {
        let bytes = self.unit(unit);
        let checksum = match unit.kind {
            Kind::Superblock => xxh3_128(&bytes[..496]),
            Kind::SegmentHeader => xxh3_128(&bytes[..240]),
            Kind::FeedHeader => xxh3_128(&bytes[..80]),
            Kind::Page => xxh3_128_with_seed(bytes, self.seed(unit)),
            Kind::Frame => {
                let count = u32_at(bytes, 24) as usize;
                let table_end = FRAME_HEADER_BYTES.saturating_add(count.saturating_mul(PART_ENTRY_BYTES));
                let seed = [self.database(), self.log(), &bytes[112..128], &bytes[40..56]].concat();
                xxh3_128_with_seed(&bytes[16..table_end.min(bytes.len())], xxh3_64(&seed))
            }
            Kind::FeedFrame => {
                let number = u64_at(&self.files[&unit.path], 48).to_le_bytes();
                let offset = (unit.at as u64).to_le_bytes();
                let seed = [self.database(), self.log(), &number, &offset].concat();
                xxh3_128_with_seed(&bytes[16..], xxh3_64(&seed))
            }
        };
        checksum.to_le_bytes()
    }

    fn database(&self) -> &[u8] {
        &self.data()[36..52]
    }

    fn log(&self) -> &[u8] {
        &self.data()[52..68]
    }

    fn data(&self) -> &[u8] {
        let is_data = |(path, _): &(&String, &Vec<u8>)| path.ends_with("/data");
        self.files.iter().find(is_data).expect("a database has a data file").1
    }
}

/// The unit that begins at a block, and its length.
fn kind_at(path: &str, at: usize, bytes: &[u8]) -> Option<(Kind, usize)> {
    let has = |from: usize, magic: &[u8]| bytes.get(from..from + magic.len()) == Some(magic);
    let found = if path.ends_with("/data") {
        match at {
            0 | 16384 => has(0, b"DURAMEN\x1a").then_some((Kind::Superblock, 512)),
            _ if has(0, b"DPAG") && bytes.len() >= PAGE_HEADER_BYTES => {
                let stored = if is_compressed(bytes) { 36 } else { 32 };
                Some((Kind::Page, length(PAGE_HEADER_BYTES, u32_at(bytes, stored).into())?))
            }
            _ => None,
        }
    } else if path.ends_with(".wal") {
        if has(0, b"DURAMWAL") {
            Some((Kind::SegmentHeader, 256))
        } else if has(16, b"DuFr") {
            let head = FRAME_HEADER_BYTES + (u32_at(bytes, 24) as usize).checked_mul(PART_ENTRY_BYTES)?;
            Some((Kind::Frame, length(head, u64_at(bytes, 32))?))
        } else {
            None
        }
    } else if path.ends_with(".feed") {
        if has(0, b"DURAMFED") {
            Some((Kind::FeedHeader, 96))
        } else if has(16, b"DuFe") {
            Some((Kind::FeedFrame, length(FEED_HEADER_BYTES, u64::from(u32_at(bytes, 24)))?))
        } else {
            None
        }
    } else {
        None
    };
    found.filter(|(_, length)| *length <= bytes.len())
}

/// Whether a page has a codec.
pub(super) fn is_compressed(page: &[u8]) -> bool {
    page[5] != 0
}

fn length(head: usize, payload: u64) -> Option<usize> {
    head.checked_add(usize::try_from(payload).ok()?)
}

/// Where a unit holds its own checksum; a page's is only in pointers to the page.
fn own_place(unit: &Unit) -> Option<usize> {
    match unit.kind {
        Kind::Superblock => Some(496),
        Kind::Page => None,
        Kind::SegmentHeader => Some(240),
        Kind::Frame | Kind::FeedFrame => Some(0),
        Kind::FeedHeader => Some(80),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::database::{BLOCK_BYTES, specimens};

    /// Otherwise the fuzzer would only see inputs that checksums refuse.
    #[test]
    fn every_unit_of_a_database_is_found_and_has_the_checksum_that_stands_in_the_file() {
        for image in specimens() {
            let mut seen = [0_usize; 6];
            for unit in &image.units {
                seen[unit.kind as usize] += 1;
                let places = image.places_of(&unit.tag);
                assert!(
                    !places.is_empty() || unit.kind == Kind::Page,
                    "{:?} at {} of {} has another checksum",
                    unit.kind,
                    unit.at,
                    unit.path
                );
                // Unreachable pages may exist.
            }
            assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
            let pages = || image.units.iter().filter(|unit| unit.kind == Kind::Page);
            let compressed = pages().filter(|unit| is_compressed(image.unit(unit))).count();
            assert!(compressed > 2 && compressed < pages().count(), "{compressed} compressed pages");
            let mut resealed = image.clone();
            pages().for_each(|unit| resealed.reseal_mark(unit));
            assert_eq!(resealed.files, image.files, "a node's own checksum is the one in the file");
            assert_eq!(image.block_bytes, BLOCK_BYTES);
        }
    }
}
