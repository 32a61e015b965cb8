//! Rows of the catalogue and the table of trees.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::alarm::cause_of;
use crate::data_file::PagePointer;
use crate::tree::{NodePointer, Reduction};

fn spec() -> ReducerSpec {
    ReducerSpec { name: "sums".to_owned(), version: 3, params: vec![1, 2, 3] }
}

#[test]
fn rows_read_back_and_cut_short_are_refused() {
    let pointer = PagePointer { block: 9, block_count: 1, raw_bytes: 100, flags: 0, tag: [7; 16] };
    let entry = RootEntry {
        spec: Some(spec()),
        features: Features::SHAPES,
        pointer: Some(NodePointer::whole(pointer, Reduction::of(&[4, 5]))),
        count: 6,
        has_big_values: true,
        dropped_at: Some(CommitSeq(8)),
        reclaimed_to: b"key".to_vec(),
    };
    let bare = RootEntry {
        spec: None,
        features: Features::NONE,
        pointer: None,
        count: 0,
        has_big_values: false,
        dropped_at: None,
        reclaimed_to: Vec::new(),
    };
    for entry in [entry, bare] {
        let bytes = entry.encode();
        assert_eq!(RootEntry::decode(&bytes), Some(entry));
        assert!((0..bytes.len()).all(|length| RootEntry::decode(&bytes[..length]).is_none()));
        let unknown = [&bytes[..1], &[bytes[1] | 0x80], &bytes[2..]].concat();
        assert_eq!(RootEntry::decode(&unknown), None, "a flag of a later release");
    }
    for row in [
        CatalogRow { id: TreeId(5), spec: Some(spec()), features: Features::SHAPES },
        CatalogRow { id: TreeId(1), spec: None, features: Features::NONE },
    ] {
        let bytes = row.encode();
        assert_eq!(CatalogRow::decode(&bytes), Some(row));
        assert!((0..bytes.len()).all(|length| CatalogRow::decode(&bytes[..length]).is_none()));
        let unknown = [&bytes[..1], &[bytes[1] | 2], &bytes[2..]].concat();
        assert_eq!(CatalogRow::decode(&unknown), None, "a flag of a later release");
    }
}

fn tree(id: u64) -> Option<TreeState> {
    Some(TreeState::empty(TreeId(id), None, &Reducers::default()))
}

fn ids(table: &TreeTable) -> Vec<u64> {
    table.iter().map(|tree| tree.id.0).collect()
}

#[test]
fn a_table_knows_what_changed_and_an_older_copy_does_not_change() {
    let mut table = TreeTable::default();
    for id in [0, 1, 40, 1000] {
        table.set(TreeId(id), tree(id));
    }
    let older = table.clone();
    table.set(TreeId(40), tree(40));
    table.set(TreeId(1), None);
    table.set(TreeId(77), tree(77));
    assert_eq!(table.changed_since(&older), [TreeId(1), TreeId(40), TreeId(77)]);
    assert_eq!(older.changed_since(&table), [TreeId(1), TreeId(40), TreeId(77)]);
    assert_eq!(ids(&older), [0, 1, 40, 1000]);
    assert_eq!(ids(&table), [0, 40, 77, 1000]);
}

