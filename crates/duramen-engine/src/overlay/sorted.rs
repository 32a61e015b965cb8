//! Changes of many log records in order of tree and key, of several to one key the last. Pure: bytes in, order out.
//!
//! The records stay as they were read; a change is a note of where it lies. Most logs are runs of sorted transactions, so
//! a merge sort that finds runs, by the first bytes in which keys differ, touches the records themselves only to break ties.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

use crate::commit::RecordChange;
use crate::ids::TreeId;
use crate::threads::side_by_side;
use crate::tree::{Change, KeyRange, StoredValue};

/// Below so many changes of a tree, sorting them in several threads costs more than it saves.
const SHARED_CHANGES_MIN: usize = 16 * 1024;

/// Where a change lies: in which record, and where in it. The value follows the key.
#[derive(Debug, Clone, Copy)]
struct Spot {
    /// The first bytes of the key in which the keys of its tree differ, as a number.
    head: u64,
    record: u32,
    key_at: u32,
    value_bytes: u32,
    key_bytes: u16,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delete,
    Put,
    PutBig,
}

/// Changes of records as they come, still to be sorted.
#[derive(Debug, Default)]
pub struct Gathered {
    records: Vec<Vec<u8>>,
    trees: BTreeMap<TreeId, Gathering>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Gathering {
    spots: Vec<Spot>,
    /// Bytes with which all keys of this tree begin.
    shared: Vec<u8>,
}

/// The changes of one log, sorted.
#[derive(Debug, Default)]
pub struct SortedChanges {
    records: Vec<Vec<u8>>,
    trees: Vec<(TreeId, Vec<Spot>)>,
}

/// The changes of one tree, or of a part of it, in order of key.
#[derive(Debug, Clone, Copy)]
pub struct ChangesOf<'a> {
    records: &'a [Vec<u8>],
    spots: &'a [Spot],
}

impl Gathered {
    /// Notes a change of the record that [`Gathered::record`] gets next. `bytes` are that record's.
    /// `false` if it lies too far behind to be noted: nothing is then.
    #[must_use]
    pub fn change(&mut self, bytes: &[u8], change: &RecordChange<'_>) -> bool {
        let (kind, value_bytes) = match change.value {
            None => (Kind::Delete, 0),
            Some(value) => (if value.big { Kind::PutBig } else { Kind::Put }, value.bytes.len()),
        };
        let key_at = change.key.as_ptr().addr() - bytes.as_ptr().addr();
        let number = |count: usize| u32::try_from(count).ok();
        let (Some(record), Some(key_at), Some(value_bytes), Ok(key_bytes)) = (
            number(self.records.len()),
            number(key_at),
            number(value_bytes),
            u16::try_from(change.key.len()),
        ) else {
            return false;
        };
        let tree = self.trees.entry(change.tree).or_default();
        if tree.spots.is_empty() {
            tree.shared = change.key.to_vec();
        } else if !change.key.starts_with(&tree.shared) {
            let same = tree.shared.iter().zip(change.key).take_while(|(a, b)| a == b).count();
            tree.shared.truncate(same);
        }
        tree.spots.push(Spot { head: 0, record, key_at, value_bytes, key_bytes, kind });
        self.bytes += size_of::<Spot>();
        true
    }

    /// Takes the record whose changes were noted.
    pub fn record(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.capacity();
        self.records.push(bytes);
    }

    /// Bytes of the records taken, and of the notes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sorts them, without those of the trees in `without`.
    #[must_use]
    pub fn sorted(self, without: &HashSet<TreeId>, threads: usize) -> SortedChanges {
        let Gathered { records, trees, .. } = self;
        let kept = trees.into_iter().filter(|(id, _)| !without.contains(id));
        let trees = kept.map(|(id, tree)| (id, tree.sorted(&records, threads))).collect();
        SortedChanges { records, trees }
    }
}

