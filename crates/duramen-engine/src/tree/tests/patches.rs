//! Patches as they are stored, and leaves in the places of others.

use super::super::stored_patch::StoredPatch;
use super::*;
use crate::page_cache::PatchCharge;
use crate::tree::{MergeSlice, MergedFrom, Merging};

const ROWS: u32 = 400;

fn key(row: u32) -> Vec<u8> {
    format!("key {row:04}").into_bytes()
}

/// A written tree, and the sink that wrote it.
fn written(pages: &Pages) -> (Slot, Sequential<'_>) {
    let rows: Edits = (0..ROWS).map(|row| (key(row), Some(vec![1; 16]))).collect();
    let root = apply(pages, None, &rows).unwrap();
    let mut sink = Sequential::new(pages, 0);
    write_tree(pages, &root, Some(&Builtin::Sum), &mut sink).unwrap();
    (root, sink)
}

fn with(pages: &Pages, root: &Slot, rows: impl Iterator<Item = u32>, byte: u8) -> Slot {
    let changes: Edits = rows.map(|row| (key(row), Some(vec![byte; 16]))).collect();
    apply(pages, Some(root), &changes).unwrap()
}

fn value_of(pages: &Pages, root: &Slot, row: u32) -> u8 {
    find(pages, Some(root), &key(row), |value| value.bytes[0]).unwrap().unwrap()
}

fn below(slot: &Slot) -> Vec<Slot> {
    let node = slot.peek().unwrap();
    match node.body() {
        Body::Inner(inner) => inner.slots().flat_map(below).collect(),
        Body::Leaf(_) => vec![slot.clone()],
    }
}

/// The slots of all leaves, in memory or not.
fn leaf_slots(slot: &Slot) -> Vec<Slot> {
    match slot.peek().as_deref().map(Node::body) {
        Some(Body::Inner(inner)) => inner.slots().flat_map(leaf_slots).collect(),
        _ => vec![slot.clone()],
    }
}

/// All patches of a tree, with the slots of their leaves.
fn patches(root: &Slot) -> Vec<(Slot, Arc<StoredPatch>)> {
    let of = |slot: Slot| slot.peek().and_then(|node| node.kept_patch()).map(|patch| (slot, patch));
    below(root).into_iter().filter_map(of).collect()
}

/// All leaves with patches, merged and written, but not in the tree.
fn merged_and_written(pages: &Pages, root: &Slot, sink: &mut Sequential<'_>) -> MergeSlice {
    let merging = Merging {
        pages,
        reducer: Some(&Builtin::Sum),
        birth: CommitSeq(1),
        merged_from: &mut MergedFrom { cold: Some(1), hot: (1, usize::MAX) },
        slice_bytes: usize::MAX,
    };
    let slice = merging.slice(root, &[]);
    for leaf in &slice.leaves {
        let Body::Leaf(body) = leaf.node.body() else { unreachable!() };
        sink.put(&leaf.node, body.page().unwrap(), leaf.reduction.clone()).unwrap();
    }
    slice
}

fn parse(pages: &Pages, bytes: &[u8]) -> Result<StoredPatch, &'static str> {
    StoredPatch::parse(bytes, |bytes| PatchCharge::new(pages.meter(), bytes))
}

/// A patch reads back over its own page alone, and any bytes are refused or read.
#[test]
fn a_patch_reads_back_and_hostile_ones_are_refused() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let (root, _sink) = written(&pages);
    let changed = with(&pages, &root, (0..ROWS).step_by(9), 2);
    let gone: Edits = [(key(1), None), (key(200), None)].into();
    let changed = apply(&pages, Some(&changed), &gone).unwrap();
    let found = patches(&changed);
    assert!(found.len() > 10, "{} patches", found.len());
    let mut random = Random(7);
    let (mut refused, mut unfit) = (0, 0);
    for (slot, patch) in &found {
        let node = slot.peek().unwrap();
        let page = node.page().unwrap();
        let read = |patch: StoredPatch| {
            let pointer = NodePointer { page, reduction: Reduction::UNKNOWN, patch: Some(Arc::new(patch)) };
            Node::read(&pages, &pointer, true)
        };
        let again = read(parse(&pages, patch.bytes()).unwrap()).unwrap();
        assert_eq!(again.count(), slot.count);
        for length in 0..patch.bytes().len() {
            assert!(parse(&pages, &patch.bytes()[..length]).is_err(), "{length} bytes of a patch");
        }
        for _ in 0..200 {
            let mut bytes = patch.bytes().to_vec();
            let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
            bytes[at] ^= 1 << random.below(8);
            match parse(&pages, &bytes) {
                Err(_) => refused += 1,
                Ok(hostile) => unfit += usize::from(read(hostile).is_err()),
            }
        }
    }
    assert!(refused > 200 && unfit > 200, "{refused} refused, {unfit} that do not fit their page");
    // A patch of another leaf does not fit.
    let (first, other) = (&found[0], &found[1]);
    let pointer = NodePointer {
        page: first.0.page().unwrap(),
        reduction: Reduction::UNKNOWN,
        patch: Some(Arc::clone(&other.1)),
    };
    assert!(Node::read(&pages, &pointer, true).is_err());
}

