//! The tree against a `BTreeMap`, with tiny nodes that pass every boundary (I1: an old root never changes).
#![allow(clippy::unwrap_used)]

mod alarms;
mod bounds;
mod compacted;
mod patches;
mod sizes;
mod unread;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk, MemDisk};

use super::node::Node;
use super::*;
use crate::data_file::{DataFile, Page, PageKind, PagePointer};
use crate::ids::{CommitSeq, DatabaseId};
use crate::options::Geometry;
use crate::page_cache::Pages;
use crate::threads::side_by_side;

const TINY: Geometry = Geometry {
    block_bytes: 512,
    leaf_bytes_max: 400,
    inner_bytes_max: 512,
    big_value_bytes: 300,
    big_value_extent_bytes: 400,
    segment_bytes_min: 4096,
    segment_bytes_max: 4096,
};

pub(super) fn pages(disk: &MemDisk) -> Pages {
    let file = disk.open(Path::new("/data"), Access::CREATE).unwrap();
    Pages::new(DataFile::new(file, Path::new("/data"), DatabaseId(7), TINY.block_bytes), 4 << 20)
}

/// Writes pages one after the other and keeps the nodes written.
struct Sequential<'a> {
    pages: &'a Pages,
    geometry: Geometry,
    next_block: u64,
    nodes: Vec<Arc<Node>>,
}

impl<'a> Sequential<'a> {
    fn new(pages: &'a Pages, next_block: u64) -> Sequential<'a> {
        Sequential { pages, geometry: TINY, next_block, nodes: Vec::new() }
    }
}

impl NodeSink for Sequential<'_> {
    fn inner_bytes_max(&self) -> usize {
        self.geometry.inner_bytes_max
    }