impl Gathering {
    fn sorted(self, records: &[Vec<u8>], threads: usize) -> Vec<Spot> {
        let spots = &self.spots[..];
        let from = self.shared.len();
        let threads = if spots.len() < SHARED_CHANGES_MIN { 1 } else { threads.max(1) };
        let parts: Vec<&[Spot]> = spots.chunks(spots.len().div_ceil(threads).max(1)).collect();
        let mut runs = side_by_side(&parts, |part| {
            let mut run = part.to_vec();
            run.iter_mut().for_each(|spot| spot.head = head_of(&key_of(records, spot)[from..]));
            // Stable, so that of several changes to one key the last in the order of commits stays last.
            run.sort_by(|a, b| by_key(records, a, b));
            run
        });
        while runs.len() > 1 {
            let later = runs.pop().expect("more than one");
            let earlier = runs.pop().expect("more than one");
            runs.push(merged(records, &earlier, &later));
        }
        let mut sorted = runs.pop().unwrap_or_default();
        // Of equal keys the last stays, where the first of them was.
        sorted.dedup_by(|next, kept| {
            let same = by_key(records, next, kept).is_eq();
            if same {
                *kept = *next;
            }
            same
        });
        sorted
    }
}

fn merged(records: &[Vec<u8>], earlier: &[Spot], later: &[Spot]) -> Vec<Spot> {
    let mut all = Vec::with_capacity(earlier.len() + later.len());
    let (mut a, mut b) = (0, 0);
    while a < earlier.len() && b < later.len() {
        if by_key(records, &later[b], &earlier[a]).is_lt() {
            all.push(later[b]);
            b += 1;
        } else {
            all.push(earlier[a]);
            a += 1;
        }
    }
    all.extend_from_slice(&earlier[a..]);
    all.extend_from_slice(&later[b..]);
    all
}

fn by_key(records: &[Vec<u8>], a: &Spot, b: &Spot) -> Ordering {
    a.head.cmp(&b.head).then_with(|| key_of(records, a).cmp(key_of(records, b)))
}

/// Eight bytes as a number that orders as they do.
fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let count = key.len().min(8);
    head[..count].copy_from_slice(&key[..count]);
    u64::from_be_bytes(head)
}

fn key_of<'a>(records: &'a [Vec<u8>], spot: &Spot) -> &'a [u8] {
    &records[spot.record as usize][spot.key_at as usize..][..usize::from(spot.key_bytes)]
}

impl SortedChanges {
    /// The changes of a tree.
    #[must_use]
    pub fn of_tree(&self, tree: TreeId) -> ChangesOf<'_> {
        let found = self.trees.binary_search_by_key(&tree, |(id, _)| *id);
        let spots = found.map_or(&[][..], |index| &self.trees[index].1);
        ChangesOf { records: &self.records, spots }
    }

    /// The trees that are changed, in order.
    pub fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.trees.iter().map(|(id, _)| *id)
    }
}

impl<'a> ChangesOf<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    /// The change with `index` before it.
    #[must_use]
    pub fn get(&self, index: usize) -> Change<'a> {
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
    pub fn find(&self, key: &[u8]) -> Option<Change<'a>> {
        let index = self.lower_bound(key);
        (index < self.len()).then(|| self.get(index)).filter(|change| change.key == key)
    }

    /// How many changes are to keys before this one.
    #[must_use]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.spots.partition_point(|spot| key_of(self.records, spot) < key)
    }

    /// Which of them are to keys of a range: from the one, to before the other.
    #[must_use]
    pub fn bounds(&self, range: &KeyRange) -> (usize, usize) {
        let from = self.lower_bound(&range.from);
        let to = range.to.as_ref().map_or(self.len(), |to| self.lower_bound(to));
        (from, to.max(from))
    }

    /// Those to keys of a range.
    #[must_use]
    pub fn within(&self, range: &KeyRange) -> ChangesOf<'a> {
        let (from, to) = self.bounds(range);
        ChangesOf { spots: &self.spots[from..to], ..*self }
    }

    /// The same in parts of at most so many.
    pub fn parts(self, count_max: usize) -> impl Iterator<Item = ChangesOf<'a>> {
        self.spots.chunks(count_max).map(move |spots| ChangesOf { spots, ..self })
    }

    /// As trees take them.
    #[must_use]
    pub fn to_list(self) -> Vec<Change<'a>> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }
}
