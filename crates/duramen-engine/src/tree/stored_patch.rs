//! A patch as it is stored: how the entries of a leaf differ from those on its page.
//!
//! Bytes: number of changes (u16), prefix length (u16), the prefix of the leaf's page, the end of each change
//! (u16, from the end of this table), the changes in order of keys. A change: key suffix length (13 bits) and
//! three flags, suffix, value. It is an entry of a leaf but for two of the flags: the key is deleted, or the
//! page has an entry with this key, too.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::filter::PageFilter;
use super::leaf::{BIG_BIT, Entry, KEY_LENGTH_BITS, StoredValue, taken_apart};
use crate::limits::{BIG_VALUE_BYTES, KEY_BYTES_MAX};
use crate::page_cache::{Meter, PatchCharge};

/// Flag: the entry on the page is deleted. The change has no value.
pub(super) const DELETED: u16 = 0x4000;

/// Flag: the change replaces an entry of the page.
pub(super) const REPLACES: u16 = 0x2000;

const FIXED_BYTES: usize = 4;
const END_BYTES: usize = 2;

const _: () = assert!(
    KEY_BYTES_MAX <= KEY_LENGTH_BITS && KEY_LENGTH_BITS < REPLACES as usize,
    "the length of a key leaves room for the flags"
);
const _: () = assert!(BIG_BIT & DELETED == 0 && DELETED & REPLACES == 0, "no two flags share a bit");

/// The changes of a leaf since its page was written, sorted by key.
#[derive(Debug)]
pub(crate) struct StoredPatch {
    bytes: Box<[u8]>,
    /// Where the table of ends begins, and where the changes do.
    table: usize,
    start: usize,
    /// Nothing is charged for the patch of a leaf that is written whole: the leaf is charged for it.
    charge: Option<PatchCharge>,
    /// Rules out keys that the page does not have. Made while the page is in memory.
    filter: OnceLock<PageFilter>,
}

/// What a patch and its filter tell about a key.
pub(super) enum Told<'a> {
    /// The leaf has it, with this value.
    Value(StoredValue<'a>),
    /// The leaf does not have it.
    Absent,
    /// Only the page can tell.
    Nothing,
}

impl PartialEq for StoredPatch {
    fn eq(&self, other: &StoredPatch) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for StoredPatch {}

impl StoredPatch {
    /// A patch from its bytes, which `charge` charges; returns what is wrong with them otherwise.
    pub(crate) fn parse(
        bytes: &[u8],
        charge: impl FnOnce(usize) -> PatchCharge,
    ) -> Result<StoredPatch, &'static str> {
        const CUT_SHORT: &str = "patch cut short";
        if bytes.len() < FIXED_BYTES {
            return Err(CUT_SHORT);
        }
        let (count, prefix_bytes) = (short_at(bytes, 0), short_at(bytes, 2));
        let table = FIXED_BYTES + prefix_bytes;
        let start = table + END_BYTES * count;
        if count == 0 || start > bytes.len() {
            return Err(CUT_SHORT);
        }
        let filter = OnceLock::new();
        let patch = StoredPatch { bytes: bytes.into(), table, start, charge: None, filter };
        let mut from = 0;
        for index in 0..count {
            let to = patch.end(index);
            if to < from + END_BYTES || start + to > bytes.len() {
                return Err(CUT_SHORT);
            }
            let change = &bytes[start + from..start + to];
            let (word, suffix_bytes) = (word_of(change), short_at(change, 0) & KEY_LENGTH_BITS);
            let value_bytes = (change.len() - END_BYTES).checked_sub(suffix_bytes).ok_or(CUT_SHORT)?;
            if prefix_bytes + suffix_bytes > KEY_BYTES_MAX || value_bytes > BIG_VALUE_BYTES {
                return Err("patch with an entry that is longer than one may be");
            }
            if word & DELETED != 0 && (value_bytes > 0 || word & (BIG_BIT | REPLACES) != 0) {
                return Err("patch with a value that is deleted");
            }
            from = to;
        }
        if start + from != bytes.len() {
            return Err("patch with bytes after its last change");
        }
        if !(1..count).all(|index| patch.suffix(index - 1) < patch.suffix(index)) {
            return Err("patch with keys out of order");
        }
        let charge = Some(charge(bytes.len()));
        Ok(StoredPatch { charge, ..patch })
    }