    fn put(
        &mut self,
        node: &Arc<Node>,
        page: &Page,
        reduction: Reduction,
    ) -> crate::error::Result<NodePointer> {
        let data = self.pages.data();
        let pointer = data.locate(page, self.next_block);
        self.next_block += u64::from(pointer.block_count);
        data.file().write_at(page.bytes(), data.offset(pointer.block)).unwrap();
        let pointer = NodePointer::whole(pointer, reduction);
        assert!(node.set_pointer(pointer.clone()).is_none(), "nothing was deferred");
        self.nodes.push(Arc::clone(node));
        Ok(pointer)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn key(&mut self) -> Vec<u8> {
        let length = if self.below(30) == 0 { self.below(200) } else { self.below(12) };
        (0..length).map(|_| b'a' + u8::try_from(self.below(3)).unwrap()).collect()
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

type Edits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn listed(edits: &Edits) -> Vec<Change<'_>> {
    let stored = |bytes| StoredValue { big: false, bytes };
    edits.iter().map(|(key, value)| Change { key, value: value.as_deref().map(stored) }).collect()
}

fn apply(pages: &Pages, root: Option<&Slot>, changes: &Edits) -> Option<Slot> {
    let list = listed(changes);
    Apply::new(pages, &TINY, CommitSeq(1), Loading::Allowed).with_patches(true).tree(root, &list).unwrap()
}

fn rows(
    pages: &Pages,
    root: Option<&Slot>,
    range: KeyRange,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = Cursor::new(root, range, direction);
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next(pages).unwrap() {
        rows.push((key.to_vec(), value.bytes.to_vec()));
    }
    rows
}

fn check(pages: &Pages, root: Option<&Slot>, model: &Model, random: &mut Random) {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(rows(pages, root, KeyRange::all(), Direction::Forward), expected);
    for _ in 0..10 {
        let (from, to) = (random.key(), random.key());
        let range = KeyRange::between(from.clone(), to.clone());
        let within: Vec<_> =
            expected.iter().filter(|(k, _)| range.contains(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(rows(pages, root, range.clone(), Direction::Forward), within);
        let mut back = rows(pages, root, range.clone(), Direction::Reverse);
        back.reverse();
        assert_eq!(back, within);
        assert_eq!(count(pages, root, &range).unwrap(), within.len() as u64);
        let sum = |(_, v): &(Vec<u8>, Vec<u8>)| i128::from(i64::from_le_bytes(v[..8].try_into().unwrap()));
        let reduced = reduce(pages, root, &Builtin::Sum, &range).unwrap();
        let value = reduced.value.map(|bytes| i128::from_le_bytes(bytes.try_into().unwrap()));
        assert_eq!(value, within.iter().map(sum).reduce(|a, b| a + b));
        assert_eq!(reduced.count, within.len() as u64);
        let found = find(pages, root, &from, |value| value.bytes.to_vec()).unwrap();
        assert_eq!(found.as_ref(), model.get(&from));
        let index = random.below(model.len() as u64 + 1);
        let entry = nth(pages, root, index, |key, value| (key, value.bytes.to_vec())).unwrap();
        assert_eq!(entry.as_ref(), expected.get(usize::try_from(index).unwrap()));
    }
}

fn random_changes(
    random: &mut Random,
    model: &mut Model,
    deletes: u64,
) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut changes = BTreeMap::new();
    for _ in 0..1 + random.below(30) {
        let key = random.key();
        if random.below(10) < deletes {
            model.remove(&key);
            changes.insert(key, None);
        } else {
            let mut value = vec![0; 8 + usize::try_from(random.below(40)).unwrap()];
            value[..2].copy_from_slice(&u16::try_from(random.below(1000)).unwrap().to_le_bytes());
            model.insert(key.clone(), value.clone());
            changes.insert(key, Some(value));
        }
    }
    changes
}

#[test]
fn a_tree_equals_a_map_through_growth_shrinkage_writing_and_eviction() {
    for seed in 1..=8 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let disk = MemDisk::new(seed);
        let pages = pages(&disk);
        let mut sink = Sequential::new(&pages, 0);
        let (mut root, mut model) = (None, Model::new());
        let mut kept: Option<(Option<Slot>, Model)> = None;
        let mut patched = 0;
        for round in 0..150u64 {
            let deletes = if round % 50 < 30 { 2 } else { 9 };
            let changes = random_changes(&mut random, &mut model, deletes);
            root = apply(&pages, root.as_ref(), &changes);
            assert_eq!(root.as_ref().map_or(0, |slot| slot.count), model.len() as u64);
            if let Some(slot) = root.as_ref().filter(|_| random.below(4) == 0) {
                write_tree(&pages, slot, Some(&Builtin::Sum), &mut sink).unwrap();
                // One pass to clear the marks of recent use, and one for each level.
                let level = slot.peek().unwrap().level();
                for _ in 0..level + 2 {
                    evict((&pages, Some(&Builtin::Sum)), slot, &[], &|| false);
                }
                let keeps_patches = pages.meter().patch_bytes() > 0;
                assert!(slot.peek().is_none() || keeps_patches, "a written tree leaves memory whole");
            }
            // Patches leave memory before they are written, with their reductions.
            if let Some(slot) = root.as_ref().filter(|_| random.below(4) == 0) {
                (0..2).for_each(|_| drop(evict((&pages, Some(&Builtin::Sum)), slot, &[], &|| false)));
            }
            patched += u64::from(pages.meter().patch_bytes() > 0);
            if round % 10 == 0 {
                check(&pages, root.as_ref(), &model, &mut random);
                if let Some((old, old_model)) = &kept {
                    check(&pages, old.as_ref(), old_model, &mut random);
                }
                kept = Some((root.clone(), model.clone()));
            }
        }
        assert!(patched > 20, "patches in {patched} of 150 rounds");
    }
}

#[test]
fn deleting_everything_leaves_no_node() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let put = (0..500u16).map(|n| (n.to_be_bytes().to_vec(), Some(vec![0; 20]))).collect();
    let root = apply(&pages, None, &put);
    let delete = put.keys().map(|key| (key.clone(), None)).collect();
    assert!(apply(&pages, root.as_ref(), &delete).is_none());
    drop(root);
    assert_eq!(pages.meter().resident_bytes(), 0, "every node gives its memory back");
}

#[test]
fn a_reduction_touches_at_most_four_nodes_a_level() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let put = (0..20_000u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &put).unwrap();
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &root, Some(&Builtin::Sum), &mut sink).unwrap();
    let height = u64::from(root.peek().unwrap().level()) + 1;
    for (from, to) in [(1u32, 19_999u32), (7, 8), (100, 10_000), (9_999, 10_001)] {
        let range = KeyRange::between(from.to_be_bytes(), to.to_be_bytes());
        let reduced = reduce(&pages, Some(&root), &Builtin::Sum, &range).unwrap();
        assert!(reduced.nodes_touched <= 4 * height, "{} nodes, height {height}", reduced.nodes_touched);
    }
}