#[test]
fn a_table_of_any_ids_answers_as_a_map() {
    let mut table = TreeTable::default();
    let mut model = std::collections::BTreeSet::new();
    let mut older = (table.clone(), model.clone());
    let mut number = 7u64;
    for round in 0..4000u64 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let id = if round.is_multiple_of(97) { number } else { number >> 40 & 0xfff };
        let puts = number >> 33 & 3 != 0;
        table.set(TreeId(id), tree(id).filter(|_| puts));
        if puts {
            model.insert(id)
        } else {
            model.remove(&id)
        };
        assert_eq!(table.get(TreeId(id)).map(|tree| tree.id.0), puts.then_some(id));
        if round.is_multiple_of(500) {
            let gone_or_new: Vec<TreeId> =
                model.symmetric_difference(&older.1).map(|id| TreeId(*id)).collect();
            let changed = table.changed_since(&older.0);
            assert!(gone_or_new.iter().all(|id| changed.contains(id)) && changed.is_sorted());
            older = (table.clone(), model.clone());
        }
    }
    assert_eq!(ids(&table), model.iter().copied().collect::<Vec<_>>());
    assert!(table.get(TreeId(u64::MAX)).is_none());
    table.set(TreeId(u64::MAX), tree(u64::MAX));
    assert_eq!(ids(&table).last(), Some(&u64::MAX));
    ids(&table).into_iter().for_each(|id| table.set(TreeId(id), None));
    assert!(ids(&table).is_empty() && table.changed_since(&older.0).len() == older.1.len());
}

/// Rows with valid checksums may hold anything: names of the catalogue itself or of implausible ids are
/// refused.
#[test]
fn hostile_rows_are_refused() {
    for id in [0, 1 << 62, u64::MAX] {
        assert_eq!(
            CatalogRow::decode(&CatalogRow { id: TreeId(id), spec: None, features: Features::NONE }.encode()),
            None,
            "{id}"
        );
    }
    let pointer = PagePointer { block: 9, block_count: 1, raw_bytes: 100, flags: 0, tag: [7; 16] };
    let entry = RootEntry {
        spec: None,
        features: Features::NONE,
        pointer: Some(NodePointer::whole(pointer, Reduction::of(&[4, 5]))),
        count: u64::MAX,
        has_big_values: true,
        dropped_at: Some(CommitSeq(8)),
        reclaimed_to: Vec::new(),
    };
    let long = Some(NodePointer::whole(pointer, Reduction::of(&[1; 5000])));
    let hostile = [
        RootEntry { reclaimed_to: vec![0; 1025], ..entry.clone() },
        RootEntry { dropped_at: Some(CommitSeq(u64::MAX)), ..entry.clone() },
        RootEntry { pointer: long, ..entry.clone() },
    ];
    assert!(RootEntry::decode(&entry.encode()).is_some());
    assert!(hostile.iter().all(|entry| RootEntry::decode(&entry.encode()).is_none()));
}

#[test]
fn a_tree_under_a_wrong_id_and_a_row_without_its_page_raise_the_alarm() {
    let bare = RootEntry {
        spec: None,
        features: Features::NONE,
        pointer: None,
        count: 0,
        has_big_values: false,
        dropped_at: None,
        reclaimed_to: Vec::new(),
    };
    let broken: [(&str, &dyn Fn()); 3] = [
        ("tree 3 is found under its id, not 4", &|| TreeTable::default().set(TreeId(4), tree(3))),
        ("a tree with 6 entries has a page", &|| drop(RootEntry { count: 6, ..bare.clone() }.encode())),
        ("only a dropped tree is reclaimed", &|| {
            drop(RootEntry { reclaimed_to: b"key".to_vec(), ..bare.clone() }.encode());
        }),
    ];
    for (wanted, work) in broken {
        let cause = cause_of(work);
        assert!(cause.contains(wanted), "{cause}");
    }
}

// A build that does not know a feature must not read such a tree as if it did.
#[test]
fn features_that_this_build_does_not_know_are_refused() {
    let row = CatalogRow { id: TreeId(5), spec: None, features: Features::SHAPES }.encode();
    assert!(!CatalogRow::is_of_later_build(&row));
    let mut flagged = row.clone();
    flagged[1] |= 128;
    assert!(CatalogRow::is_of_later_build(&flagged));
    for bits in [0, 2, 3, u64::MAX] {
        let mut other = row.clone();
        let at = other.len() - 8;
        other[at..].copy_from_slice(&u64::to_le_bytes(bits));
        assert_eq!(CatalogRow::decode(&other), None, "{bits:#x}");
        assert_eq!(CatalogRow::is_of_later_build(&other), bits != 0, "{bits:#x}");
    }
}
