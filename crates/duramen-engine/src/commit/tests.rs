//! Records, read sets and the ring of recent commits.
#![allow(clippy::unwrap_used)]

mod broken;
mod served;

use super::changes::{WrittenKeys, record_lists};
use super::recent::Verdict;
use super::*;
use crate::catalog::{CATALOG, CatalogRow};
use crate::tree::{KeyRange, StoredValue};

impl requests::Requests {
    /// How many transactions are queued; `None` if no thread serves.
    fn queued(&self) -> Option<usize> {
        let queue = self.queue.lock().unwrap();
        queue.is_served.then_some(queue.waiting.len())
    }
}

impl Committer {
    /// Runs `work` under the order lock.
    pub(crate) fn while_ordering(&self, work: impl FnOnce()) {
        let _order = self.order.lock();
        work();
    }
}

fn changes(keys: &[&str]) -> Changes {
    let mut changes = Changes::default();
    for (index, key) in keys.iter().enumerate() {
        let value = OwnedValue { big: index % 2 == 1, bytes: vec![7; index * 10] };
        changes.set(TreeId(1 + index as u64 % 2), key.as_bytes(), (index % 3 != 2).then_some(value));
    }
    changes
}

#[test]
fn a_record_reads_back_and_every_shorter_one_is_refused() {
    let changes = changes(&["a", "b", "c", "d", "e"]);
    let bytes = changes.encode();
    let mut found = Vec::new();
    decode_record(&bytes, &mut |change| {
        found.push((change.tree, change.key.to_vec(), change.value.is_some()))
    })
    .unwrap();
    let wanted: Vec<_> = [TreeId(1), TreeId(2)]
        .into_iter()
        .flat_map(|id| changes.of_tree(id).into_iter().map(move |c| (id, c.key.to_vec(), c.value.is_some())))
        .collect();
    assert_eq!(found, wanted);
    assert_eq!(record_lists(&bytes), [TreeId(1), TreeId(2)].map(|id| (id, changes.of_tree(id))));
    for length in 0..bytes.len() {
        assert!(decode_record(&bytes[..length], &mut |_| ()).is_err(), "{length} bytes");
    }
}

fn written(keys: &[&str]) -> WrittenKeys {
    let mut changes = Changes::default();
    keys.iter().for_each(|key| drop(changes.set(TreeId(1), key.as_bytes(), None)));
    changes.into_keys()
}

#[test]
fn what_was_read_conflicts_with_what_was_written_and_nothing_else_does() {
    let mut reads = Reads::default();
    reads.point(TreeId(1), b"m");
    reads.range(TreeId(1), &KeyRange::between("b", "d"));
    reads.range(TreeId(1), &KeyRange::between("c", "f"));
    reads.range(TreeId(1), &KeyRange { from: b"x".to_vec(), to: None });
    reads.range(TreeId(2), &KeyRange::all());
    for (keys, conflict) in [
        (&["m"][..], true),
        (&["a", "n"], false),
        (&["b"], true),
        (&["dd"], true),
        (&["f"], false),
        (&["zzz"], true),
        (&["a", "aa", "l", "ma", "w"], false),
    ] {
        assert_eq!(reads.touch(&written(keys)), conflict, "{keys:?}");
    }
}

#[test]
fn a_read_set_that_grows_too_large_counts_as_the_whole_tree() {
    let mut reads = Reads::default();
    for n in 0..5000u32 {
        reads.point(TreeId(1), &n.to_be_bytes());
    }
    assert!(reads.touch(&written(&["never read"])), "more conflicts, never a wrong answer");
}

#[test]
fn recent_commits_are_compared_until_they_are_forgotten() {
    let mut recent = Recent::new(CommitSeq(10));
    recent.push(CommitSeq(11), written(&["a"]), 1000);
    recent.push(CommitSeq(12), written(&["b"]), 1000);
    let mut reads = Reads::default();
    reads.point(TreeId(1), b"a");
    assert_eq!(recent.check(CommitSeq(10), &reads), Verdict::Changed);
    assert_eq!(recent.check(CommitSeq(11), &reads), Verdict::Unchanged);
    assert_eq!(recent.check(CommitSeq(9), &reads), Verdict::TooOld);
    recent.rewind(CommitSeq(10));
    assert_eq!(recent.check(CommitSeq(10), &reads), Verdict::Unchanged, "dropped commits never happened");
    for seq in 11..100 {
        recent.push(CommitSeq(seq), written(&["some key"]), 1000);
    }
    assert_eq!(recent.check(CommitSeq(10), &reads), Verdict::TooOld);
    assert!(recent.after(CommitSeq(99)).is_some_and(|commits| commits.is_empty()));
}

// Taking an unreadable row for a missing one would drop the tree behind the name, with all its entries.
#[test]
fn a_row_that_does_not_decode_is_no_drop() {
    let row = CatalogRow { id: TreeId(7), spec: None, features: crate::features::Features::NONE };
    let encoded = row.encode();
    let change = |key, bytes: Option<&'static [u8]>| RecordChange {
        tree: CATALOG,
        key,
        value: bytes.map(|bytes| StoredValue { big: false, bytes }),
    };
    let whole = RecordChange {
        tree: CATALOG,
        key: b"name",
        value: Some(StoredValue { big: false, bytes: &encoded }),
    };
    assert_eq!(whole.naming(), Ok(("name", Some(row))));
    assert_eq!(change(b"name", None).naming(), Ok(("name", None)));
    assert!(change(b"name", Some(b"\x63of a later release")).naming().is_err());
    assert!(change(b"\xff\xfe", None).naming().is_err());
}

/// A record with a valid checksum may hold anything. What no leaf could hold is refused when it is decoded.
#[test]
fn a_hostile_record_is_refused() {
    let record = |trees: u32, kind: u8, key: (u16, usize), value: (u32, usize)| {
        let mut out = vec![1];
        out.extend_from_slice(&trees.to_le_bytes());
        out.extend_from_slice(&5u64.to_le_bytes());
        out.push(0);
        out.extend_from_slice(&1u32.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&key.0.to_le_bytes());
        out.extend_from_slice(&value.0.to_le_bytes());
        out.resize(out.len() + key.1 + value.1, 7);
        out
    };
    let read = |bytes: &[u8]| decode_record(bytes, &mut |_| ());
    read(&record(1, 1, (1024, 1024), (32768, 32768))).unwrap();
    let hostile = [
        record(1, 1, (1025, 1025), (1, 1)),
        record(1, 0, (u16::MAX, 65535), (0, 0)),
        record(1, 1, (1, 1), (32769, 32769)),
        record(1, 2, (1, 1), (u32::MAX, 10)),
        record(1, 3, (1, 1), (1, 1)),
        record(u32::MAX, 1, (1, 1), (1, 1)),
        record(0, 1, (1, 1), (1, 1)),
        record(1, 1, (1, 1), (1, 2)),
    ];
    for (index, bytes) in hostile.iter().enumerate() {
        assert!(read(bytes).is_err(), "record {index}");
    }
}