#[test]
fn changes_stop_where_a_node_is_not_in_memory_and_change_nothing() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let put = (0..2000u16).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &put).unwrap();
    write_tree(&pages, &root, None, &mut Sequential::new(&pages, 0)).unwrap();
    evict((&pages, None), &root, &[], &|| false);
    evict((&pages, None), &root, &[], &|| false);
    let key = 700u16.to_be_bytes();
    let change = [Change { key: &key, value: None }];
    let mut resident = Apply::new(&pages, &TINY, CommitSeq(2), Loading::ResidentOnly);
    assert!(matches!(resident.tree(Some(&root), &change), Err(ApplyError::Missing)));
    Apply::new(&pages, &TINY, CommitSeq(1), Loading::Allowed).warm(&root, &change).unwrap();
    assert!(resident.tree(Some(&root), &change).is_ok());
}

#[test]
fn a_reducer_that_panics_fails_the_call_and_nothing_else() {
    struct Panics;
    impl Reducer for Panics {
        fn one(&self, _: &[u8], _: &[u8], _: &mut Vec<u8>) -> Result<(), String> {
            panic!("from user code")
        }
        fn join(&self, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
    }
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let put = (0..100u16).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &put).unwrap();
    let error = reduce(&pages, Some(&root), &Panics, &KeyRange::all()).unwrap_err();
    assert_eq!(error.code(), crate::error::Code::ReducerPanicked);
    assert_eq!(count(&pages, Some(&root), &KeyRange::all()).unwrap(), 100);
}

/// Many changes at once, shared among threads, over a root that is on disk.
///
/// The entries and reductions are those of single changes. Every replaced page of the old root is reported
/// once, and nothing of the old root stays in memory.
#[test]
fn changes_in_bulk_make_the_same_tree() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let key = |n: u16| n.wrapping_mul(0x9E37).to_be_bytes().to_vec();
    let first = (0..3000).map(|n| (key(n), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &first).unwrap();
    let mut sink = Sequential::new(&pages, 0);
    let pointer = write_tree(&pages, &root, Some(&Builtin::Sum), &mut sink).unwrap();
    let root = Slot::on_disk(pages.meter(), root.count, pointer);
    let second: BTreeMap<_, _> = (1000..5000).map(|n| (key(n), (n % 3 > 0).then(|| vec![2; 16]))).collect();
    let changes = listed(&second);
    let bulk = |threads| {
        let apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::PassThrough);
        let mut apply = apply.reduced_by(Some(&Builtin::Sum)).in_bulk(threads);
        let bulk = apply.tree(Some(&root), &changes).unwrap();
        assert!(root.peek().is_none() && apply.replaced.is_empty(), "nothing of the old root was kept");
        let mut deferred: Vec<u64> = apply.deferred.iter().map(|page| page.pointer.block).collect();
        deferred.sort_unstable();
        assert!(deferred.is_sorted_by(|a, b| a < b) && deferred.len() > 100, "each page once");
        (bulk, deferred)
    };
    let plain = self::apply(&pages, Some(&root), &second);
    let expected = rows(&pages, plain.as_ref(), KeyRange::all(), Direction::Forward);
    root.evict(&pages, None);
    let (alone, retired_alone) = bulk(1);
    let (shared, retired_shared) = bulk(4);
    assert_eq!(retired_alone, retired_shared);
    for bulk in [alone, shared] {
        assert_eq!(rows(&pages, bulk.as_ref(), KeyRange::all(), Direction::Forward), expected);
        let sum = |root| reduce(&pages, root, &Builtin::Sum, &KeyRange::all()).unwrap().value;
        assert_eq!(sum(bulk.as_ref()), sum(plain.as_ref()));
    }
}

