//! The writes of one transaction, and their encoding in the log. The codec is pure.
//!
//! A log record: version (u8), tree count (u32), then for each tree, in order of id: id (u64), reserved (u8:
//! 0), change count (u32), then for each key, in order: kind (u8: 0 delete, 1 put, 2 put a reference to a big
//! value), key length (u16), value length (u32), key, value.

use std::collections::BTreeMap;

use super::key_map::{KeyMap, SortedKeys};
use crate::alarm::invariant;
use crate::catalog::CatalogRow;
use crate::ids::TreeId;
use crate::limits::{BIG_VALUE_BYTES, KEY_BYTES_MAX, RAFT_ENTRY_BYTES_MAX};
use crate::tree::{Change, StoredValue};

const RECORD_VERSION: u8 = 1;
/// Bytes of a record before its trees, of a tree before its changes, and of a change before its key.
const RECORD_HEAD_BYTES: usize = 1 + 4;
const TREE_HEAD_BYTES: usize = 8 + 1 + 4;
const CHANGE_HEAD_BYTES: usize = 1 + 2 + 4;
const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_BIG: u8 = 2;

/// A value on its way into a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedValue {
    /// Whether `bytes` are a reference to the extents of a big value.
    pub big: bool,
    /// The value, or the reference.
    pub bytes: Vec<u8>,
}

impl OwnedValue {
    /// As a tree stores it.
    pub(crate) fn stored(&self) -> StoredValue<'_> {
        StoredValue { big: self.big, bytes: &self.bytes }
    }
}

/// The newest write to each key of each tree; `None` deletes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    trees: BTreeMap<TreeId, KeyMap<Option<OwnedValue>>>,
    bytes: usize,
}

fn as_change<'a>((key, value): (&'a [u8], &'a Option<OwnedValue>)) -> Change<'a> {
    Change { key, value: value.as_ref().map(OwnedValue::stored) }
}

/// Approximate memory of a write beyond its key and value.
pub(crate) const ENTRY_BYTES: usize = 80;

const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize, "a record has 16 bits for the length of a key");
const _: () = assert!(BIG_VALUE_BYTES <= u32::MAX as usize, "a record has 32 bits for the length of a value");
const _: () = assert!(
    TREE_HEAD_BYTES + CHANGE_HEAD_BYTES <= ENTRY_BYTES,
    "a record is no longer than what is counted for its changes"
);

impl Changes {
    /// Records a write. Returns the write recorded for the key before.
    pub(crate) fn set(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: Option<OwnedValue>,
    ) -> Option<Option<OwnedValue>> {
        let size = |value: &Option<OwnedValue>| value.as_ref().map_or(0, |v| v.bytes.len());
        self.bytes += size(&value);
        let before = self.trees.entry(tree).or_default().set(key, value);
        match &before {
            Some(before) => self.bytes = self.bytes.saturating_sub(size(before)),
            None => self.bytes += key.len() + ENTRY_BYTES,
        }
        before
    }

    /// The write recorded for a key.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Option<&Option<OwnedValue>> {
        self.trees.get(&tree)?.get(key)
    }

    /// The write recorded for a key; without one, a delete.
    pub(crate) fn of_key<'a>(&'a self, tree: TreeId, key: &'a [u8]) -> Change<'a> {
        Change { key, value: self.get(tree, key).and_then(Option::as_ref).map(OwnedValue::stored) }
    }

    /// The writes recorded for one tree, in order of key.
    pub(crate) fn of_tree(&self, tree: TreeId) -> Vec<Change<'_>> {
        self.trees.get(&tree).into_iter().flat_map(KeyMap::iter).map(as_change).collect()
    }

    /// Discards the writes recorded for a tree. Returns their values.
    pub(crate) fn forget_tree(&mut self, tree: TreeId) -> Vec<OwnedValue> {
        let forgotten = self.trees.remove(&tree).unwrap_or_default();
        let bytes = |(key, value): (&[u8], &Option<OwnedValue>)| {
            key.len() + ENTRY_BYTES + value.as_ref().map_or(0, |value| value.bytes.len())
        };
        self.bytes = self.bytes.saturating_sub(forgotten.iter().map(bytes).sum());
        invariant!(!self.trees.is_empty() || self.bytes == 0, "no writes of {} bytes are left", self.bytes);
        forgotten.into_values().flatten().collect()
    }

    /// The keys alone, for comparison with what other transactions read.
    pub(crate) fn into_keys(self) -> WrittenKeys {
        WrittenKeys { trees: self.trees.into_iter().map(|(id, changes)| (id, changes.into_keys())).collect() }
    }

    /// The number of big values.
    pub(crate) fn big_count(&self) -> usize {
        self.values().flatten().filter(|value| value.big).count()
    }

    fn values(&self) -> impl Iterator<Item = &Option<OwnedValue>> {
        self.trees.values().flat_map(KeyMap::iter).map(|(_, value)| value)
    }

    /// Whether no write is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.trees.values().all(KeyMap::is_empty)
    }

    /// Approximate bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it only deletes. Such a transaction may use the room kept back for a full disk.
    pub(crate) fn only_deletes(&self) -> bool {
        self.values().all(Option::is_none)
    }

    /// The log record, and the content of an entry that is replicated.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 16);
        out.push(RECORD_VERSION);
        let count = |n: usize| u32::try_from(n).expect("a transaction is bounded by memory");
        out.extend_from_slice(&count(self.trees.len()).to_le_bytes());
        for (tree, changes) in &self.trees {
            out.extend_from_slice(&tree.0.to_le_bytes());
            // Reserved: to flag what can be derived from other records (rows of views).
            out.push(0);
            out.extend_from_slice(&count(changes.len()).to_le_bytes());
            for (key, value) in changes.iter() {
                let (kind, bytes) = match value {
                    None => (DELETE, &[][..]),
                    Some(value) => (if value.big { PUT_BIG } else { PUT }, &value.bytes[..]),
                };
                out.push(kind);
                let key_bytes = u16::try_from(key.len()).expect("keys are at most KEY_BYTES_MAX");
                out.extend_from_slice(&key_bytes.to_le_bytes());
                out.extend_from_slice(&count(bytes.len()).to_le_bytes());
                out.extend_from_slice(key);
                out.extend_from_slice(bytes);
            }
        }
        // D1: a longer record could be acknowledged, and no opening could replay it.
        let (length, bytes_max) = (out.len(), self.bytes + RECORD_HEAD_BYTES);
        invariant!(length <= bytes_max, "a record of {length} bytes, at most {bytes_max} were counted");
        out
    }
}

