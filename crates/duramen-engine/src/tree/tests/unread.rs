//! Changes to leaves that are not in memory, made without reading them.

use super::*;
use crate::tree::fresh_reduction;

/// Leaves of some fifty rows.
const SMALL: Geometry = Geometry { leaf_bytes_max: 4096, inner_bytes_max: 4096, ..TINY };

const ROWS: u64 = 4000;

/// Its order counts: the reduction of rows is that of the first.
struct First;

impl Reducer for First {
    fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(&value[..8]);
        Ok(())
    }

    fn join(&self, left: &[u8], _: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(left);
    }
}

fn key(row: u64) -> Vec<u8> {
    format!("key {:08}", row * 1_234_577 % 99_999_989).into_bytes()
}

fn value(random: &mut Random) -> Vec<u8> {
    let mut value = random.below(1000).to_le_bytes().to_vec();
    value.resize(8 + usize::try_from(random.below(40)).unwrap(), 7);
    value
}

/// A tree that is written, with a patch to every leaf, and nothing in memory but inner nodes.
struct Tree<'a> {
    pages: &'a Pages,
    reducer: Option<&'a dyn Reducer>,
    root: Slot,
    model: Model,
    sink: Sequential<'a>,
    dropped_values: Vec<Vec<u8>>,
}