/// A commit of many changes, shared among threads, makes what one thread makes: the same entries and patches,
/// and each node is replaced once.
#[test]
fn changes_of_a_commit_that_threads_share_make_the_same_tree() {
    let disk = MemDisk::new(8);
    let pages = pages(&disk);
    let key = |n: u16| n.wrapping_mul(0x9E37).to_be_bytes().to_vec();
    let first = (0..9000).map(|n| (key(n), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &first).unwrap();
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &root, Some(&Builtin::Sum), &mut sink).unwrap();
    let some: Edits = (0..9000).step_by(40).map(|n| (key(n), Some(vec![3; 16]))).collect();
    let root = apply(&pages, Some(&root), &some).unwrap();
    let second: Edits = (0..10_000).step_by(8).map(|n| (key(n), (n % 3 > 0).then(|| vec![2; 16]))).collect();
    let changes = listed(&second);
    let commit = |threads| {
        let apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::ResidentOnly).with_patches(true);
        let mut apply = apply.reduced_by(Some(&Builtin::Sum)).shared_by(threads);
        let changed = apply.tree(Some(&root), &changes).unwrap().unwrap();
        let rows = rows(&pages, Some(&changed), KeyRange::all(), Direction::Forward);
        let sum = reduce(&pages, Some(&changed), &Builtin::Sum, &KeyRange::all()).unwrap().value;
        let mut replaced: Vec<_> = apply.replaced.iter().map(Arc::as_ptr).collect();
        replaced.sort_unstable();
        (rows, sum, replaced, apply.superseded.len())
    };
    let alone = commit(1);
    assert!(alone.2.len() > 50 && alone.3 > 100, "{} nodes and {} patches", alone.2.len(), alone.3);
    for threads in [2, 3, 4] {
        assert!(commit(threads) == alone, "{threads} threads");
    }
}

/// Also for Miri, which checks each access to memory (docs/testing.md).
#[test]
fn readers_look_at_nodes_that_others_evict() {
    let (row_count, reads) = if cfg!(miri) { (30, 12) } else { (200, 2000) };
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let key = |n: u16| n.wrapping_mul(0x9E37).to_be_bytes().to_vec();
    let first: BTreeMap<_, _> = (0..row_count).map(|n| (key(n), Some(n.to_be_bytes().repeat(8)))).collect();
    let root = apply(&pages, None, &first).unwrap();
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &root, Some(&Builtin::Sum), &mut sink).unwrap();
    drop(sink);
    side_by_side(&[0, 1, 2, 3], |role| {
        let mut from = 60 * role % row_count;
        // Until some nodes were read again after an eviction by another thread.
        while pages.meter().pages_read() < reads {
            if role == 3 {
                evict((&pages, None), &root, &[], &|| false);
                std::thread::yield_now();
                continue;
            }
            let n = from;
            from = (from + 7) % row_count;
            let found = find(&pages, Some(&root), &key(n), |value| value.bytes.to_vec()).unwrap();
            assert_eq!(found, Some(n.to_be_bytes().repeat(8)));
            if n.is_multiple_of(5) {
                let range = KeyRange { from: key(n), to: None };
                let rows = rows(&pages, Some(&root), range.clone(), Direction::Forward);
                assert_eq!(count(&pages, Some(&root), &range).unwrap(), rows.len() as u64);
            }
        }
    });
    // An evicted node is no longer charged as resident, though a reader may still use it. One thread first
    // reads all nodes: a node that a reader loads below an evicted one leaves memory with that one.
    pages.meter().free_evicted();
    assert_eq!(rows(&pages, Some(&root), KeyRange::all(), Direction::Forward).len(), usize::from(row_count));
    let resident_bytes = pages.meter().resident_bytes();
    let pin = pages.meter().pin();
    while root.is_resident() {
        evict((&pages, None), &root, &[], &|| false);
    }
    let left = pages.meter().resident_bytes();
    assert!(left < 300 && left < resident_bytes / 8, "{left} of {resident_bytes} bytes");
    let waiting = pages.meter().waiting_bytes();
    assert!(waiting > 0, "and counted as what waits until the reader has left");
    drop(pin);
    pages.meter().free_evicted();
    assert_eq!((pages.meter().resident_bytes(), pages.meter().waiting_bytes()), (left, 0));
}

