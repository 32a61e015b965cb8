//! Sorting by parts of keys, in several threads, must agree with a sorted map.

use std::collections::{BTreeMap, HashSet};

use super::{Gathered, RecordNotes};
use crate::commit::{Changes, OwnedValue};
use crate::ids::TreeId;
use crate::tree::KeyRange;

type Model = BTreeMap<TreeId, BTreeMap<Vec<u8>, Option<Vec<u8>>>>;

/// Checks records of random changes, with keys made by `key`.
fn check(count: u64, threads: usize, key: impl Fn(u64) -> Vec<u8>) {
    let mut state = count;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut gathered, mut model) = (Gathered::default(), Model::new());
    for _ in 0..count / 50 {
        let mut changes = Changes::default();
        for _ in 0..50 {
            let (tree, key) = (TreeId(next(3)), key(next(count)));
            let value = (next(5) > 0).then(|| vec![7; usize::try_from(next(40)).unwrap()]);
            model.entry(tree).or_default().insert(key.clone(), value.clone());
            changes.set(tree, &key, value.map(|bytes| OwnedValue { big: false, bytes }));
        }
        let record = changes.encode();
        let notes = RecordNotes::of(&record).unwrap();
        assert!(gathered.record(record, notes));
    }
    let sorted = gathered.sorted(&HashSet::from([TreeId(2)]), threads);
    model.remove(&TreeId(2));
    assert_eq!(sorted.trees().collect::<Vec<_>>(), model.keys().copied().collect::<Vec<_>>());
    for (tree, wanted) in &model {
        let found = sorted.of_tree(*tree);
        let list = found.to_list();
        let list: Vec<_> = list.iter().map(|c| (c.key, c.value.map(|value| value.bytes))).collect();
        assert_eq!(list, wanted.iter().map(|(k, v)| (&k[..], v.as_deref())).collect::<Vec<_>>());
        let (from, to) = (key(count / 3), key(count / 3 * 2));
        let range = KeyRange::between(from.clone().min(to.clone()), from.max(to));
        assert_eq!(found.within(&range).len(), wanted.range(range.from.clone()..range.to.unwrap()).count());
        let (some, its) = wanted.iter().next().unwrap();
        assert_eq!(found.find(some).unwrap().value.map(|value| value.bytes), its.as_deref());
        assert_eq!(found.find(b"\xffnone"), None);
    }
}

#[test]
fn changes_come_sorted_and_the_last_of_each_key_alone() {
    for threads in [1, 2, 3] {
        check(500, threads, |n| n.to_be_bytes().to_vec());
        check(60_000, threads, |n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec());
        // Keys with a common prefix longer than a head, and keys of every length.
        check(60_000, threads, |n| format!("a long beginning: {:09}", n / 3).into_bytes());
        check(60_000, threads, |n| vec![u8::try_from(n % 251).unwrap(); usize::try_from(n % 12).unwrap()]);
    }
}
