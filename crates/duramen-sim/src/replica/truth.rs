//! What a majority has decided, and what that makes of the database.

use std::collections::HashMap;
use std::sync::Arc;

use duramen_engine::{CommitSeq, Entry, EntryId, EntryKind, LogEnd};

use crate::contents::Contents;

/// A change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    Put { tree: String, key: Vec<u8>, value: Vec<u8> },
    Delete { tree: String, key: Vec<u8> },
    Create { tree: String },
    Drop { tree: String },
}

/// The members that the first node begins with.
pub(super) const MEMBERS: &[u8] = b"one";

/// The changes of a transaction, in their order.
pub(super) type Effect = Vec<Write>;

/// The decided entries, and the contents after each.
#[derive(Debug, Clone)]
pub(super) struct Truth {
    /// Where the log begins.
    pub(super) begins: LogEnd,
    entries: Vec<Entry>,
    ends: Vec<LogEnd>,
    /// Whether each changes something.
    counting: Vec<bool>,
    states: Vec<Contents>,
    /// What the content of an entry does.
    pub(super) effects: HashMap<Vec<u8>, Effect>,
}

pub(super) fn apply(contents: &mut Contents, effect: &Effect) {
    for write in effect {
        match write {
            Write::Put { tree, key, value } => {
                contents.tree_mut(tree).rows.insert(key.clone(), value.clone());
            }
            Write::Delete { tree, key } => drop(contents.tree_mut(tree).rows.remove(key)),
            Write::Create { tree } => drop(contents.tree_mut(tree)),
            Write::Drop { tree } => contents.drop_tree(tree),
        }
    }
}

/// The row of the members, as docs/format.md describes it.
fn name_members(contents: &mut Contents, id: EntryId, members: &[u8]) {
    let row = [&[1], &id.term.to_le_bytes()[..], &id.seq.0.to_le_bytes(), members].concat();
    contents.tree_mut("duramen/cluster").rows.insert(b"members".to_vec(), row);
}

impl Truth {
    pub(super) fn new(begins: LogEnd, mut contents: Contents) -> Truth {
        name_members(&mut contents, begins.id, MEMBERS);
        let (entries, counting, effects) = Default::default();
        Truth { begins, entries, ends: Vec::new(), counting, states: vec![contents], effects }
    }

    /// The last decided entry.
    pub(super) fn last(&self) -> u64 {
        self.begins.id.seq.0 + self.entries.len() as u64
    }

    pub(super) fn end(&self, seq: u64) -> LogEnd {
        match seq - self.begins.id.seq.0 {
            0 => self.begins,
            index => self.ends[usize::try_from(index - 1).expect("few entries")],
        }
    }

    /// The decided entries after `after`, up to `through`.
    pub(super) fn entries(&self, after: u64, through: u64) -> &[Entry] {
        let index = |seq: u64| usize::try_from(seq - self.begins.id.seq.0).expect("few entries");
        &self.entries[index(after)..index(through)]
    }

    /// The contents after a decided entry.
    pub(super) fn contents(&self, seq: u64) -> &Contents {
        &self.states[usize::try_from(seq - self.begins.id.seq.0).expect("few entries")]
    }

    /// Decides on one more entry.
    pub(super) fn decide(&mut self, entry: Entry) {
        let end = self.end(self.last());
        assert_eq!(entry.id.seq, end.id.seq.next(), "entries are decided in their order");
        // By the letter of the rule, not by the engine's code.
        let counts = entry.kind == EntryKind::Changes
            && entry.ordered.term == entry.id.term
            && entry.ordered.seq == entry.id.seq
            && entry.ordered.chain == end.chain;
        let mut contents = self.states.last().expect("there is a first state").clone();
        if entry.kind == EntryKind::Members {
            name_members(&mut contents, entry.id, &entry.bytes);
        }
        if counts {
            apply(&mut contents, &self.effects[&entry.bytes[..]]);
        }
        self.ends.push(end.after(&entry));
        self.counting.push(counts);
        self.states.push(contents);
        self.entries.push(entry);
    }

    /// Whether an order of this identity, lineage and place has happened.
    pub(super) fn happened(&self, proposed: &Entry) -> bool {
        let seq = proposed.id.seq.0;
        if seq > self.last() {
            return false;
        }
        let index = usize::try_from(seq - self.begins.id.seq.0 - 1).expect("few entries");
        self.counting[index] && self.entries[index].ordered == proposed.ordered
    }
}

/// An entry of a leader that is not this node, at the end of a log.
pub(super) fn foreign(end: &LogEnd, term: u64, kind: EntryKind, bytes: Arc<[u8]>) -> Entry {
    let seq = CommitSeq(end.id.seq.0 + 1);
    let ordered = duramen_engine::OrderedOn { term, lineage: 7, seq, chain: end.chain };
    let ordered = if kind == EntryKind::Changes { ordered } else { Default::default() };
    Entry { id: EntryId { term, seq }, ordered, time_ns: end.time_ns + 1, kind, bytes }
}
