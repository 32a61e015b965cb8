//! Changes of many log records, sorted by tree and key, with only the last change to each key. Pure: bytes
//! in, order out.
//!
//! The records stay as they were read; a change is a note of where it lies. Sorting compares the first bytes
//! in which keys differ, and reads the records only to break ties. Each thread sorts its own range of keys,
//! so no merge is needed.

use std::collections::{BTreeMap, HashSet};

use super::notes::{Kind, RecordNotes, Spot, head_of, same_bytes};
use crate::alarm::invariant;
use crate::ids::TreeId;
use crate::threads::side_by_side;
use crate::tree::{Change, KeyRange, StoredValue};

/// With fewer changes in a tree, sorting in several threads costs more than it saves.
const SHARED_CHANGES_MIN: usize = 16 * 1024;

/// About this many changes are sampled to divide the work.
const SAMPLED_CHANGES: usize = 1024;

/// The largest number of buckets, as a power of two.
const BUCKET_BITS_MAX: u32 = 16;

/// Notes of short records are joined into chunks of at most this many.
const CHUNK_CHANGES_MAX: usize = 1024;

/// Changes of records in the order of commits, not sorted yet.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    records: Vec<Vec<u8>>,
    trees: BTreeMap<TreeId, Gathering>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Gathering {
    /// In the order of commits. Notes of a long record are a chunk; those of short records are joined.
    chunks: Vec<Vec<Spot>>,
    /// The prefix that all keys of this tree share.
    shared: Vec<u8>,
}

/// The changes of one log, sorted.
#[derive(Debug, Default)]
pub(crate) struct SortedChanges {
    records: Vec<Vec<u8>>,
    trees: Vec<(TreeId, Vec<Spot>)>,
}

/// The changes of one tree, or of a range of it, in order of key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangesOf<'a> {
    records: &'a [Vec<u8>],
    spots: &'a [Spot],
}

impl Gathered {
    /// Takes a record with its notes. Returns `false` if notes cannot hold it; nothing may be read from this
    /// then.
    #[must_use]
    pub(crate) fn record(&mut self, bytes: Vec<u8>, notes: RecordNotes) -> bool {
        let Ok(record) = u32::try_from(self.records.len()) else { return false };
        for mut run in notes.runs {
            run.spots.iter_mut().for_each(|spot| spot.record = record);
            self.bytes += size_of_val(&run.spots[..]);
            let first = &bytes[run.spots[0].key_at as usize..][..run.shared_bytes];
            self.trees.entry(run.tree).or_default().add(run.spots, first);
        }
        self.bytes += bytes.capacity();
        self.records.push(bytes);
        !notes.overflowed
    }

    /// Bytes of the records taken, and of the notes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sorts the changes, except those of the trees in `without`.
    #[must_use]
    pub(crate) fn sorted(self, without: &HashSet<TreeId>, threads: usize) -> SortedChanges {
        let Gathered { records, trees, .. } = self;
        let kept = trees.into_iter().filter(|(id, _)| !without.contains(id));
        let trees: Vec<_> = kept.map(|(id, tree)| (id, tree.sorted(&records, threads))).collect();
        let is_sorted = |spots: &[Spot]| spots.is_sorted_by(|a, b| key_of(&records, a) < key_of(&records, b));
        debug_assert!(trees.iter().all(|(_, spots)| is_sorted(spots)), "keys are sorted, each once");
        debug_assert!(trees.is_sorted_by(|a, b| a.0 < b.0), "trees are sorted, each once");
        SortedChanges { records, trees }
    }
}

impl Gathering {
    /// Adds changes to keys that share the prefix `shared`.
    fn add(&mut self, spots: Vec<Spot>, shared: &[u8]) {
        if self.chunks.is_empty() {
            self.shared = shared.to_vec();
        } else {
            self.shared.truncate(same_bytes(&self.shared, shared));
        }
        match self.chunks.last_mut().filter(|last| last.len() + spots.len() <= CHUNK_CHANGES_MAX) {
            Some(last) => last.extend(spots),
            None => self.chunks.push(spots),
        }
    }