/// Of leaves that were built to take the places of others, those are given up whose places have changed.
#[test]
fn a_merged_leaf_takes_the_place_of_the_one_it_was_built_from_only() {
    let disk = MemDisk::new(2);
    let pages = pages(&disk);
    let (root, mut sink) = written(&pages);
    let patched = with(&pages, &root, (0..ROWS).step_by(9), 2);
    let slice = merged_and_written(&pages, &patched, &mut sink);
    assert_eq!((slice.leaves.len(), slice.next), (patches(&patched).len(), None));
    // Meanwhile some of these leaves change, and some changes take a leaf of their own.
    let changed = with(&pages, &patched, (0..ROWS / 2).step_by(9), 3);
    let mut unused = Vec::new();
    let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::Allowed);
    let merged = apply.merged(&changed, &slice.leaves, &mut unused).unwrap();
    for row in 0..ROWS {
        assert_eq!(value_of(&pages, &merged, row), value_of(&pages, &changed, row), "row {row}");
    }
    assert!(unused.len() > 3 && unused.len() + 3 < slice.leaves.len(), "{} unused", unused.len());
    assert!(patches(&merged).len() < patches(&changed).len());
    assert_eq!(merged.count, changed.count);
    // Each page that it does not need is deferred once, and those of leaves that stay are not.
    let of = |root: &Slot| -> Vec<u64> {
        below(root).iter().filter_map(Slot::page).map(|page| page.block).collect()
    };
    let deferred: Vec<u64> = apply
        .replaced
        .iter()
        .filter_map(|node| node.defer_free(CommitSeq(2)))
        .filter(|page| !page.pointer.is_inner())
        .map(|page| page.pointer.block)
        .collect();
    let (before, after) = (of(&changed), of(&merged));
    let mut gone: Vec<u64> = before.iter().copied().filter(|block| !after.contains(block)).collect();
    gone.sort_unstable();
    let mut sorted = deferred.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, gone);
}

/// A leaf that was not in memory before it was merged is not in memory after.
#[test]
fn a_leaf_that_was_read_to_be_merged_leaves_memory() {
    let disk = MemDisk::new(5);
    let pages = pages(&disk);
    let (root, mut sink) = written(&pages);
    let patched = with(&pages, &root, (0..ROWS).step_by(9), 2);
    let all = below(&patched);
    all.iter().step_by(2).for_each(|slot| slot.evict(&pages, None));
    let leaves = merged_and_written(&pages, &patched, &mut sink).leaves;
    let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::ResidentOnly);
    let merged = apply.merged(&patched, &leaves, &mut Vec::new()).unwrap();
    drop(leaves);
    let after = leaf_slots(&merged);
    assert_eq!(after.len(), all.len());
    let in_memory = |slots: &[Slot]| slots.iter().map(Slot::is_resident).collect::<Vec<_>>();
    assert_eq!(in_memory(&after), in_memory(&all));
    assert!(after.iter().all(|slot| slot.patch_bytes() == 0), "all are merged");
    for row in 0..ROWS {
        let wanted = if row % 9 == 0 { 2 } else { 1 };
        assert_eq!(value_of(&pages, &merged, row), wanted, "row {row}");
    }
}

