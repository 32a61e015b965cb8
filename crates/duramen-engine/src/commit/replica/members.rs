//! The members of the cluster: the row that each entry of members writes, on every node alike.
//!
//! When a node starts, consensus asks for the members as of the last commit that is applied. So the row is
//! part of the database. What is in an entry of members is not known here.

use crate::catalog::{CATALOG, CatalogRow};
use crate::commit::Committer;
use crate::commit::changes::{Changes, OwnedValue};
use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::ids::{CommitSeq, TreeId};
use crate::raft_log::{Entry, EntryId, EntryKind, OrderedOn};

/// The tree that has the row. It is made when a database becomes the first node of a cluster, and stays.
pub(crate) const CLUSTER: &str = "duramen/cluster";
/// The key of the row.
pub(crate) const MEMBERS: &[u8] = b"members";

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 17;

impl Committer {
    /// The commit that names the members of the first node's cluster: it is applied without a decision.
    pub(crate) fn founding_entry(&self, tree: Option<TreeId>, members: &[u8], time_ns: u64) -> Entry {
        let id = EntryId { term: 0, seq: self.published().seq.next() };
        let mut changes = Changes::default();
        let tree = tree.unwrap_or_else(|| {
            let tree = self.new_tree_id();
            let row = CatalogRow { id: tree, spec: None, features: Features::NONE };
            changes.set(CATALOG, CLUSTER.as_bytes(), Some(small(row.encode())));
            tree
        });
        changes.set(tree, MEMBERS, Some(small(encode(id, members))));
        Entry {
            id,
            ordered: OrderedOn { seq: id.seq, ..OrderedOn::default() },
            time_ns,
            kind: EntryKind::Changes,
            bytes: changes.encode().into(),
        }
    }

    /// What an entry of members changes.
    pub(super) fn changes_of_members(&self, entry: &Entry) -> Changes {
        let tree = self.order.lock().replica().members.expect("a node that was opened has the tree");
        let mut changes = Changes::default();
        changes.set(tree, MEMBERS, Some(small(encode(entry.id, &entry.bytes))));
        changes
    }
}

fn small(bytes: Vec<u8>) -> OwnedValue {
    OwnedValue { big: false, bytes }
}

/// The row that an entry with these members writes.
pub(crate) fn encode(id: EntryId, members: &[u8]) -> Vec<u8> {
    let (term, seq) = (id.term.to_le_bytes(), id.seq.0.to_le_bytes());
    [&[VERSION], &term[..], &seq[..], members].concat()
}

/// The entry that a row was written for, and what the entry says.
///
/// # Errors
/// `CorruptData` (E0501) if the row cannot be read.
pub(crate) fn decode(row: &[u8]) -> Result<(EntryId, Vec<u8>)> {
    let bad = || Error::new(Code::CorruptData, "the row of the cluster's members is of another version");
    let (head, members) = row.split_at_checked(HEAD_BYTES).ok_or_else(bad)?;
    if head[0] != VERSION {
        return Err(bad());
    }
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    Ok((EntryId { term: number(1), seq: CommitSeq(number(9)) }, members.to_vec()))
}
