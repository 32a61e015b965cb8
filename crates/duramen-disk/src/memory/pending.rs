//! The pending changes of one file, and what a sync makes of them.
//!
//! Owns the order in which changes of a file become durable: all up to a point, or one write ahead of older
//! ones. It never touches names. D1 rests on this: no older write becomes durable over a durable one.

use std::ops::Range;
use std::sync::Arc;

use super::content::{Content, index};
use super::crash::{Rest, tear};
use super::model::{OpSeq, SyncOutcome};
use super::random::Random;

/// A change to the bytes or the length of one file.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen { bytes: u64 },
    Reserve { offset: u64, bytes: u64 },
    Punch { offset: u64, bytes: u64 },
}

#[derive(Debug, Clone)]
pub(super) struct Pending<T> {
    pub(super) seq: OpSeq,
    pub(super) change: T,
}

#[derive(Clone, Default)]
pub(super) struct ModelFile {
    pub(super) durable: Content,
    pub(super) pending: Vec<Pending<Change>>,
}

impl Change {
    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            Change::Write { offset, bytes } => content.write(*offset, bytes),
            Change::SetLen { bytes } => content.set_len(*bytes),
            Change::Reserve { offset, bytes } => content.reserve(*offset, *bytes),
            Change::Punch { offset, bytes } => content.punch(*offset, *bytes),
        }
    }

    /// Whether the change concerns the length or the allocation. Such a change is metadata. A file system
    /// that cannot write its metadata stops writing altogether. A failed sync therefore does not lose it
    /// while later syncs succeed.
    fn is_of_length(&self) -> bool {
        matches!(self, Change::SetLen { .. } | Change::Reserve { .. })
    }
}

impl ModelFile {
    pub(super) fn sync(&mut self, before: OpSeq, outcome: SyncOutcome) {
        if matches!(outcome, SyncOutcome::Lied | SyncOutcome::Failed) {
            return;
        }
        let covered = self.pending.partition_point(|pending| pending.seq < before);
        if let SyncOutcome::FailedInPart(seed) = outcome {
            return self.part(seed, |pending| pending.seq < before);
        }
        let later = self.pending.split_off(covered);
        let retired = std::mem::replace(&mut self.pending, later);
        if outcome == SyncOutcome::Done {
            retired.iter().for_each(|pending| pending.change.apply(&mut self.durable));
        } else {
            let lengths = retired.into_iter().filter(|pending| pending.change.is_of_length());
            self.pending.splice(..0, lengths);
        }
    }

    /// Makes one write durable ahead of older pending changes.
    ///
    /// The older ones must not overwrite it later, so the shared ranges are cut out of them. Earlier changes
    /// of the length are part of the same metadata and become durable too.
    pub(super) fn sync_write(&mut self, write: OpSeq, outcome: SyncOutcome) {
        if matches!(outcome, SyncOutcome::Lied | SyncOutcome::Failed) {
            return;
        }
        if let SyncOutcome::FailedInPart(seed) = outcome {
            return self.part(seed, |pending| pending.seq == write);
        }
        let mut kept: Vec<Pending<Change>> = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            let chosen = pending.seq == write;
            let length = pending.seq < write && pending.change.is_of_length();
            if !chosen && !length {
                kept.push(pending);
                continue;
            }
            if outcome == SyncOutcome::Done {
                kept = kept.into_iter().flat_map(|older| older.without(&pending.change)).collect();
                pending.change.apply(&mut self.durable);
            } else if !chosen {
                kept.push(pending);
            }
        }
        self.pending = kept;
    }

    /// Draws a fate for each change that a failed sync covered: written, whole or torn; lost; or pending.
    ///
    /// The cache holds one page for an older and a newer change, so both share the newer one's fate.
    fn part(&mut self, seed: u64, covered: impl Fn(&Pending<Change>) -> bool) {
        let mut random = Random::new(seed);
        let mut kept: Vec<Pending<Change>> = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            let lot = random.below(4);
            if lot == 0 || !covered(&pending) || lot == 1 && pending.change.is_of_length() {
                kept.push(pending);
                continue;
            }
            kept = kept.into_iter().flat_map(|older| older.without(&pending.change)).collect();
            match (lot, &pending.change) {
                (1, _) => {}
                (2, Change::Write { offset, bytes }) => {
                    tear(&mut self.durable, *offset, bytes, &mut random, Rest::Old);
                }
                _ => pending.change.apply(&mut self.durable),
            }
        }
        self.pending = kept;
    }

    /// What reads show once the cache has dropped its clean pages: the durable bytes under the pending ones.
    pub(super) fn without_clean_pages(&self) -> Content {
        let mut content = self.durable.clone();
        self.pending.iter().for_each(|pending| pending.change.apply(&mut content));
        content
    }

    pub(super) fn flip(&mut self, offset: u64, bit: u8) {
        self.durable.flip(offset, bit);
        for pending in &mut self.pending {
            if let Change::Write { offset: start, bytes } = &mut pending.change
                && let Some(place) = offset.checked_sub(*start).and_then(|place| usize::try_from(place).ok())
                && place < bytes.len()
            {
                Arc::make_mut(bytes)[place] ^= 1 << (bit % 8);
            }
        }
    }
}

impl Pending<Change> {
    /// What is left of an older change once a `newer` one has become durable first.
    fn without(self, newer: &Change) -> Vec<Pending<Change>> {
        let gone = match newer {
            Change::Write { offset, bytes } => *offset..*offset + bytes.len() as u64,
            Change::SetLen { bytes } => *bytes..u64::MAX,
            Change::Punch { offset, bytes } => *offset..offset.saturating_add(*bytes),
            Change::Reserve { .. } => return vec![self],
        };
        let seq = self.seq;
        match &self.change {
            Change::Write { offset, bytes } => {
                let range = *offset..*offset + bytes.len() as u64;
                let cut = |part: &Range<u64>| {
                    let from = index(part.start - offset);
                    let to = index(part.end - offset);
                    Change::Write { offset: part.start, bytes: Arc::from(&bytes[from..to]) }
                };
                outside(&range, &gone).iter().map(|part| Pending { seq, change: cut(part) }).collect()
            }
            Change::Punch { offset, bytes } => {
                let range = *offset..offset.saturating_add(*bytes);
                let cut =
                    |part: &Range<u64>| Change::Punch { offset: part.start, bytes: part.end - part.start };
                outside(&range, &gone).iter().map(|part| Pending { seq, change: cut(part) }).collect()
            }
            Change::SetLen { .. } | Change::Reserve { .. } => vec![self],
        }
    }
}

/// The parts of `range` that `gone` does not cover.
fn outside(range: &Range<u64>, gone: &Range<u64>) -> Vec<Range<u64>> {
    let before = range.start..range.end.min(gone.start);
    let after = range.start.max(gone.end)..range.end;
    [before, after].into_iter().filter(|part| part.start < part.end).collect()
}