/// A merged leaf keeps its reduction, in memory or not. Changed again, it is a patch to its new page, and the
/// page that it was merged from is freed once.
#[test]
fn a_merged_leaf_that_changes_again_keeps_its_sum_and_frees_its_first_page_once() {
    let disk = MemDisk::new(6);
    let pages = pages(&disk);
    let (root, mut sink) = written(&pages);
    let patched = with(&pages, &root, (0..ROWS).step_by(9), 2);
    below(&patched).iter().step_by(2).for_each(|slot| slot.evict(&pages, Some(&Builtin::Sum)));
    let leaves = merged_and_written(&pages, &patched, &mut sink).leaves;
    let first: Vec<u64> = leaves.iter().filter_map(|leaf| leaf.old.0.page()).map(|page| page.block).collect();
    let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::ResidentOnly);
    let merged = apply.merged(&patched, &leaves, &mut Vec::new()).unwrap();
    drop(leaves);
    let changes: Edits = (0..ROWS).step_by(18).map(|row| (key(row), Some(vec![3; 16]))).collect();
    let mut again = Apply::new(&pages, &TINY, CommitSeq(3), Loading::Allowed).with_patches(true);
    let changed = again.tree(Some(&merged), &listed(&changes)).unwrap().unwrap();
    assert!(patches(&changed).len() > 10, "{} patches to merged leaves", patches(&changed).len());
    let sum = |root: &Slot, of: &dyn Fn(u32) -> u8| {
        let reduced = reduce(&pages, Some(root), &Builtin::Sum, &KeyRange::all()).unwrap().value.unwrap();
        let wanted: i128 = (0..ROWS).map(|row| i128::from(i64::from_le_bytes([of(row); 8]))).sum();
        assert_eq!(i128::from_le_bytes(reduced.try_into().unwrap()), wanted);
    };
    let first_change = |row: u32| if row.is_multiple_of(9) { 2 } else { 1 };
    sum(&merged, &first_change);
    sum(&changed, &|row| if row.is_multiple_of(18) { 3 } else { first_change(row) });
    let replaced = apply.replaced.iter().chain(&again.replaced);
    let deferred: Vec<u64> = replaced
        .filter_map(|node| node.defer_free(CommitSeq(3)))
        .filter(|page| !page.pointer.is_inner())
        .map(|page| page.pointer.block)
        .collect();
    let sorted = |mut blocks: Vec<u64>| {
        blocks.sort_unstable();
        blocks
    };
    assert_eq!(
        sorted(deferred),
        sorted(first),
        "the pages of merged leaves are in use, those before are not"
    );
}

/// An eviction may give a patch its pointer while a checkpoint writes the tree.
#[test]
fn a_patch_that_was_settled_meanwhile_is_not_written() {
    let disk = MemDisk::new(3);
    let pages = pages(&disk);
    let (root, _sink) = written(&pages);
    let patched = with(&pages, &root, (0..ROWS).step_by(9), 2);
    let (slot, _) = patches(&patched).swap_remove(0);
    let node = slot.peek().unwrap();
    assert!(node.is_patch() && node.pointer().is_none());
    let first = super::super::write::settled(&pages, &node, None).unwrap().cloned();
    assert!(first.as_ref().is_some_and(|pointer| pointer.patch.is_some()));
    assert_eq!(super::super::write::settled(&pages, &node, None).unwrap().cloned(), first);
}

/// What dropped commits had replaced is used again: the room for it is kept.
#[test]
fn patches_that_are_used_again_are_counted_again() {
    let disk = MemDisk::new(4);
    let pages = pages(&disk);
    let (root, _sink) = written(&pages);
    let patched = with(&pages, &root, (0..ROWS).step_by(9), 2);
    let before = pages.meter().patch_bytes();
    let found = patches(&patched);
    assert_eq!(before, found.iter().map(|(_, patch)| patch.bytes().len()).sum::<usize>());
    let count = |is_superseded| {
        found.iter().for_each(|(_, patch)| patch.supersede(is_superseded));
        pages.meter().patch_bytes()
    };
    assert_eq!((count(true), count(true)), (0, 0));
    assert_eq!((count(false), count(false)), (before, before));
    let whole = pages.meter().whole_dirty_bytes();
    let dirty = patched.peek().unwrap();
    dirty.supersede(true);
    assert!(pages.meter().whole_dirty_bytes() < whole);
    dirty.supersede(false);
    assert_eq!(pages.meter().whole_dirty_bytes(), whole);
}
