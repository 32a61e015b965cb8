//! A commit in a retained file: a sequence of items, over as many frames as needed. Encoding and decoding
//! only.
//!
//! A commit: sequence (u64), commit time (u64), items, the item `END`. The item `TREE` names the tree of the
//! items after it. Format: docs/format.md, "The change feed".

use std::sync::Arc;

use super::{FeedChange, FeedCommit, FeedWhat};
use crate::error::Result;
use crate::ids::{CommitSeq, TreeId};
use crate::limits::KEY_BYTES_MAX;

const END: u8 = 0;
const TREE: u8 = 1;
const CREATED: u8 = 2;
const DROPPED: u8 = 3;
const PUT: u8 = 4;
const DELETED: u8 = 5;
const LOST: u8 = 6;

const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize, "an item holds the length of a key in two bytes");
const _: () = assert!(
    END < TREE && TREE < CREATED && CREATED < DROPPED && DROPPED < PUT && PUT < DELETED && DELETED < LOST,
    "no two kinds of items have the same number"
);

/// The beginning of a commit.
pub(super) fn begin(seq: CommitSeq, time_ns: u64) -> Vec<u8> {
    [seq.0.to_le_bytes(), time_ns.to_le_bytes()].concat()
}

/// The end of a commit.
pub(super) const fn end() -> [u8; 1] {
    [END]
}

/// The items after this one are about this tree.
pub(super) fn tree(id: TreeId, name: &str) -> Vec<u8> {
    let mut out = vec![TREE];
    out.extend_from_slice(&id.0.to_le_bytes());
    sized(name.as_bytes(), &mut out);
    out
}

/// The tree was created.
pub(super) const fn created() -> [u8; 1] {
    [CREATED]
}

/// The tree was dropped.
pub(super) const fn dropped() -> [u8; 1] {
    [DROPPED]
}

/// A value of this many bytes was put; its bytes follow.
pub(super) fn put(key: &[u8], value_bytes: u64) -> Vec<u8> {
    let mut out = keyed(PUT, key);
    out.extend_from_slice(&value_bytes.to_le_bytes());
    out
}

/// A key was deleted.
pub(super) fn deleted(key: &[u8]) -> Vec<u8> {
    keyed(DELETED, key)
}

/// A value was put and cannot be read.
pub(super) fn lost(key: &[u8]) -> Vec<u8> {
    keyed(LOST, key)
}

fn keyed(item: u8, key: &[u8]) -> Vec<u8> {
    let mut out = vec![item];
    sized(key, &mut out);
    out
}

fn sized(bytes: &[u8], out: &mut Vec<u8>) {
    let count = u16::try_from(bytes.len()).expect("keys and names are at most KEY_BYTES_MAX");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// A source of items.
pub(super) trait Source {
    /// Reads the next `count` bytes.
    fn take(&mut self, count: u64) -> Result<Vec<u8>>;

    /// Skips `count` bytes.
    fn skip(&mut self, count: u64) -> Result<()>;

    /// The error for bytes that are not an item.
    fn bad(&self, what: &str) -> crate::error::Error;
}

/// Reads one commit with the changes of the wanted trees, possibly none.
pub(super) fn read(source: &mut dyn Source, wants: &dyn Fn(&str) -> bool) -> Result<FeedCommit> {
    let seq = CommitSeq(number(source, 8)?);
    let time_ns = number(source, 8)?;
    let mut commit = FeedCommit { seq, time_ns, changes: Vec::new() };
    let mut tree: Option<(TreeId, Arc<str>)> = None;
    let mut is_wanted = false;
    loop {
        let what = match source.take(1)?[0] {
            END => return Ok(commit),
            TREE => {
                let id = TreeId(number(source, 8)?);
                let name = key(source)?;
                let name = std::str::from_utf8(&name).map_err(|_| source.bad("a name is no text"))?;
                is_wanted = wants(name);
                tree = Some((id, Arc::from(name)));
                continue;
            }
            CREATED => FeedWhat::Created,
            DROPPED => FeedWhat::Dropped,
            PUT => {
                let key = key(source)?;
                let value_bytes = number(source, 8)?;
                if !is_wanted {
                    source.skip(value_bytes)?;
                    continue;
                }
                FeedWhat::Put { key, value: source.take(value_bytes)? }
            }
            DELETED => FeedWhat::Deleted { key: key(source)? },
            LOST => FeedWhat::Lost { key: key(source)? },
            other => return Err(source.bad(&format!("an item of kind {other}"))),
        };
        let Some((id, name)) = &tree else { return Err(source.bad("a change of no tree")) };
        if is_wanted {
            commit.changes.push(FeedChange { tree: *id, name: Arc::clone(name), what });
        }
    }
}

fn number(source: &mut dyn Source, count: u64) -> Result<u64> {
    Ok(source.take(count)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn key(source: &mut dyn Source) -> Result<Vec<u8>> {
    let count = number(source, 2)?;
    source.take(count)
}