/// A reducer or a callback for a value may be slow: nodes evicted meanwhile must not accumulate.
#[test]
fn nothing_evicted_waits_for_code_of_the_user() {
    struct Watches<'a> {
        other: &'a Slot,
        pages: &'a Pages,
    }
    impl Watches<'_> {
        fn evicted_is_freed(&self) {
            if let Some(node) = self.other.peek() {
                let node = Arc::downgrade(&{ node });
                self.other.evict(self.pages, None);
                self.pages.meter().free_evicted();
                assert!(node.upgrade().is_none(), "it waits");
            }
        }
    }
    impl Reducer for Watches<'_> {
        fn one(&self, _: &[u8], _: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
            self.evicted_is_freed();
            out.push(1);
            Ok(())
        }
        fn join(&self, left: &[u8], _: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(left);
        }
    }
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let rows: BTreeMap<_, _> = (0..200u8).map(|n| (vec![n], Some(vec![n; 16]))).collect();
    let (root, other) = (apply(&pages, None, &rows).unwrap(), apply(&pages, None, &rows).unwrap());
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &other, None, &mut sink).unwrap();
    drop(sink);
    let watches = Watches { other: &other, pages: &pages };
    reduce(&pages, Some(&root), &watches, &KeyRange::all()).unwrap();
    assert!(!other.is_resident(), "the reducer was asked");
    other.load(&pages, false).unwrap();
    find(&pages, Some(&root), &[7], |_| watches.evicted_is_freed()).unwrap();
    assert!(!other.is_resident(), "the value was shown");
}

/// Nodes of many chunks; the tiny nodes elsewhere have few.
#[test]
fn large_inner_nodes_equal_a_map() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let geometry = Geometry { inner_bytes_max: 16 * 1024, leaf_bytes_max: 200, ..TINY };
    let mut random = Random(5);
    let (mut root, mut model) = (None, Model::new());
    let mut widest = 0;
    for round in 0..150 {
        let change_count = 1 + random.below(if round % 10 == 0 { 120 } else { 6 });
        let change = |random: &mut Random| {
            let key = random.below(4000).to_be_bytes().to_vec();
            (key, (random.below(5) > 0).then(|| vec![u8::try_from(round).unwrap(); 20]))
        };
        let changes: BTreeMap<_, _> = (0..change_count).map(|_| change(&mut random)).collect();
        let list = listed(&changes);
        let mut apply = Apply::new(&pages, &geometry, CommitSeq(round + 1), Loading::Allowed);
        root = apply.tree(root.as_ref(), &list).unwrap();
        for (key, value) in changes {
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        let Some(slot) = &root else { continue };
        if let Body::Inner(inner) = slot.peek().unwrap().body() {
            widest = widest.max(inner.len());
            assert!(inner.slots().enumerate().all(|(index, slot)| inner.slot(index).same_as(slot)));
            assert_eq!(inner.slots().map(|slot| slot.count).sum::<u64>(), slot.count);
        }
        let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(rows(&pages, root.as_ref(), KeyRange::all(), Direction::Forward), expected);
        for _ in 0..5 {
            let range = KeyRange::between(random.below(4000).to_be_bytes(), random.below(4000).to_be_bytes());
            let within = expected.iter().filter(|(key, _)| range.contains(key)).count() as u64;
            assert_eq!(count(&pages, root.as_ref(), &range).unwrap(), within);
            assert_eq!(reduce(&pages, root.as_ref(), &Builtin::Sum, &range).unwrap().count, within);
        }
    }
    assert!(widest > 100, "{widest} children");
}

/// A parent must not rely on the lengths of the reductions it was built with.
#[test]
fn inner_nodes_stay_small_while_reductions_grow() {
    struct Grows;
    impl Reducer for Grows {
        fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
            out.extend_from_slice(&vec![1; usize::from(value[0])]);
            Ok(())
        }
        fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(if left.len() > right.len() { left } else { right });
        }
    }
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let geometry = Geometry { inner_bytes_max: 2048, ..TINY };
    let (mut root, mut block) = (None, 0);
    let mut largest = 0;
    for round in 0..40u8 {
        let keys: Vec<[u8; 2]> = (0..60u16).map(|n| (n * 50 + u16::from(round)).to_be_bytes()).collect();
        let bytes = vec![1 + round * 5; 20];
        let value = StoredValue { big: false, bytes: &bytes };
        let changes: Vec<Change<'_>> = keys.iter().map(|key| Change { key, value: Some(value) }).collect();
        let seq = CommitSeq(u64::from(round) + 1);
        let mut apply = Apply::new(&pages, &geometry, seq, Loading::Allowed).reduced_by(Some(&Grows));
        root = apply.tree(root.as_ref(), &changes).unwrap();
        let mut sink = Sequential::new(&pages, block);
        write_tree(&pages, root.as_ref().unwrap(), Some(&Grows), &mut sink).unwrap();
        block = sink.next_block;
        let inner = sink.nodes.iter().filter(|node| node.level() > 0);
        let bytes = inner.map(|node| u64::from(node.pointer().unwrap().page.raw_bytes)).max();
        largest = largest.max(bytes.unwrap_or_default());
    }
    assert!(largest < 2 * 2048, "an inner node of {largest} bytes");
}

