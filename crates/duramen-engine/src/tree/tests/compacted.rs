//! Compaction of a tree: the same entries in other nodes, whatever is packed or moved.

use super::*;

/// A value that was replaced since compaction copied it must not come back.
#[test]
fn a_reference_is_swapped_only_where_the_old_one_still_is() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let stored = |bytes: &'static [u8], big| Some(StoredValue { big, bytes });
    let change = |key: &'static [u8], value| Change { key, value };
    let with = |changes: &[Change<'_>]| {
        Apply::new(&pages, &TINY, CommitSeq(1), Loading::Allowed).tree(None, changes).unwrap().unwrap()
    };
    let root = with(&[change(b"big", stored(b"old", true)), change(b"small", stored(b"old", false))]);
    let check = |key: &[u8], old: &[u8], swaps: bool| {
        let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::Allowed);
        let moved = apply.with_value_moved(&root, key, (old, b"new")).unwrap();
        assert_eq!(moved.is_some(), swaps, "{key:?}");
        assert_eq!(apply.dropped_values.len(), usize::from(swaps), "{key:?}");
        assert_eq!(apply.replaced.len(), usize::from(swaps), "{key:?}");
        let Some(moved) = moved else { return };
        let found = find(&pages, Some(&moved), key, |value| (value.big, value.bytes.to_vec())).unwrap();
        assert_eq!(found, Some((true, b"new".to_vec())));
    };
    check(b"big", b"old", true);
    check(b"big", b"other", false);
    check(b"small", b"old", false);
    check(b"absent", b"old", false);
}

/// Random trees, written, thinned out, and compacted range by range with random aims.
#[test]
fn a_compacted_tree_has_the_same_entries_in_no_more_leaves() {
    for seed in 0..40 {
        let disk = MemDisk::new(seed);
        let pages = pages(&disk);
        let mut random = Random(seed);
        let model: Model = (0..600).map(|_| (random.key(), vec![7; 30])).collect();
        let puts: Edits = model.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        let full = apply(&pages, None, &puts).unwrap();
        let mut sink = Sequential::new(&pages, 100);
        write_tree(&pages, &full, None, &mut sink).unwrap();
        let gone: Edits =
            model.keys().filter(|_| random.below(4) > 0).map(|key| (key.clone(), None)).collect();
        let left: Vec<_> = model.into_iter().filter(|(key, _)| !gone.contains_key(key)).collect();
        let Some(thin) = apply(&pages, Some(&full), &gone) else { continue };
        write_tree(&pages, &thin, None, &mut sink).unwrap();
        let compacting = Compacting { end_block: 100 + random.below(sink.next_block), packs: seed % 2 == 0 };
        let mut root = thin.clone();
        let mut from = Vec::new();
        loop {
            let to = Some(random.key()).filter(|to| *to > from && random.below(8) > 0);
            let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::Allowed);
            root = apply.compacted(&root, &from, to.as_deref(), compacting).unwrap();
            match to {
                Some(to) => from = to,
                None => break,
            }
        }
        assert_eq!(rows(&pages, Some(&root), KeyRange::all(), Direction::Forward), left, "seed {seed}");
        let leaves = |root| shape(&pages, Some(root), &mut |_| Ok(())).unwrap().levels[0].nodes;
        assert!(leaves(&root) <= leaves(&thin), "seed {seed}");
    }
}

/// The commit of a slice holds up all others. A root beyond the aimed end is moved by the first range below
/// it; if every group below it were due, one slice would go through the whole tree.
#[test]
fn a_node_that_is_moved_makes_one_group_due_and_counts() {
    use crate::tree::compact::Group;
    let due = |pages: &Pages, root: &Slot, compacting| {
        let mut due: Vec<Group> = Vec::new();
        let walk = GroupWalk { pages, geometry: &TINY, compacting, group_bytes: 1000, loads: false };
        let mut visit = |group: Group| {
            due.extend(Some(group).filter(|group| group.is_due));
            Ok(true)
        };
        walk.run(root, &[], &mut visit).unwrap();
        due
    };
    for seed in 0..40 {
        let disk = MemDisk::new(seed);
        let pages = pages(&disk);
        let mut random = Random(seed);
        let puts: Edits = (0..600).map(|_| (random.key(), Some(vec![7; 30]))).collect();
        let mut root = apply(&pages, None, &puts).unwrap();
        let mut sink = Sequential::new(&pages, 100);
        write_tree(&pages, &root, None, &mut sink).unwrap();
        // The root is written last.
        let pointer = root.pointer().unwrap().page;
        let alone = Compacting { end_block: pointer.block, packs: false };
        let groups = due(&pages, &root, alone);
        assert_eq!(
            groups.iter().map(|group| group.moved.bytes).collect::<Vec<_>>(),
            [pointer.raw_bytes as usize]
        );
        // Whatever is moved, the groups that are due cover it.
        let compacting = Compacting { end_block: 100 + random.below(sink.next_block - 100), packs: false };
        for group in due(&pages, &root, compacting) {
            assert!(group.moved.bytes > 0, "seed {seed}: {group:?}");
            let mut apply = Apply::new(&pages, &TINY, CommitSeq(2), Loading::Allowed);
            root = apply.compacted(&root, &group.from, group.to.as_deref(), compacting).unwrap();
        }
        assert_eq!(due(&pages, &root, compacting), [], "seed {seed}");
        let left =
            |pointer: &PagePointer| pointer.block + u64::from(pointer.block_count) > compacting.end_block;
        let moved = sink.nodes.iter().filter(|node| left(&node.pointer().unwrap().page)).count();
        assert!(moved > 0, "seed {seed}");
    }
}
