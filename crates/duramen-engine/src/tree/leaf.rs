//! A leaf: sorted entries after a common prefix. In memory: a page as on disk, and later changes
//! ([`Patch`]).
//!
//! Payload: entry count (u16), prefix length (u16), four zero bytes, prefix, start of each entry (u16, from
//! the payload's start), entries. An entry: key suffix length (15 bits) and the big-value bit, suffix, value.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::apply::Change;
use super::filter::PageFilter;
use super::heads::Heads;
use super::patch::{Edit, Patch, PatchFor};
use super::pointer::Reduction;
use super::stored_patch::StoredPatch;
use crate::alarm::invariant;
use crate::data_file::{PAGE_HEADER_BYTES, Page, PageKind};
use crate::limits::{BIG_VALUE_BYTES, KEY_BYTES_MAX, LEAF_BYTES_MAX};
use crate::page_cache::{Charge, Dirty, Meter, Pages};

const FIXED_BYTES: usize = 8;
/// Bytes of a leaf before its prefix.
pub(super) const LEAF_HEAD_BYTES: usize = FIXED_BYTES;
pub(super) const ENTRY_FIXED_BYTES: usize = 4;
/// Flag in an entry's first two bytes: its value is big. The other bits are the length of the key after the
/// prefix.
pub(super) const BIG_BIT: u16 = 0x8000;
const LENGTH_BITS: usize = 0x7fff;

/// The bits of those for the length of a key. In a patch the others are flags, on a page they are zero.
pub(super) const KEY_LENGTH_BITS: usize = 0x1fff;

/// The patch of a leaf that is written whole may take this part of a page. A larger one costs more to copy at
/// each change than a new page now and then.
const PATCH_PART: usize = 8;

/// A patch that is written instead of the leaf may take this part of a page.
const KEPT_PATCH_PART: usize = 4;

/// A short range ends within so many entries.
const NEAR_ENTRIES: usize = 3;

/// Entries whose reduction is cached together.
pub(super) const RUN_ENTRIES: usize = 16;

/// Bytes of an entry's offset in the page's table.
pub(super) const START_BYTES: usize = 2;

/// The entries of a leaf with any prefix take no more.
const ENTRIES_BYTES_MAX: usize = u16::MAX as usize - FIXED_BYTES - KEY_BYTES_MAX;

const _: () =
    assert!(LEAF_BYTES_MAX <= ENTRIES_BYTES_MAX, "a leaf is split before its entries take too much");
const _: () = assert!(FIXED_BYTES == 2 + 2 + 4, "the header: count, length of the prefix, four zero bytes");
const _: () = assert!(ENTRY_FIXED_BYTES == START_BYTES + 2, "an entry's start, and the length of its key");
const _: () = assert!(KEY_BYTES_MAX <= LENGTH_BITS, "the length of a key leaves room for the big-value bit");
const _: () = assert!(
    FIXED_BYTES + KEY_BYTES_MAX + LEAF_BYTES_MAX <= u16::MAX as usize,
    "the starts of entries have 16 bits, with a prefix that the entries do not count"
);

/// A value as a tree stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredValue<'a> {
    /// Whether `bytes` are a reference to extents (see `tree::big`) instead of the value itself.
    pub big: bool,
    /// The value, or the reference.
    pub bytes: &'a [u8],
}

/// One entry to be put into a leaf. Its key has two parts, so that nothing is copied before the leaf is
/// built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// First part of the key.
    pub head: &'a [u8],
    /// Second part of the key.
    pub tail: &'a [u8],
    /// The value.
    pub value: StoredValue<'a>,
}

impl Entry<'_> {
    fn key_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Bytes that the entry takes in a leaf without prefix compression.
    pub(crate) fn cost(&self) -> usize {
        ENTRY_FIXED_BYTES + self.key_bytes() + self.value.bytes.len()
    }

    /// Appends the entry as it is stored, without the first `prefix` bytes of its key.
    pub(crate) fn encode(&self, prefix: usize, out: &mut Vec<u8>) {
        let suffix_bytes =
            u16::try_from(self.key_bytes() - prefix).expect("a key is below 2 KiB (limits.rs)");
        let flag = if self.value.big { BIG_BIT } else { 0 };
        out.extend_from_slice(&(suffix_bytes | flag).to_le_bytes());
        match prefix.checked_sub(self.head.len()) {
            None => {
                out.extend_from_slice(&self.head[prefix..]);
                out.extend_from_slice(self.tail);
            }
            Some(of_tail) => out.extend_from_slice(&self.tail[of_tail..]),
        }
        out.extend_from_slice(self.value.bytes);
    }

    fn key_iter(&self) -> impl Iterator<Item = u8> {
        self.head.iter().chain(self.tail).copied()
    }

    /// The whole key.
    pub(crate) fn key(&self) -> Vec<u8> {
        [self.head, self.tail].concat()
    }
}