#[test]
#[should_panic(expected = "a pin of another database")]
fn a_pin_keeps_nodes_of_its_own_database_only() {
    let (disk, other) = (MemDisk::new(1), MemDisk::new(2));
    let (pages, others) = (pages(&disk), self::pages(&other));
    let root = apply(&pages, None, &[(vec![1], Some(vec![1]))].into()).unwrap();
    let pin = others.meter().pin();
    root.peek_in(&pin);
}

#[test]
fn inner_nodes_leave_room_for_long_reductions() {
    struct Wide;
    impl Reducer for Wide {
        fn one(&self, _: &[u8], _: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
            out.extend_from_slice(&[7; 100]);
            Ok(())
        }
        fn join(&self, left: &[u8], _: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(left);
        }
    }
    let geometry = Geometry { inner_bytes_max: 2048, ..TINY };
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let mut root = None;
    for batch in 0..20u16 {
        let keys: Vec<[u8; 2]> = (0..200).map(|n| (batch * 200 + n).to_be_bytes()).collect();
        let value = StoredValue { big: false, bytes: &[1; 20] };
        let changes: Vec<Change<'_>> = keys.iter().map(|key| Change { key, value: Some(value) }).collect();
        let mut apply = Apply::new(&pages, &geometry, CommitSeq(1), Loading::Allowed).reduced_by(Some(&Wide));
        root = apply.tree(root.as_ref(), &changes).unwrap();
    }
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &root.unwrap(), Some(&Wide), &mut sink).unwrap();
    let inner: Vec<u32> = sink
        .nodes
        .iter()
        .map(|node| node.pointer().unwrap().page)
        .filter(PagePointer::is_inner)
        .map(|pointer| pointer.raw_bytes)
        .collect();
    let longest = inner.iter().max().copied().unwrap_or_default();
    assert!(inner.len() > 10 && longest < 2200, "{} inner nodes of at most {longest} bytes", inner.len());
}

/// A program without the reducer wrote part of the tree. A program with it must find every such node from the
/// root, and no others.
#[test]
fn nodes_written_without_their_reducer_are_found_and_mended() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let write = |root: &Slot, reducer: Option<&dyn Reducer>, next_block: &mut u64| {
        let mut sink = Sequential::new(&pages, *next_block);
        write_tree(&pages, root, reducer, &mut sink).unwrap();
        *next_block = sink.next_block;
        sink.nodes
    };
    let put = |root: Option<&Slot>, numbers: &mut dyn Iterator<Item = u16>, reducer: Option<&dyn Reducer>| {
        let keys: Vec<[u8; 2]> = numbers.map(u16::to_be_bytes).collect();
        let value = StoredValue { big: false, bytes: &[1; 16] };
        let changes: Vec<Change<'_>> = keys.iter().map(|key| Change { key, value: Some(value) }).collect();
        let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::Allowed).reduced_by(reducer);
        apply.tree(root, &changes).unwrap().unwrap()
    };
    let sum: &dyn Reducer = &Builtin::Sum;
    let mut next_block = 0;
    let whole = put(None, &mut (0..4000), Some(sum));
    write(&whole, Some(sum), &mut next_block);
    assert!(stale_keys(&pages, &whole, &[], 100).unwrap().is_empty());
    // Three leaves, and all nodes above them.
    let root = put(Some(&whole), &mut [5, 2000, 3990].into_iter(), None);
    assert!(stale_keys(&pages, &root, &[], 100).unwrap().is_empty(), "what is not on disk is not stale");
    let written = write(&root, None, &mut next_block);
    assert!(written.iter().all(|node| node.pointer().unwrap().reduction.bytes().is_none()));
    // Half of them with the reducer again: the reductions above the other half are still unknown.
    let half = put(Some(&root), &mut [5].into_iter(), Some(sum));
    write(&half, Some(sum), &mut next_block);
    assert!(half.pointer().unwrap().reduction.bytes().is_none(), "a root above stale nodes is stale");
    let keys = stale_keys(&pages, &half, &[], 100).unwrap();
    assert!(keys.len() == 2 && keys.is_sorted(), "{keys:?}");
    assert_eq!(stale_keys(&pages, &half, &[], 1).unwrap(), keys[..1]);
    assert_eq!(stale_keys(&pages, &half, &[&keys[0][..], &[0]].concat(), 9).unwrap().last(), keys.last());
    let mut numbers = keys.iter().map(|key| u16::from_be_bytes(key[..].try_into().unwrap()));
    let mended = put(Some(&half), &mut numbers, Some(sum));
    write(&mended, Some(sum), &mut next_block);
    assert!(stale_keys(&pages, &mended, &[], 100).unwrap().is_empty());
    let known = mended.pointer().unwrap().reduction;
    assert_eq!(known.bytes(), whole.pointer().unwrap().reduction.bytes());
}

