//! Puts merged leaves into a tree. Its entries stay as they are.

use std::sync::Arc;

use super::super::merge::MergedLeaf;
use super::super::node::{Body, Node};
use super::super::slot::Slot;
use super::compacted::same_reduction;
use super::{Apply, ApplyError, Outcome, Piece, splice};
use crate::alarm::invariant;
use crate::data_file::PagePointer;

impl Apply<'_> {
    /// The tree with leaves, in order of keys, in the places of those that they were built from. The pages of
    /// leaves whose places have changed meanwhile are added to `unused`.
    ///
    /// # Errors
    /// [`ApplyError`]; the tree is as before.
    pub(crate) fn merged(
        &mut self,
        root: &Slot,
        leaves: &[MergedLeaf],
        unused: &mut Vec<PagePointer>,
    ) -> Result<Slot, ApplyError> {
        let outcome = self.merge(root, leaves, unused)?;
        self.under_one_root(root, outcome)
    }

    fn merge(
        &mut self,
        slot: &Slot,
        leaves: &[MergedLeaf],
        unused: &mut Vec<PagePointer>,
    ) -> Result<Outcome, ApplyError> {
        let node = self.load(slot)?;
        let Body::Inner(inner) = node.body() else {
            unused.extend(leaves.iter().filter_map(MergedLeaf::page));
            return Ok(Outcome::Same);
        };
        let mut changed = Vec::new();
        let child_of = |leaf: &MergedLeaf| inner.separators().child_of(&leaf.key);
        for here in leaves.chunk_by(|a, b| child_of(a) == child_of(b)) {
            let child = child_of(&here[0]);
            let outcome = match inner.level {
                1 => self.place(inner.slot(child), here, unused),
                _ => self.merge(inner.slot(child), here, unused)?,
            };
            if let Outcome::Pieces(pieces) = outcome {
                changed.push((child, pieces));
            }
        }
        if changed.is_empty() {
            return Ok(Outcome::Same);
        }
        let is_sorted = changed.is_sorted_by(|(a, _), (b, _)| a < b);
        invariant!(is_sorted, "{} merged leaves are in order, each once", changed.len());
        let pieces = match inner.with_pieces(&changed, self.geometry.inner_bytes_max) {
            Some(inner) => vec![self.inner_piece(Vec::new(), inner)],
            None => self.inner_pieces(inner.level, splice(inner, changed)),
        };
        node.keep_shared(pieces.iter().map(|piece| &piece.slot));
        if let [only] = &pieces[..] {
            same_reduction(&node, only);
        }
        self.replace(&node);
        Ok(Outcome::Pieces(pieces))
    }

    /// The merged leaf that was built from the one in a slot, if there is one among these.
    fn place(&mut self, slot: &Slot, leaves: &[MergedLeaf], unused: &mut Vec<PagePointer>) -> Outcome {
        let mut outcome = Outcome::Same;
        for MergedLeaf { old: (old, old_node), node, .. } in leaves {
            if matches!(outcome, Outcome::Same) && slot.same_as(old) {
                self.replace(old_node);
                let slot = self.merged_slot(slot, node);
                outcome = Outcome::Pieces(vec![Piece { separator: Vec::new(), slot, small: false }]);
            } else {
                unused.extend(node.page());
            }
        }
        outcome
    }

    /// The slot of a merged leaf. It is in memory only if the leaf before it is: a merge reads many leaves
    /// that no reader and no writer has used lately.
    fn merged_slot(&self, before: &Slot, node: &Arc<Node>) -> Slot {
        let meter = self.pages.meter();
        match node.pointer().filter(|_| !before.is_resident()) {
            Some(pointer) => Slot::on_disk(meter, node.count(), pointer.clone()),
            None => Slot::resident(meter, Arc::clone(node)),
        }
    }
}