/// A leaf in memory: a page and a patch, until the patch is large enough for a new page.
#[derive(Debug)]
pub(crate) struct Leaf {
    base: Arc<Base>,
    /// First bytes of the keys after the prefix.
    heads: Heads,
    patch: Option<Patch>,
    /// Reductions of runs of [`RUN_ENTRIES`], computed on first use.
    reductions: OnceLock<Box<[OnceLock<Reduction>]>>,
}

/// A page that every version of a leaf shares until the next page is built.
#[derive(Debug)]
struct Base {
    page: Page,
    prefix_bytes: usize,
    charge: Charge,
}

impl Base {
    /// The bytes charged for a base with this page.
    fn bytes(page: &Page) -> usize {
        page.memory_bytes() + size_of::<Base>()
    }
}

impl Leaf {
    /// Builds a leaf from sorted entries; `generation` is the commit that makes it.
    pub(crate) fn build(pages: &Pages, entries: &[Entry<'_>], generation: u64) -> Leaf {
        let prefix = common_prefix(entries);
        let payload: usize = FIXED_BYTES + prefix + entries.iter().map(|e| e.cost() - prefix).sum::<usize>();
        let short = |n: usize| u16::try_from(n).expect("a leaf is below 64 KiB (limits.rs)");
        let buffers = pages.data().buffers();
        let page = Page::build_in(buffers, PageKind::Leaf, generation, payload, |out| {
            out.extend_from_slice(&short(entries.len()).to_le_bytes());
            out.extend_from_slice(&short(prefix).to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            if let Some(first) = entries.first() {
                out.extend(first.key_iter().take(prefix));
            }
            let mut start = FIXED_BYTES + prefix + 2 * entries.len();
            for entry in entries {
                out.extend_from_slice(&short(start).to_le_bytes());
                start += entry.cost() - prefix - 2;
            }
            for entry in entries {
                entry.encode(prefix, out);
            }
        });
        let leaf = Leaf::over(pages.meter(), page);
        debug_assert!(leaf.is_sound(), "a leaf built of {} entries is sound", entries.len());
        leaf
    }

    /// Takes a page from disk; returns what is wrong with its structure otherwise.
    pub(crate) fn from_page(meter: &Arc<Meter>, page: Page) -> Result<Leaf, &'static str> {
        let payload = page.payload();
        if payload.len() < FIXED_BYTES {
            return Err("leaf without a header");
        }
        let count = short_at(payload, 0);
        if count == 0 {
            return Err("leaf without an entry");
        }
        let table = FIXED_BYTES + short_at(payload, 2);
        let prefix_bytes = short_at(payload, 2);
        let mut least = table + 2 * count;
        if least > payload.len() {
            return Err("leaf with more entries than bytes");
        }
        for index in 0..count {
            let start = short_at(payload, table + 2 * index);
            // An entry begins at or after the end of the one before, whose value is what lies between.
            if start < least || start + 2 > payload.len() || index > 0 && start - least > BIG_VALUE_BYTES {
                return Err("leaf entry outside its leaf");
            }
            let suffix_bytes = short_at(payload, start) & LENGTH_BITS;
            if prefix_bytes + suffix_bytes > KEY_BYTES_MAX {
                return Err("leaf with a key that is longer than a key may be");
            }
            least = start + 2 + suffix_bytes;
        }
        if least > payload.len() || payload.len() - least > BIG_VALUE_BYTES {
            return Err("leaf entry outside its leaf");
        }
        let leaf = Leaf::over(meter, page);
        // Searches and changes rely on the order: with unordered keys they would go to a wrong entry.
        if leaf.heads.are_ordered(|index| leaf.suffix(index - 1) < leaf.suffix(index)) {
            Ok(leaf)
        } else {
            Err("leaf with keys out of order")
        }
    }

    /// A leaf over a page whose structure was verified.
    fn over(meter: &Arc<Meter>, page: Page) -> Leaf {
        let payload = page.payload();
        let (count, prefix_bytes) = (short_at(payload, 0), short_at(payload, 2));
        let heads = Heads::of((0..count).map(|index| {
            let start = short_at(payload, FIXED_BYTES + prefix_bytes + 2 * index);
            &payload[start + 2..start + 2 + (short_at(payload, start) & LENGTH_BITS)]
        }));
        let charge = Charge::new(meter, Base::bytes(&page), Dirty::No);
        let base = Arc::new(Base { page, prefix_bytes, charge });
        Leaf { base, heads, patch: None, reductions: OnceLock::new() }
    }

    /// The leaf with sorted changes in its patch. `None` if a page must be built: nothing changes, a key
    /// lacks the common prefix, the patch is full, or the entries would take more than `bytes_max` or less
    /// than a quarter of it.
    ///
    /// With `kept` the patch is kept with the node above the leaf, and charged to this meter. References to
    /// big values that the new leaf does not hold are added to `dropped`.
    pub(crate) fn patched(
        &self,
        changes: &[Change<'_>],
        bytes_max: usize,
        kept: Option<&Arc<Meter>>,
        dropped: &mut Vec<Vec<u8>>,
    ) -> Option<Leaf> {
        let prefix = self.prefix();
        if !changes.iter().all(|change| change.key.starts_with(prefix)) {
            return None;
        }
        let edits: Vec<Edit<'_>> = changes
            .iter()
            .map(|change| Edit {
                at: self.find(change.key),
                suffix: &change.key[prefix.len()..],
                value: change.value,
            })
            .filter(|edit| edit.at.is_ok() || edit.value.is_some())
            .collect();
        let old = |edit: &Edit<'_>| edit.at.ok().map(|index| self.raw(index));
        let taken: usize = edits.iter().filter_map(old).map(|raw| raw.len() + START_BYTES).sum();
        let given: usize = edits.iter().map(Edit::bytes).sum();
        let entry_bytes = self.entry_bytes() + given - taken;
        if edits.is_empty() || entry_bytes > bytes_max || entry_bytes < bytes_max / 4 {
            return None;
        }
        let patch_bytes_max = match kept {
            Some(_) => kept_patch_bytes_max(bytes_max),
            None => bytes_max / PATCH_PART,
        };
        let patch = PatchFor { prefix, entry_bytes, bytes_max: patch_bytes_max, kept };
        let (heads, patch) = Patch::of(self.patch.as_ref(), &self.heads, &edits, patch)?;
        let values = edits.iter().filter_map(|edit| Some(self.value(edit.at.ok()?)));
        dropped.extend(values.filter(|value| value.big).map(|value| value.bytes.to_vec()));
        let base = Arc::clone(&self.base);
        // If this leaf is evicted just now, its page stays in use all the same.
        base.charge.stay();
        let leaf = Leaf { base, heads, patch: Some(patch), reductions: OnceLock::new() };
        debug_assert!(leaf.is_sound(), "a leaf after {} edits is sound", edits.len());
        Some(leaf)
    }

    /// The leaf of a page with a patch that was read; returns what is wrong with the patch otherwise.
    pub(crate) fn with_stored(self, stored: &Arc<StoredPatch>) -> Result<Leaf, &'static str> {
        if stored.prefix() != self.prefix() {
            return Err("patch of another leaf");
        }
        let edits: Vec<Edit<'_>> = (0..stored.len()).map(|index| self.edit(stored, index)).collect();
        let old = |edit: &Edit<'_>| edit.at.ok().map(|index| self.raw(index));
        let taken: usize = edits.iter().filter_map(old).map(|raw| raw.len() + START_BYTES).sum();
        let given: usize = edits.iter().map(Edit::bytes).sum();
        let entry_bytes = self.entry_bytes() + given - taken;
        let patch = PatchFor { prefix: self.prefix(), entry_bytes, bytes_max: usize::MAX, kept: None };
        let patched =
            Patch::of(None, &self.heads, &edits, patch).filter(|_| entry_bytes <= ENTRIES_BYTES_MAX);
        let Some((heads, patch)) = patched else { return Err("patch that is too long") };
        // Its flags say what the page has: a patch of an older page has others.
        if **patch.stored() != **stored || heads.len() == 0 {
            return Err("patch that does not fit the page");
        }
        let base = Arc::clone(&self.base);
        let patch = Some(patch.sharing(Arc::clone(stored)));
        let leaf = Leaf { base, heads, patch, reductions: OnceLock::new() };
        debug_assert!(leaf.is_sound(), "a leaf with a patch of {} changes is sound", stored.len());
        Ok(leaf)
    }

    /// A change of a patch as an edit of this leaf.
    fn edit<'a>(&self, stored: &'a StoredPatch, index: usize) -> Edit<'a> {
        let (suffix, value) = taken_apart(stored.change(index));
        let at = self.find_suffix(suffix);
        Edit { at, suffix, value: (!stored.deletes(index)).then_some(value) }
    }

    /// The changes since the page was built, if there are any.
    pub(super) fn stored_patch(&self) -> Option<&Arc<StoredPatch>> {
        self.patch.as_ref().map(Patch::stored)
    }

    /// Whether keys are sorted, heads are those of the keys, and entries take no more than is recorded.
    fn is_sound(&self) -> bool {
        let suffixes = || (0..self.len()).map(|index| self.suffix(index));
        let bytes: usize = (0..self.len()).map(|index| self.raw(index).len() + START_BYTES).sum();
        suffixes().is_sorted_by(|a, b| a < b) && self.heads.are_of(suffixes()) && bytes <= self.entry_bytes()
    }

    /// The cell for the reduction of the run that begins at entry `index`, if a whole run begins there.
    pub(crate) fn run_from(&self, index: usize) -> Option<&OnceLock<Reduction>> {
        let runs = self.len() / RUN_ENTRIES;
        let cells = || (0..runs).map(|_| OnceLock::new()).collect();
        let is_one = index.is_multiple_of(RUN_ENTRIES) && index / RUN_ENTRIES < runs;
        is_one.then(|| &self.reductions.get_or_init(cells)[index / RUN_ENTRIES])
    }

    /// The page, if there is no patch.
    pub(crate) fn page(&self) -> Option<&Page> {
        self.patch.is_none().then_some(&self.base.page)
    }

    /// The same entries on a page without a patch.
    pub(crate) fn rebuilt(&self, pages: &Pages, generation: u64) -> Leaf {
        let entries: Vec<Entry<'_>> = (0..self.len()).map(|index| self.entry(index)).collect();
        let rebuilt = Leaf::build(pages, &entries, generation);
        let (bytes, bytes_max) = (rebuilt.page_bytes_max(), self.page_bytes_max());
        invariant!(bytes <= bytes_max, "a page of {bytes} bytes is within the {bytes_max} counted as dirty");
        invariant!(rebuilt.len() == self.len(), "{} of {} entries rebuilt", rebuilt.len(), self.len());
        rebuilt
    }

    /// The leaf was evicted: unless another version shares its page, the page is no longer charged as
    /// resident.
    pub(crate) fn leave_memory(&self) {
        if Arc::strong_count(&self.base) == 1 {
            self.base.charge.leave();
        }
    }

    /// Bytes of memory besides the page, which is charged by itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let reductions = self.len() / RUN_ENTRIES * size_of::<OnceLock<Reduction>>();
        self.heads.heap_bytes() + self.patch.as_ref().map_or(0, |patch| patch.heap_bytes()) + reductions
    }

    /// Upper bound for the bytes of its page, built or not.
    pub(crate) fn page_bytes_max(&self) -> usize {
        PAGE_HEADER_BYTES + FIXED_BYTES + self.base.prefix_bytes + self.entry_bytes()
    }

    /// Bytes of the entries after the prefix, table included.
    fn entry_bytes(&self) -> usize {
        let on_page = || self.base.page.payload().len() - FIXED_BYTES - self.base.prefix_bytes;
        self.patch.as_ref().map_or_else(on_page, |patch| patch.entry_bytes())
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The prefix of every key.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.base.page.payload()[FIXED_BYTES..FIXED_BYTES + self.base.prefix_bytes]
    }

    /// The key of entry `index` after the prefix.
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        self.suffix_and_value(index).0
    }

    /// The value of entry `index`.
    pub(crate) fn value(&self, index: usize) -> StoredValue<'_> {
        self.suffix_and_value(index).1
    }

    /// The key of entry `index` after the prefix, and its value.
    pub(crate) fn suffix_and_value(&self, index: usize) -> (&[u8], StoredValue<'_>) {
        taken_apart(self.raw(index))
    }

    /// The bytes of entry `index` as stored.
    fn raw(&self, index: usize) -> &[u8] {
        let on_page = match &self.patch {
            None => index,
            Some(patch) => match patch.entry(index) {
                Ok(entry) => return entry,
                Err(on_page) => on_page,
            },
        };
        self.raw_on_page(on_page)
    }

    /// The bytes of entry `index` of the page.
    #[inline]
    fn raw_on_page(&self, index: usize) -> &[u8] {
        let payload = self.base.page.payload();
        let at = FIXED_BYTES + self.base.prefix_bytes + START_BYTES * index;
        let start = short_at(payload, at);
        let is_last = index + 1 == short_at(payload, 0);
        let end = if is_last { payload.len() } else { short_at(payload, at + START_BYTES) };
        &payload[start..end]
    }

    /// Makes the filter of the page and keeps it with the patch, unless that has one.
    pub(crate) fn make_filter(&self) {
        let Some(patch) = self.stored_patch() else { return };
        let count = short_at(self.base.page.payload(), 0);
        let suffixes = (0..count).map(|index| taken_apart(self.raw_on_page(index)).0);
        patch.make_filter(|| PageFilter::of(suffixes));
    }

    /// Entry `index`, as input for another leaf.
    pub(crate) fn entry(&self, index: usize) -> Entry<'_> {
        let (tail, value) = self.suffix_and_value(index);
        Entry { head: self.prefix(), tail, value }
    }

    /// Writes the whole key of entry `index` into `key`.
    pub(crate) fn key_into(&self, index: usize, key: &mut Vec<u8>) {
        let (prefix, suffix) = (self.prefix(), self.suffix(index));
        key.clear();
        key.reserve(prefix.len() + suffix.len());
        key.extend_from_slice(prefix);
        key.extend_from_slice(suffix);
    }

    /// Where `key` is (`Ok`), or where it would be (`Err`).
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let shared = key.len().min(prefix.len());
        match key[..shared].cmp(&prefix[..shared]) {
            std::cmp::Ordering::Less => return Err(0),
            std::cmp::Ordering::Greater => return Err(self.len()),
            std::cmp::Ordering::Equal if key.len() < prefix.len() => return Err(0),
            std::cmp::Ordering::Equal => {}
        }
        self.find_suffix(&key[prefix.len()..])
    }

    /// As [`Leaf::find`], for a key with the prefix, after which it is `rest`.
    fn find_suffix(&self, rest: &[u8]) -> Result<usize, usize> {
        let Range { start: mut low, end: mut high } = self.heads.candidates(rest);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.suffix(middle).cmp(rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        debug_assert!(
            (low == 0 || self.suffix(low - 1) < rest) && (low == self.len() || self.suffix(low) > rest),
            "a key that is not in the leaf belongs before entry {low}"
        );
        Err(low)
    }

    /// The first entry at or after `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(index) | Err(index) => index,
        }
    }

    /// The first entry from `first` on that is at or after `key`. It is often one of the next.
    pub(crate) fn lower_bound_from(&self, first: usize, key: &[u8]) -> usize {
        let Some(rest) = key.strip_prefix(self.prefix()) else { return self.lower_bound(key).max(first) };
        let end = self.len().min(first + NEAR_ENTRIES);
        match (first..end).find(|index| self.suffix(*index) >= rest) {
            Some(index) => index,
            None if end == self.len() => end,
            None => self.lower_bound(key),
        }
    }
}

/// The longest patch that is kept, where leaves are split at `bytes_max`.
pub(super) fn kept_patch_bytes_max(bytes_max: usize) -> usize {
    bytes_max / KEPT_PATCH_PART
}

fn short_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

/// The key after the prefix and the value of an entry as stored.
#[inline]
pub(super) fn taken_apart(entry: &[u8]) -> (&[u8], StoredValue<'_>) {
    let word = short_at(entry, 0);
    let (suffix, bytes) = entry[2..].split_at(word & KEY_LENGTH_BITS);
    (suffix, StoredValue { big: word > LENGTH_BITS, bytes })
}

fn common_prefix(entries: &[Entry<'_>]) -> usize {
    match entries {
        [] => 0,
        [only] => only.key_bytes(),
        [first, .., last] => first.key_iter().zip(last.key_iter()).take_while(|(a, b)| a == b).count(),
    }
}
