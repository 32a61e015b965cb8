//! The engine's view of the change feed: which trees are in it, and the positions of consumers.
//!
//! Owns the system tree of consumers. Format: docs/format.md, "Documents and collections".

use crate::store::{CommitSeq, FeedNeed, FeedRule};

use crate::catalog::entries::Origin;
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Shared, Snapshot, Source};
use crate::value::tuple::{Element, decode, encode};

/// The tree of consumers. Its key is the encoded name.
pub(crate) const CONSUMERS: &str = "duramen/consumers";

const VERSION: u8 = 1;
const STORED_BYTES: usize = 10;

/// The stored state of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Everything up to this commit was handled.
    pub(crate) position: CommitSeq,
    /// Whether writers are refused rather than changes lost.
    pub(crate) refuses_writers: bool,
}

impl Cursor {
    fn encode(self) -> [u8; STORED_BYTES] {
        let mut out = [VERSION, u8::from(self.refuses_writers), 0, 0, 0, 0, 0, 0, 0, 0];
        out[2..].copy_from_slice(&self.position.0.to_le_bytes());
        out
    }

    fn decode(name: &str, stored: &[u8]) -> Result<Cursor> {
        match stored {
            [VERSION, refuses @ 0..=1, position @ ..] if stored.len() == STORED_BYTES => Ok(Cursor {
                position: CommitSeq(u64::from_le_bytes(position.try_into().expect("eight of ten bytes"))),
                refuses_writers: *refuses == 1,
            }),
            [VERSION, ..] | [] => Err(Error::new(
                Code::CorruptData,
                format!("the cursor of the consumer {name:?} cannot be read"),
            )),
            [version, ..] => Err(Error::new(
                Code::Unsupported,
                format!("the consumer {name:?} was written by a later release, as version {version}"),
            )
            .with_hint("open the database with the release that wrote it")),
        }
    }
}

/// The stored state of a consumer; `None` if it is not registered.
pub(crate) fn cursor(source: &dyn Source, name: &str) -> Result<Option<Cursor>> {
    let Some(tree) = source.tree(CONSUMERS)? else { return Ok(None) };
    let stored = source.get(tree, &encode(&name)?)?;
    stored.map(|stored| Cursor::decode(name, &stored)).transpose()
}

/// Stores the state of a consumer, in a transaction that succeeds also while writers are refused.
pub(crate) fn set_cursor(tx: &Shared<'_>, name: &str, cursor: Cursor) -> Result<()> {
    let tree = match tx.tree(CONSUMERS)? {
        Some(tree) => tree,
        None => tx.create_tree(CONSUMERS, None)?,
    };
    tx.serve_feed();
    tx.put(tree, &encode(&name)?, &cursor.encode())
}

/// Removes a consumer. Returns whether it was registered.
pub(crate) fn forget(tx: &Shared<'_>, name: &str) -> Result<bool> {
    let Some(tree) = tx.tree(CONSUMERS)? else { return Ok(false) };
    let key = encode(&name)?;
    let was_there = tx.get(tree, &key)?.is_some();
    if was_there {
        tx.delete(tree, &key)?;
    }
    Ok(was_there)
}

/// Every consumer, by name.
pub(crate) fn cursors(source: &dyn Source) -> Result<Vec<(String, Cursor)>> {
    rows(source)?.into_iter().collect()
}

/// The row of each consumer, by name, or the error of decoding it.
fn rows(source: &dyn Source) -> Result<Vec<Result<(String, Cursor)>>> {
    let Some(tree) = source.tree(CONSUMERS)? else { return Ok(Vec::new()) };
    let mut rows = source.cursor(tree, KeyRange::all(), Direction::Forward)?;
    let mut all = Vec::new();
    while let Some((key, stored)) = rows.next()? {
        all.push(match decode(key).as_deref() {
            Ok([Element::Text(name)]) => Cursor::decode(name, stored).map(|cursor| (name.clone(), cursor)),
            _ => Err(Error::new(Code::CorruptData, "the name of a consumer cannot be read")),
        });
    }
    Ok(all)
}

/// Sets every consumer to before all kept changes, in a database with a new order of commits.
///
/// Their positions were in another order, so each of them gets `FeedGap`. Returns their names.
pub(crate) fn set_back(tx: &Shared<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    // An undecodable row is an error for its consumer, not here.
    for (name, cursor) in rows(tx)?.into_iter().flatten() {
        set_cursor(tx, &name, Cursor { position: CommitSeq(0), ..cursor })?;
        names.push(name);
    }
    Ok(names)
}

/// A value of a tree, as it is stored in a backup: a consumer is set to before all kept changes, as by
/// [`set_back`]. An undecodable row is copied as it is.
pub(crate) fn value_in_copy(tree: &str, value: Vec<u8>) -> Vec<u8> {
    match (tree == CONSUMERS).then(|| Cursor::decode("", &value)) {
        Some(Ok(cursor)) => Cursor { position: CommitSeq(0), ..cursor }.encode().to_vec(),
        _ => value,
    }
}

/// The engine reads this before it releases changes.
pub(crate) struct Rule;

impl FeedRule for Rule {
    fn is_source(&self, tree: &str) -> bool {
        Origin::of(tree).is_some()
    }

    fn needs(&self, at: &Snapshot) -> Result<Vec<FeedNeed>> {
        let need = |(name, cursor): (String, Cursor)| FeedNeed {
            name,
            after: cursor.position,
            refuses_writers: cursor.refuses_writers,
        };
        // An undecodable row must not prevent the next checkpoint. Its consumer gets the error.
        Ok(rows(at)?.into_iter().flatten().map(need).collect())
    }
}

#[cfg(test)]
mod tests {
    //! A wrongly decoded cursor would skip changes, or repeat them.
    use super::*;

    #[test]
    fn a_cursor_is_ten_bytes_and_another_version_says_so() {
        let cursor = Cursor { position: CommitSeq(0x0102_0304), refuses_writers: true };
        assert_eq!(cursor.encode(), [1, 1, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(Cursor::decode("c", &cursor.encode()).unwrap(), cursor);
        let code = |stored: &[u8]| Cursor::decode("c", stored).unwrap_err().code();
        assert_eq!(code(&[2, 0, 0]), Code::Unsupported);
        assert_eq!(code(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0]), Code::CorruptData);
        assert_eq!(code(&[1, 1, 4]), Code::CorruptData);
    }

    #[test]
    fn only_what_people_write_is_for_the_feed() {
        for (tree, is_source) in [
            ("duramen/rows/orders", true),
            ("duramen/kv/sessions", true),
            ("photos", true),
            ("duramen/collections", false),
            ("duramen/consumers", false),
            ("duramen/views/orders/by_city", false),
            ("duramen/of a later release/x", false),
        ] {
            assert_eq!(Rule.is_source(tree), is_source, "{tree}");
        }
    }
}