impl<'a> Tree<'a> {
    fn new(pages: &'a Pages, reducer: Option<&'a dyn Reducer>, random: &mut Random) -> Tree<'a> {
        let model: Model = (0..ROWS).map(|row| (key(row), value(random))).collect();
        let rows: Edits = model.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        let mut build = Apply::new(pages, &SMALL, CommitSeq(1), Loading::Allowed).reduced_by(reducer);
        let root = build.tree(None, &listed(&rows)).unwrap().unwrap();
        let sink = Sequential { geometry: SMALL, ..Sequential::new(pages, 0) };
        let mut tree = Tree { pages, reducer, root, model, sink, dropped_values: Vec::new() };
        // Pages that are half full, each with a patch.
        let half: Edits = (0..ROWS).step_by(2).map(|row| (key(row), None)).collect();
        tree.change(&half, Loading::Allowed).unwrap();
        tree.write();
        let few: Edits = (0..ROWS).step_by(21).map(|row| (key(row), Some(value(random)))).collect();
        tree.change(&few, Loading::Allowed).unwrap();
        tree.evict();
        tree
    }

    fn write(&mut self) {
        write_tree(self.pages, &self.root, self.reducer, &mut self.sink).unwrap();
    }

    fn change(&mut self, changes: &Edits, loading: Loading) -> Result<(), ApplyError> {
        self.change_listed(&listed(changes), loading)?;
        for (key, value) in changes.clone() {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
        assert_eq!(self.root.count, self.model.len() as u64);
        Ok(())
    }

    fn change_listed(&mut self, changes: &[Change<'_>], loading: Loading) -> Result<(), ApplyError> {
        let apply = Apply::new(self.pages, &SMALL, CommitSeq(2), loading);
        let mut apply = apply.with_patches(true).reduced_by(self.reducer);
        self.root = apply.tree(Some(&self.root), changes)?.unwrap();
        self.dropped_values = apply.dropped_values;
        Ok(())
    }

    fn evict(&self) {
        (0..2).for_each(|_| drop(evict((self.pages, self.reducer), &self.root, &[], &|| false)));
    }

    fn leaf_of(&self, key: &[u8]) -> Slot {
        let mut slot = self.root.clone();
        while let Some(Body::Inner(inner)) = slot.peek().as_deref().map(Node::body) {
            slot = inner.slot(inner.separators().child_of(key)).clone();
        }
        slot
    }

    /// Every leaf, read again, has the count and the reduction that the node above it keeps.
    fn check(&self) {
        let held = rows(self.pages, Some(&self.root), KeyRange::all(), Direction::Forward);
        assert_eq!(held, self.model.clone().into_iter().collect::<Vec<_>>());
        self.evict();
        self.check_below(&self.root);
        for (key, value) in &self.model {
            let found = find(self.pages, Some(&self.root), key, |value| value.bytes.to_vec()).unwrap();
            assert_eq!(found.as_ref(), Some(value));
        }
    }

    fn check_below(&self, slot: &Slot) {
        let node = slot.pass_through(self.pages).unwrap();
        match node.body() {
            Body::Inner(inner) => inner.slots().for_each(|slot| self.check_below(slot)),
            Body::Leaf(_) => {
                let Some(reducer) = self.reducer else { return };
                let fresh = fresh_reduction(self.pages, &node, reducer).unwrap();
                let kept = slot.with_reduction(<[u8]>::to_vec);
                assert!(kept.is_none_or(|kept| kept == fresh), "a reduction that is not of its leaf");
            }
        }
    }
}

/// Puts rows, deletes and overwrites some; returns how often that read a leaf, and how often not.
fn work(tree: &mut Tree<'_>, random: &mut Random) -> (u32, u32) {
    let (mut read, mut unread) = (0, 0);
    for round in 0..600 {
        let row = if random.below(3) == 0 { random.below(ROWS) } else { ROWS + random.below(3 * ROWS) };
        let put = random.below(8) > 0;
        let changes: Edits = [(key(row), put.then(|| value(random)))].into();
        let is_resident = tree.leaf_of(&key(row)).is_resident();
        match tree.change(&changes, Loading::ResidentOnly) {
            Ok(()) => unread += u32::from(!is_resident),
            Err(_) => {
                tree.change(&changes, Loading::Allowed).unwrap();
                read += 1;
            }
        }
        tree.evict();
        if round % 100 == 0 {
            tree.write();
            tree.check();
        }
    }
    tree.check();
    (read, unread)
}

#[test]
fn rows_put_without_reading_their_leaves_are_those_of_a_model() {
    for seed in 1..=3 {
        println!("seed {seed}");
        let random = &mut Random(seed);
        let disk = MemDisk::new(seed);
        let pages = pages(&disk);
        let (read, unread) = work(&mut Tree::new(&pages, None, random), random);
        assert!(unread > read, "without a reducer {read} read, {unread} unread");
        let (read, unread) = work(&mut Tree::new(&pages, Some(&Builtin::Sum), random), random);
        assert!(unread > read / 2, "with a sum {read} read, {unread} unread");
        let (_, unread) = work(&mut Tree::new(&pages, Some(&First), random), random);
        assert_eq!(unread, 0, "where the order of joins matters, leaves are read");
    }
}

/// A value in extents that is overwritten in a patch is given up, as if its leaf had been read.
#[test]
fn big_values_overwritten_in_patches_are_dropped() {
    let random = &mut Random(1);
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let mut tree = Tree::new(&pages, None, random);
    let key = &key(2 * ROWS);
    let (first, second) = ([1_u8; 40], [2_u8; 40]);
    for (bytes, dropped) in [(&first, vec![]), (&second, vec![first.to_vec()])] {
        let value = Some(StoredValue { big: true, bytes });
        tree.change_listed(&[Change { key, value }], Loading::ResidentOnly).unwrap();
        assert_eq!(tree.dropped_values, dropped);
    }
}

/// A leaf that a put did not read is joined with a neighbour that deletes have emptied: what was read for
/// that once is in memory when the same changes are applied under a lock.
#[test]
fn a_leaf_put_unread_can_be_joined_under_a_lock() {
    let random = &mut Random(5);
    let disk = MemDisk::new(5);
    let pages = pages(&disk);
    let tree = Tree::new(&pages, Some(&Builtin::Sum), random);
    let keys: Vec<Vec<u8>> = tree.model.keys().cloned().collect();
    let mut joined = 0;
    for from in (100..1000).step_by(60) {
        let mut changes: Edits = keys[from..from + 30].iter().map(|key| (key.clone(), None)).collect();
        let near = |key: &Vec<u8>| (key.iter().copied().chain([1]).collect(), Some(value(&mut Random(1))));
        changes.extend(keys[from + 31..from + 60].iter().step_by(9).map(near));
        let list = listed(&changes);
        let apply = |loading| {
            let apply = Apply::new(&pages, &SMALL, CommitSeq(2), loading);
            apply.with_patches(true).reduced_by(tree.reducer)
        };
        for builds_known in [false, true] {
            tree.evict();
            let prebuilt = apply(Loading::Allowed).building_known(builds_known);
            let prebuilt = prebuilt.prebuild(&tree.root, &list, 1).unwrap();
            let with = |loading| {
                apply(loading).with_prebuilt(Some(&prebuilt)).tree(Some(&tree.root), &list).map(|_| ())
            };
            with(Loading::Allowed).unwrap();
            let under_a_lock = with(Loading::ResidentOnly);
            assert!(under_a_lock.is_ok() || !builds_known, "{under_a_lock:?}");
            joined += u32::from(under_a_lock.is_err());
        }
    }
    assert!(joined > 0, "no leaf that was put unread was joined");
}