/// The changes of a record that this process encoded: sorted by tree and key, each key once.
pub(super) fn record_lists(record: &[u8]) -> Vec<(TreeId, Vec<Change<'_>>)> {
    let mut lists: Vec<(TreeId, Vec<Change<'_>>)> = Vec::new();
    decode_record(record, &mut |change| {
        if lists.last().is_none_or(|(tree, _)| *tree != change.tree) {
            lists.push((change.tree, Vec::new()));
        }
        let (_, list) = lists.last_mut().expect("pushed above");
        list.push(Change { key: change.key, value: change.value });
    })
    .expect("a record that was just encoded");
    lists
}

/// The first trees that a record changes.
pub(super) fn record_trees(record: &[u8], at_most: usize) -> Vec<TreeId> {
    let mut trees: Vec<TreeId> = Vec::new();
    decode_record(record, &mut |change| {
        if trees.len() < at_most && trees.last() != Some(&change.tree) {
            trees.push(change.tree);
        }
    })
    .expect("a record that was just encoded");
    trees
}

/// The sorted keys a transaction wrote.
#[derive(Debug, Default)]
pub(crate) struct WrittenKeys {
    trees: BTreeMap<TreeId, SortedKeys>,
}

impl WrittenKeys {
    /// The keys written in a tree.
    pub(super) fn of_tree(&self, tree: TreeId) -> Option<&SortedKeys> {
        self.trees.get(&tree)
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> usize {
        self.trees.values().map(SortedKeys::len).sum()
    }

    /// Approximate bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.trees.values().map(SortedKeys::bytes).sum::<usize>() + 64
    }
}

/// One change of a log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordChange<'a> {
    /// The tree.
    pub tree: TreeId,
    /// The key.
    pub key: &'a [u8],
    /// What it becomes; `None` deletes.
    pub value: Option<StoredValue<'a>>,
}

impl<'a> RecordChange<'a> {
    /// Decodes a change of the catalogue: a name, and the tree it stands for from there on, if any.
    ///
    /// # Errors
    /// What is wrong with it. A row that cannot be decoded must not count as deleted: its tree would be
    /// dropped.
    pub(crate) fn naming(&self) -> Result<(&'a str, Option<CatalogRow>), &'static str> {
        let name = std::str::from_utf8(self.key).map_err(|_| "the name of a tree is no text")?;
        let row = self
            .value
            .map(|value| CatalogRow::decode(value.bytes).ok_or("the row of a tree is of another version"));
        Ok((name, row.transpose()?))
    }
}

/// Decodes a log record and passes each change to `visit`. The error describes what is wrong with the record.
pub(crate) fn decode_record<'a>(
    bytes: &'a [u8],
    visit: &mut dyn FnMut(RecordChange<'a>),
) -> Result<(), &'static str> {
    decode_with(bytes, BIG_VALUE_BYTES, visit)
}

/// Decodes the content of an entry, which has big values whole.
pub(super) fn decode_content<'a>(
    bytes: &'a [u8],
    visit: &mut dyn FnMut(RecordChange<'a>),
) -> Result<(), &'static str> {
    decode_with(bytes, RAFT_ENTRY_BYTES_MAX, visit)
}

fn decode_with<'a>(
    bytes: &'a [u8],
    big_bytes_max: usize,
    visit: &mut dyn FnMut(RecordChange<'a>),
) -> Result<(), &'static str> {
    const SHORT: &str = "a record ends too early";
    let mut rest = bytes;
    let mut take = |count: usize| -> Result<&'a [u8], &'static str> {
        let (taken, after) = rest.split_at_checked(count).ok_or(SHORT)?;
        rest = after;
        Ok(taken)
    };
    if take(1)? != [RECORD_VERSION] {
        return Err("a record of another version");
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    for _ in 0..number(take(4)?) {
        let tree = TreeId(number(take(8)?));
        if take(1)? != [0] {
            return Err("a tree with a mark that this build does not know");
        }
        for _ in 0..number(take(4)?) {
            let kind = take(1)?[0];
            let key_bytes = usize::try_from(number(take(2)?)).map_err(|_| SHORT)?;
            let value_bytes = usize::try_from(number(take(4)?)).map_err(|_| SHORT)?;
            let value_bytes_max = if kind == PUT_BIG { big_bytes_max } else { BIG_VALUE_BYTES };
            if key_bytes > KEY_BYTES_MAX || value_bytes > value_bytes_max {
                return Err("a key or a value that does not fit into a leaf");
            }
            let key = take(key_bytes)?;
            let value = take(value_bytes)?;
            let value = match kind {
                DELETE => None,
                PUT => Some(StoredValue { big: false, bytes: value }),
                PUT_BIG => Some(StoredValue { big: true, bytes: value }),
                _ => return Err("a change of an unknown kind"),
            };
            visit(RecordChange { tree, key, value });
        }
    }
    if rest.is_empty() { Ok(()) } else { Err("a record with bytes left over") }
}