    fn sorted(self, records: &[Vec<u8>], threads: usize) -> Vec<Spot> {
        let count: usize = self.chunks.iter().map(Vec::len).sum();
        let threads = if count < SHARED_CHANGES_MIN { 1 } else { threads.max(1) };
        let chunks = self.with_heads(records, threads);
        debug_assert!(chunks.iter().map(Vec::len).sum::<usize>() == count, "every change has got its head");
        let ranges = ranges_of(&chunks, count, threads);
        check_ranges(&ranges);
        let mut sorted = side_by_side(&ranges, |range| sorted_within(range, &chunks, records)).into_iter();
        let mut all = sorted.next().unwrap_or_default();
        all.reserve_exact(sorted.as_slice().iter().map(Vec::len).sum());
        sorted.for_each(|part| all.extend_from_slice(&part));
        invariant!(all.len() <= count, "{} sorted changes come from {count}", all.len());
        all
    }

    /// The changes in commit order. If all keys share a prefix, the heads are taken from the bytes after it.
    fn with_heads(self, records: &[Vec<u8>], threads: usize) -> Vec<Vec<Spot>> {
        let from = self.shared.len();
        if from == 0 {
            return self.chunks;
        }
        let parts: Vec<&[Vec<Spot>]> =
            self.chunks.chunks(self.chunks.len().div_ceil(threads).max(1)).collect();
        let head = |spot: &Spot| Spot { head: head_of(&key_of(records, spot)[from..]), ..*spot };
        side_by_side(&parts, |part| part.iter().flatten().map(head).collect())
    }
}

/// The changes with heads from `from` to `to`, inclusive.
#[derive(Debug, Clone, Copy)]
struct HeadRange {
    from: u64,
    to: u64,
    /// Most of the heads lie between these.
    low: u64,
    high: u64,
}

/// Ranges of heads, one for each thread, with about equally many changes, estimated from a sample.
fn ranges_of(chunks: &[Vec<Spot>], count: usize, threads: usize) -> Vec<HeadRange> {
    // An odd step avoids hitting the same places of runs of equal length.
    let every = (count / SAMPLED_CHANGES) | 1;
    let mut sample: Vec<u64> = chunks.iter().flatten().step_by(every).map(|spot| spot.head).collect();
    sample.sort_unstable();
    let (Some(&low), Some(&high)) = (sample.first(), sample.last()) else { return Vec::new() };
    let mut ranges = vec![HeadRange { from: 0, to: u64::MAX, low, high }];
    for part in 1..threads {
        let from = sample[part * sample.len() / threads];
        let last = ranges.last_mut().expect("it began with one");
        if from > last.low {
            (last.to, last.high) = (from - 1, from - 1);
            ranges.push(HeadRange { from, to: u64::MAX, low: from, high });
        }
    }
    ranges
}

/// The ranges of heads adjoin: between two of them no head is lost, and none is in both.
fn check_ranges(ranges: &[HeadRange]) {
    let adjoin = ranges.windows(2).all(|pair| pair[0].to.checked_add(1) == Some(pair[1].from));
    invariant!(adjoin, "the {} ranges of heads adjoin", ranges.len());
}

/// Assigns heads to buckets that are in the order of the heads. Heads outside the range go to the first or
/// last bucket.
struct Buckets {
    low: u64,
    shift: u32,
    last: usize,
}

impl Buckets {
    fn of(range: HeadRange, count: usize) -> Buckets {
        let bits = (count / 2).max(2).ilog2().min(BUCKET_BITS_MAX);
        let shift = (u64::BITS - (range.high - range.low).leading_zeros()).saturating_sub(bits);
        Buckets { low: range.low, shift, last: (1 << bits) - 1 }
    }

    fn index(&self, head: u64) -> usize {
        let index = head.saturating_sub(self.low) >> self.shift;
        usize::try_from(index).map_or(self.last, |index| index.min(self.last))
    }
}

/// Sorts the changes of a range and keeps the last of each key. Equal keys have equal heads, so no other
/// range holds one of them.
fn sorted_within(range: HeadRange, chunks: &[Vec<Spot>], records: &[Vec<u8>]) -> Vec<Spot> {
    // Every step is stable: of several changes to one key, the last commit's stays last.
    let mut run = in_buckets(range, chunks);
    // Sort by heads first: comparing numbers does not read the records.
    for alike in run.chunk_by_mut(|a, b| a.head == b.head).filter(|alike| alike.len() > 1) {
        alike.sort_by(|a, b| key_of(records, a).cmp(key_of(records, b)));
    }
    // Of equal keys keep the last, at the index of the first.
    run.dedup_by(|next, kept| {
        let same = next.head == kept.head && key_of(records, next) == key_of(records, kept);
        if same {
            *kept = *next;
        }
        same
    });
    run
}

