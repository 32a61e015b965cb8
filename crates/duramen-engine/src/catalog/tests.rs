//! Rows of the catalogue and the table of trees.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::data_file::Location;
use crate::tree::{Place, Reduction};

fn spec() -> ReducerSpec {
    ReducerSpec { name: "sums".to_owned(), version: 3, params: vec![1, 2, 3] }
}

#[test]
fn rows_read_back_and_cut_short_are_refused() {
    let location = Location { block: 9, block_count: 1, raw_bytes: 100, flags: 0, tag: [7; 16] };
    let entry = RootEntry {
        spec: Some(spec()),
        place: Some(Place { location, reduction: Reduction::of(&[4, 5]) }),
        count: 6,
        has_big_values: true,
        dropped_at: Some(CommitSeq(8)),
        reaped_to: b"key".to_vec(),
    };
    let bare = RootEntry {
        spec: None,
        place: None,
        count: 0,
        has_big_values: false,
        dropped_at: None,
        reaped_to: Vec::new(),
    };
    for entry in [entry, bare] {
        let bytes = entry.encode();
        assert_eq!(RootEntry::decode(&bytes), Some(entry));
        assert!((0..bytes.len()).all(|length| RootEntry::decode(&bytes[..length]).is_none()));
        let unknown = [&bytes[..1], &[bytes[1] | 0x80], &bytes[2..]].concat();
        assert_eq!(RootEntry::decode(&unknown), None, "a flag of a later release");
    }
    for row in [CatalogRow { id: TreeId(5), spec: Some(spec()) }, CatalogRow { id: TreeId(1), spec: None }] {
        let bytes = row.encode();
        assert_eq!(CatalogRow::decode(&bytes), Some(row));
        assert!((0..bytes.len()).all(|length| CatalogRow::decode(&bytes[..length]).is_none()));
        let unknown = [&bytes[..1], &[bytes[1] | 2], &bytes[2..]].concat();
        assert_eq!(CatalogRow::decode(&unknown), None, "a flag of a later release");
    }
}

#[test]
fn a_table_knows_what_changed_and_an_older_copy_does_not_change() {
    let reducers = Reducers::default();
    let tree = |id| Some(TreeState::empty(TreeId(id), None, &reducers));
    let mut table = TreeTable::default();
    for id in [0, 1, 40, 1000] {
        table.set(TreeId(id), tree(id));
    }
    let older = table.clone();
    table.set(TreeId(40), tree(40));
    table.set(TreeId(1), None);
    table.set(TreeId(77), tree(77));
    assert_eq!(table.changed_since(&older), [TreeId(1), TreeId(40), TreeId(77)]);
    assert_eq!(older.iter().map(|tree| tree.id.0).collect::<Vec<_>>(), [0, 1, 40, 1000]);
    assert_eq!(table.iter().map(|tree| tree.id.0).collect::<Vec<_>>(), [0, 40, 77, 1000]);
}