/// D4: bytes of nodes are never trusted to be well formed, even with a valid checksum.
#[test]
fn hostile_pages_are_refused_or_read_without_a_panic() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let put = (0..300u16).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &put).unwrap();
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &root, None, &mut sink).unwrap();
    let mut random = Random(3);
    for node in sink.nodes.iter().filter(|node| node.level() < 2) {
        let pointer = node.pointer().unwrap();
        let kind = if pointer.page.is_inner() { PageKind::Inner } else { PageKind::Leaf };
        let page = pages.data().read(&pointer.page, kind).unwrap();
        for _ in 0..200 {
            let mut payload = page.payload().to_vec();
            let at = usize::try_from(random.below(payload.len() as u64)).unwrap();
            match random.below(4) {
                0 => payload[at] ^= 1 << random.below(8),
                // Lengths and counts at their extremes.
                1 => payload.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
                2 => payload.iter_mut().skip(at & !1).take(2).for_each(|byte| *byte = 0xff),
                _ => payload.iter_mut().skip(at & !1).take(2).for_each(|byte| *byte = 0),
            }
            payload.truncate(payload.len() - usize::try_from(random.below(4)).unwrap());
            let hostile = Page::build(kind, 0, payload.len(), |out| out.extend_from_slice(&payload));
            let pointer = pages.data().locate(&hostile, 900);
            let bytes = hostile.bytes();
            pages.data().file().write_at(bytes, pages.data().offset(900)).unwrap();
            read_all(&pages, pointer);
            change_some(&pages, pointer, &mut random);
        }
    }
}

/// A page accepted when read takes changes, or refuses them: no panic, no overflow.
fn change_some(pages: &Pages, pointer: PagePointer, random: &mut Random) {
    let Ok(root) = Slot::of_unknown_count(pages, pointer) else { return };
    let edits: Edits = (0..40)
        .map(|_| {
            let key = u16::try_from(random.below(400)).unwrap().to_be_bytes().to_vec();
            (key, (random.below(3) > 0).then(|| vec![2; usize::try_from(random.below(60)).unwrap()]))
        })
        .collect();
    let list = listed(&edits);
    let changed = Apply::new(pages, &TINY, CommitSeq(2), Loading::Allowed).tree(Some(&root), &list);
    let Ok(Some(changed)) = changed else { return };
    let mut sink = Sequential::new(pages, 2000);
    if write_tree(pages, &changed, None, &mut sink).is_ok() {
        let mut cursor = Cursor::new(Some(&changed), KeyRange::all(), Direction::Forward);
        while let Ok(Some(_)) = cursor.next(pages) {}
        drop(count(pages, Some(&changed), &KeyRange::between(vec![0, 50], vec![0, 90])));
    }
}