/// The changes of a range in order of head: counted, put into buckets, and sorted there. Heads that differ
/// early, as most do, are moved once. If many share a bucket, sorting does the work.
fn in_buckets(range: HeadRange, chunks: &[Vec<Spot>]) -> Vec<Spot> {
    let within = || chunks.iter().flatten().filter(|spot| range.from <= spot.head && spot.head <= range.to);
    let buckets = Buckets::of(range, chunks.iter().map(Vec::len).sum());
    let mut ends = vec![0usize; buckets.last + 1];
    within().for_each(|spot| ends[buckets.index(spot.head)] += 1);
    let mut count = 0;
    for end in &mut ends {
        // Holds where the bucket begins. Filling the bucket advances it to the end.
        count += std::mem::replace(end, count);
    }
    let mut run = vec![Spot::NONE; count];
    for spot in within() {
        let end = &mut ends[buckets.index(spot.head)];
        run[*end] = *spot;
        *end += 1;
    }
    invariant!(ends.last() == Some(&count), "the last bucket ends at {:?}, want {count}", ends.last());
    let mut from = 0;
    for to in ends {
        if to - from > 1 {
            run[from..to].sort_by_key(|spot| spot.head);
        }
        from = to;
    }
    run
}

fn key_of<'a>(records: &'a [Vec<u8>], spot: &Spot) -> &'a [u8] {
    &records[spot.record as usize][spot.key_at as usize..][..usize::from(spot.key_bytes)]
}

impl SortedChanges {
    /// The changes of a tree.
    #[must_use]
    pub(crate) fn of_tree(&self, tree: TreeId) -> ChangesOf<'_> {
        let found = self.trees.binary_search_by_key(&tree, |(id, _)| *id);
        let spots = found.map_or(&[][..], |index| &self.trees[index].1);
        ChangesOf { records: &self.records, spots }
    }

    /// The ids of the changed trees, in order.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.trees.iter().map(|(id, _)| *id)
    }
}

impl<'a> ChangesOf<'a> {
    /// How many there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.spots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    /// The change at an index.
    #[must_use]
    pub(crate) fn get(&self, index: usize) -> Change<'a> {
        let spot = &self.spots[index];
        let record = &self.records[spot.record as usize];
        let value_at = spot.key_at as usize + usize::from(spot.key_bytes);
        let bytes = &record[value_at..value_at + spot.value_bytes as usize];
        let value =
            (spot.kind != Kind::Delete).then_some(StoredValue { big: spot.kind == Kind::PutBig, bytes });
        Change { key: key_of(self.records, spot), value }
    }

    /// The change to a key.
    #[must_use]
    pub(crate) fn find(&self, key: &[u8]) -> Option<Change<'a>> {
        let index = self.lower_bound(key);
        (index < self.len()).then(|| self.get(index)).filter(|change| change.key == key)
    }

    /// The number of changes to keys before this one.
    #[must_use]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.spots.partition_point(|spot| key_of(self.records, spot) < key)
    }

    /// The indexes of the changes to keys of a range, the second excluded.
    #[must_use]
    pub(crate) fn bounds(&self, range: &KeyRange) -> (usize, usize) {
        let from = self.lower_bound(&range.from);
        let to = range.to.as_ref().map_or(self.len(), |to| self.lower_bound(to));
        (from, to.max(from))
    }

    /// The changes to keys of a range.
    #[must_use]
    pub(crate) fn within(&self, range: &KeyRange) -> ChangesOf<'a> {
        let (from, to) = self.bounds(range);
        ChangesOf { spots: &self.spots[from..to], ..*self }
    }

    /// The changes in parts of at most `count_max`.
    pub(crate) fn parts(self, count_max: usize) -> impl Iterator<Item = ChangesOf<'a>> {
        self.spots.chunks(count_max).map(move |spots| ChangesOf { spots, ..self })
    }

    /// As a list, the form that trees take.
    #[must_use]
    pub(crate) fn to_list(self) -> Vec<Change<'a>> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }
}