    /// The same patch, charged again.
    pub(super) fn copied(&self, meter: &Arc<Meter>) -> StoredPatch {
        let charge = Some(PatchCharge::new(meter, self.bytes.len()));
        let (bytes, filter) = (self.bytes.clone(), OnceLock::new());
        let copy = StoredPatch { bytes, table: self.table, start: self.start, charge, filter };
        if let Some(filter) = self.filter.get() {
            copy.keep_filter(if filter.is_shared() { filter.clone() } else { filter.copied() });
        }
        copy
    }

    /// Keeps the filter of the page, unless there is one or filters take too much memory.
    pub(super) fn make_filter(&self, make: impl FnOnce() -> PageFilter) {
        let has_room = self.charge.as_ref().is_none_or(PatchCharge::has_room_for_filter);
        if has_room && self.filter.get().is_none() {
            self.keep_filter(make());
        }
    }

    fn keep_filter(&self, filter: PageFilter) {
        let bytes = filter.bytes();
        if self.filter.set(filter).is_ok() {
            self.charge.iter().for_each(|charge| charge.keep_filter(bytes));
        }
    }

    /// With the filter of another patch to the same page, if that has one.
    pub(super) fn with_filter_of(self, other: &StoredPatch) -> StoredPatch {
        if let Some(filter) = other.filter.get() {
            self.keep_filter(filter.clone());
        }
        self
    }

    /// What is known about a key without the page.
    pub(super) fn told(&self, key: &[u8]) -> Told<'_> {
        // All entries of the leaf have the prefix.
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return Told::Absent };
        match self.find(suffix, 0) {
            Ok(index) if self.deletes(index) => Told::Absent,
            Ok(index) => Told::Value(taken_apart(self.change(index)).1),
            Err(_) if self.filter.get().is_some_and(|filter| !filter.may_have(suffix)) => Told::Absent,
            Err(_) => Told::Nothing,
        }
    }

    /// The change of the key with this suffix, or where it would be. It is not before `from`.
    pub(super) fn find(&self, suffix: &[u8], from: usize) -> Result<usize, usize> {
        let (mut low, mut high) = (from, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.suffix(middle).cmp(suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The bytes as they are stored.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of changes.
    pub(super) fn len(&self) -> usize {
        short_at(&self.bytes, 0)
    }

    /// Whether the page holds all of the leaf: what was changed was changed back.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About the bytes of the leaf's page once the patch is merged into it: the page has `page_bytes` now,
    /// and the leaf so many entries.
    pub(super) fn merged_bytes(&self, page_bytes: usize, entries: u64) -> usize {
        let (mut deleted, mut added, mut added_bytes) = (0u64, 0u64, 0);
        for index in 0..self.len() {
            if self.deletes(index) {
                deleted += 1;
            } else if !self.is_on_page(index) {
                (added, added_bytes) = (added + 1, added_bytes + self.change(index).len() + END_BYTES);
            }
        }
        let on_page = (entries + deleted).saturating_sub(added).max(1);
        let deleted_bytes = page_bytes as u64 * deleted.min(on_page) / on_page;
        page_bytes + added_bytes - usize::try_from(deleted_bytes).expect("no more than the page")
    }

    /// The prefix of every key.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.bytes[FIXED_BYTES..self.table]
    }

    /// Where a change ends, from the end of the table.
    #[inline]
    fn end(&self, index: usize) -> usize {
        short_at(&self.bytes, self.table + END_BYTES * index)
    }

    /// Where a change begins, from the end of the table.
    #[inline]
    fn begin(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.end(before))
    }

    /// The bytes of a change.
    #[inline]
    pub(super) fn change(&self, index: usize) -> &[u8] {
        &self.bytes[self.start + self.begin(index)..self.start + self.end(index)]
    }

    /// The key of a change after the prefix.
    pub(super) fn suffix(&self, index: usize) -> &[u8] {
        let change = self.change(index);
        &change[END_BYTES..END_BYTES + (short_at(change, 0) & KEY_LENGTH_BITS)]
    }

    /// Whether a change deletes an entry of the page.
    pub(super) fn deletes(&self, index: usize) -> bool {
        word_of(self.change(index)) & DELETED != 0
    }

    /// Whether the page has an entry with the key of a change.
    pub(super) fn is_on_page(&self, index: usize) -> bool {
        word_of(self.change(index)) & (DELETED | REPLACES) != 0
    }

    /// The entries that it puts, with their whole keys.
    pub(crate) fn puts(&self) -> impl Iterator<Item = (Vec<u8>, StoredValue<'_>)> {
        let puts = (0..self.len()).filter(|index| !self.deletes(*index));
        puts.map(|index| {
            let (suffix, value) = taken_apart(self.change(index));
            ([self.prefix(), suffix].concat(), value)
        })
    }

    /// Whether memory is charged for it by itself.
    pub(super) fn is_charged(&self) -> bool {
        self.charge.is_some()
    }

    /// The latest root does not use the patch, or uses it again.
    pub(crate) fn supersede(&self, is_superseded: bool) {
        self.charge.iter().for_each(|charge| charge.supersede(is_superseded));
    }

    /// The node above its leaf was evicted, but another version of it is in use.
    pub(super) fn stay(&self) {
        self.charge.iter().for_each(PatchCharge::stay);
    }

    /// The patch leaves memory together with the node above its leaf.
    pub(super) fn leave_memory(&self) {
        self.charge.iter().for_each(PatchCharge::leave);
    }
}

