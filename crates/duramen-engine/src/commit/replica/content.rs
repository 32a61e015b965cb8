//! The content of an entry: the changes of a transaction, with big values whole.
//!
//! It has the form of a log record. Where a record refers to a big value, in extents of the node's own data
//! file, the content has the value. Each node writes its own extents.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::CATALOG;
use crate::checkpoint::write_value;
use crate::commit::Committer;
use crate::commit::changes::{Changes, OwnedValue, RecordChange, decode_content, decode_record};
use crate::data_file::PagePointer;
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::limits::RAFT_ENTRY_BYTES_MAX;
use crate::raft_log::Entry;
use crate::tree::{BigRef, ReducerSpec, entry_reduction};
use crate::wal::Record;

impl Committer {
    /// The content of the entry that a record becomes.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a big value cannot be read.
    pub(super) fn content_of(&self, record: &Record) -> Result<Arc<[u8]>> {
        let mut has_big_values = false;
        let mut visit = |change: RecordChange<'_>| {
            has_big_values |= change.value.is_some_and(|value| value.big);
        };
        decode_record(record.bytes(), &mut visit).expect("a record that was just encoded");
        if !has_big_values {
            return Ok(record.bytes().into());
        }
        let (mut whole, mut failed) = (Changes::default(), None);
        let mut visit = |change: RecordChange<'_>| match self.whole_value(&change) {
            Ok(value) => drop(whole.set(change.tree, change.key, value)),
            Err(error) => drop(failed.get_or_insert(error)),
        };
        decode_record(record.bytes(), &mut visit).expect("a record that was just encoded");
        failed.map_or_else(|| Ok(whole.encode().into()), Err)
    }

    /// Fails for a transaction whose content is longer than an entry may be, before it is ordered.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(in crate::commit) fn fits_into_an_entry(&self, record: &[u8], has_big_values: bool) -> Result<()> {
        let mut bytes = record.len() as u64;
        let mut visit = |change: RecordChange<'_>| {
            let big = change.value.filter(|value| value.big);
            bytes += big.and_then(|value| BigRef::decode(value.bytes).ok()).map_or(0, |big| big.len);
        };
        if has_big_values {
            decode_record(record, &mut visit).expect("a record that was just encoded");
        }
        if bytes <= RAFT_ENTRY_BYTES_MAX as u64 {
            return Ok(());
        }
        let message = format!("the changes of the transaction take more than {RAFT_ENTRY_BYTES_MAX} bytes");
        Err(Error::new(Code::TooLarge, message)
            .with_hint("commit in smaller transactions, and blobs in pieces"))
    }

    /// The value of a change, read from its extents if it is a big one.
    fn whole_value(&self, change: &RecordChange<'_>) -> Result<Option<OwnedValue>> {
        let Some(value) = change.value else { return Ok(None) };
        if !value.big {
            return Ok(Some(OwnedValue { big: false, bytes: value.bytes.to_vec() }));
        }
        let big = BigRef::decode(value.bytes)?;
        Ok(Some(OwnedValue { big: true, bytes: big.read(&self.store.pages)? }))
    }

    /// The changes of an entry, and the pages of the big values that were written for it.
    ///
    /// # Errors
    /// `Corrupt` if the content cannot be read; `Full` or `Io` if a big value cannot be written.
    pub(super) fn changes_of(&self, entry: &Entry) -> Result<(Changes, Vec<PagePointer>)> {
        let seq = entry.id.seq;
        let bad = |what: &str| {
            Error::new(Code::CorruptLog, format!("the changes of entry {seq} cannot be read: {what}"))
        };
        let (mut decoded, mut created) = (Vec::new(), BTreeMap::new());
        decode_content(&entry.bytes, &mut |change| decoded.push(change)).map_err(bad)?;
        if !decoded.is_sorted_by(|a, b| (a.tree, a.key) < (b.tree, b.key)) {
            return Err(bad("they are not sorted, or one key is there twice"));
        }
        for change in decoded.iter().filter(|change| change.tree == CATALOG) {
            if let (_, Some(row)) = change.naming().map_err(bad)? {
                self.raise_next_tree(row.id.next());
                created.insert(row.id, row.spec);
            }
        }
        let (mut changes, mut pages) = (Changes::default(), Vec::new());
        for change in decoded {
            let value = match change.value {
                Some(value) if value.big => match self.written_value(&change, value.bytes, &created) {
                    Ok((value, more)) => {
                        pages.extend(more);
                        Some(value)
                    }
                    Err(error) => {
                        self.store.space.value_aborted(&pages);
                        return Err(error);
                    }
                },
                value => value.map(|value| OwnedValue { big: false, bytes: value.bytes.to_vec() }),
            };
            changes.set(change.tree, change.key, value);
        }
        Ok((changes, pages))
    }

    fn written_value(
        &self,
        change: &RecordChange<'_>,
        bytes: &[u8],
        created: &BTreeMap<TreeId, Option<ReducerSpec>>,
    ) -> Result<(OwnedValue, Vec<PagePointer>)> {
        let latest = self.latest();
        let reducer = match created.get(&change.tree) {
            Some(spec) => spec.as_ref().and_then(|spec| self.store.reducers.find(spec)),
            None => latest.trees.get(change.tree).and_then(|tree| tree.reducer.clone()),
        };
        let one = reducer.map(|reducer| entry_reduction(&*reducer, change.key, bytes)).transpose()?;
        let (mut big, pages) = write_value(&self.store, &mut &bytes[..])?;
        big.one = one;
        Ok((OwnedValue { big: true, bytes: big.encode() }, pages))
    }
}