/// A chain of nodes of one height, each the only child of the next, would make a path as long as the file.
#[test]
fn a_child_that_is_no_lower_than_its_parent_is_refused() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let put = (0..300u16).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1; 16]))).collect();
    let root = apply(&pages, None, &put).unwrap();
    let mut sink = Sequential::new(&pages, 0);
    write_tree(&pages, &root, None, &mut sink).unwrap();
    let node = root.load(&pages, false).unwrap();
    let above = |level: u8, child: &PagePointer| {
        let page = Page::build(PageKind::Inner, 0, 8 + 2 + 36 + 8 + 2, |out| {
            out.extend_from_slice(&[1, 0, level, 0, 0, 0, 0, 0, 0, 0]);
            child.encode(out);
            out.extend_from_slice(&node.count().to_le_bytes());
            out.extend_from_slice(&[0xff; 2]);
        });
        let pointer = pages.data().locate(&page, 900 + u64::from(level));
        pages.data().file().write_at(page.bytes(), pages.data().offset(pointer.block)).unwrap();
        pointer
    };
    let read = |pointer: PagePointer| {
        let slot = Slot::of_unknown_count(&pages, pointer).unwrap();
        let mut cursor = Cursor::new(Some(&slot), KeyRange::all(), Direction::Forward);
        let mut rows = 0;
        while cursor.next(&pages)?.is_some() {
            rows += 1;
        }
        Ok::<_, crate::error::Error>(rows)
    };
    let own = node.pointer().unwrap().page;
    assert!(node.level() > 1);
    assert_eq!(read(above(node.level() + 1, &own)).unwrap(), 300);
    for level in 2..=node.level() {
        assert!(read(above(level, &own)).unwrap_err().is_corruption(), "height {level}");
    }
    let leaf = sink.nodes.iter().find(|node| node.level() == 0).unwrap().pointer().unwrap().page;
    assert!(Slot::of_unknown_count(&pages, above(2, &leaf)).is_err(), "a leaf is a child of height 1 only");
}

/// A reference with a valid checksum may hold anything. Its extents must lie in the file, not overlap, and
/// add up to its length.
#[test]
fn hostile_references_to_big_values_are_refused() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let data = pages.data();
    let mut next_block = 100;
    let mut put = |page: &Page| {
        let pointer = data.locate(page, next_block);
        data.file().write_at(page.bytes(), data.offset(next_block)).unwrap();
        next_block += u64::from(pointer.block_count);
        Ok(pointer)
    };
    let whole = BigRef::write(&mut &[5; 2000][..], 400, &mut put).unwrap();
    let extents = whole.extents(&pages).unwrap();
    assert_eq!(BigRef::decode(&whole.encode()).unwrap().read(&pages).unwrap(), [5; 2000]);
    let mut listed = |extents: &[PagePointer], len: u64| {
        let list = Page::build(PageKind::ValueList, 0, extents.len() * 36, |out| {
            extents.iter().for_each(|extent| extent.encode(out));
        });
        BigRef { len, list: true, pointer: put(&list).unwrap(), one: None }
    };
    let beyond = PagePointer { block: 1 << 40, ..extents[0] };
    let huge = PagePointer { raw_bytes: u32::MAX, block_count: 1 << 23, ..extents[0] };
    let hostile = [
        BigRef { len: 2001, ..whole.clone() },
        BigRef { len: u64::MAX, ..whole.clone() },
        BigRef { len: 400, list: false, pointer: beyond, one: None },
        BigRef { len: u64::from(u32::MAX) - 48, list: false, pointer: huge, one: None },
        BigRef { list: false, ..whole.clone() },
        listed(&vec![extents[0]; 1000], 400_000),
        listed(&[extents[0], extents[1], extents[0]], 1200),
        listed(&[extents[0], beyond], 800),
        listed(&[huge], u64::from(u32::MAX) - 48),
    ];
    for value in hostile {
        assert!(value.pages(&pages).unwrap_err().is_corruption(), "{value:?}");
        assert!(value.read(&pages).unwrap_err().is_corruption(), "{value:?}");
    }
    let mut reduced = whole.encode();
    let at = reduced.len() - 2;
    reduced[at..].copy_from_slice(&5000u16.to_le_bytes());
    reduced.extend_from_slice(&[0; 5000]);
    assert!(BigRef::decode(&reduced).is_err(), "a reduction that is too long");
    assert!(BigRef::decode(&[&whole.encode()[..], &[1]].concat()).is_err(), "bytes left over");
}

fn read_all(pages: &Pages, pointer: PagePointer) {
    let pointer = NodePointer::whole(pointer, Reduction::UNKNOWN);
    let Ok(node) = Node::read(pages, &pointer, true) else { return };
    match node.body() {
        Body::Leaf(leaf) => {
            for index in 0..leaf.len() {
                let (entry, value) = (leaf.entry(index).key(), leaf.value(index));
                assert!(entry.len() + value.bytes.len() <= leaf.page().unwrap().payload().len());
                assert!(leaf.find(&entry).unwrap_or_else(|at| at) <= leaf.len());
            }
        }
        Body::Inner(inner) => assert!(inner.separators().child_of(b"key") < inner.len()),
    }
}