/// Changes put together, in order of keys.
#[derive(Debug)]
pub(super) struct PatchBuilder {
    bytes: Vec<u8>,
    /// Where the table of ends begins.
    table: usize,
    /// Changes that the table has room for.
    room: usize,
    count: usize,
}

impl PatchBuilder {
    /// For at most so many changes of about so many bytes, to a page with this prefix.
    pub(super) fn new(prefix: &[u8], count_max: usize, bytes: usize) -> PatchBuilder {
        let table = FIXED_BYTES + prefix.len();
        let start = table + END_BYTES * count_max;
        let mut builder =
            PatchBuilder { bytes: Vec::with_capacity(start + bytes), table, room: count_max, count: 0 };
        builder.bytes.extend_from_slice(&[0; 2]);
        builder.bytes.extend_from_slice(&short(prefix.len()).to_le_bytes());
        builder.bytes.extend_from_slice(prefix);
        builder.bytes.resize(start, 0);
        builder
    }

    /// Number of changes so far.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds changes as they are stored in another patch.
    pub(super) fn copy(&mut self, stored: &StoredPatch, changes: Range<usize>) {
        let (from, to) = (stored.begin(changes.start), stored.begin(changes.end));
        let moved = short(self.bytes.len() - self.start()).wrapping_sub(short(from));
        self.bytes.extend_from_slice(&stored.bytes[stored.start + from..stored.start + to]);
        let ends = &stored.bytes[stored.table + END_BYTES * changes.start..][..END_BYTES * changes.len()];
        let table = &mut self.bytes[self.table + END_BYTES * self.count..][..ends.len()];
        for (new, old) in table.chunks_exact_mut(END_BYTES).zip(ends.chunks_exact(END_BYTES)) {
            new.copy_from_slice(&u16::from_le_bytes([old[0], old[1]]).wrapping_add(moved).to_le_bytes());
        }
        self.count += changes.len();
        // The last of the ends has 16 bits, and so have those before it.
        short(self.bytes.len() - self.start());
    }

    /// Adds an entry with a key after the prefix.
    pub(super) fn put(&mut self, entry: &Entry<'_>, replaces: bool) {
        let start = self.bytes.len();
        entry.encode(0, &mut self.bytes);
        if replaces {
            let word = word_of(&self.bytes[start..]) | REPLACES;
            self.bytes[start..start + END_BYTES].copy_from_slice(&word.to_le_bytes());
        }
        self.end();
    }

    /// Deletes an entry of the page.
    pub(super) fn delete(&mut self, suffix: &[u8]) {
        let word = short(suffix.len()) | DELETED;
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self.bytes.extend_from_slice(suffix);
        self.end();
    }

    fn end(&mut self) {
        let end = short(self.bytes.len() - self.start());
        let at = self.table + END_BYTES * self.count;
        self.bytes[at..at + END_BYTES].copy_from_slice(&end.to_le_bytes());
        self.count += 1;
    }

    fn start(&self) -> usize {
        self.table + END_BYTES * self.room
    }

    /// Bytes of the patch.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() - END_BYTES * (self.room - self.count)
    }

    /// The patch.
    pub(super) fn finish(mut self, charge: Option<PatchCharge>) -> StoredPatch {
        let (table, start) = (self.table, self.table + END_BYTES * self.count);
        self.bytes.drain(start..self.start());
        self.bytes[..2].copy_from_slice(&short(self.count).to_le_bytes());
        StoredPatch { bytes: self.bytes.into(), table, start, charge, filter: OnceLock::new() }
    }
}

fn short_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn word_of(change: &[u8]) -> u16 {
    u16::from_le_bytes([change[0], change[1]])
}

fn short(number: usize) -> u16 {
    u16::try_from(number).expect("a patch takes a part of a leaf (limits.rs)")
}
