//! The phase in which a cut falls, derived from the trace: paths and kinds of its operations, and remarks of
//! the harness.
//!
//! A cut is in a phase from the operation that begins it to the sync that ends it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use duramen_disk::memory::{OpInfo, OpKind, Trace};
use duramen_engine::Geometry;

/// Superblocks are before this offset.
const PAGES_FROM: u64 = 32768;

macro_rules! phases {
    ($($name:ident = $text:literal,)*) => {
        /// What the database is doing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has its words in `name`")]
        pub enum Phase { $($name,)* }

        impl Phase {
            /// Every phase.
            pub const ALL: &'static [Phase] = &[$(Phase::$name,)*];

            /// Whether a search must have met it. Only with debug assertions are the engine's bounds so small
            /// that runs of this size reach these phases.
            #[must_use]
            pub fn must_be_seen(self) -> bool {
                cfg!(debug_assertions) || !matches!(self, Phase::Punched | Phase::Nothing | Phase::Merging)
            }

            /// In words.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Phase::$name => $text,)* }
            }
        }
    };
}

phases! {
    Creation = "creation",
    SegmentChange = "segment change",
    SegmentMade = "segment made",
    Recycle = "recycle",
    Superblock = "between superblock write and sync",
    TailCut = "tail cut",
    Punched = "hole punched",
    ExtentUnlogged = "extent written, not logged",
    MultiFrame = "multi-frame record",
    RootSplit = "root split",
    RootMerge = "root merge",
    Catalogue = "catalogue change",
    Alone = "transaction that runs alone",
    Nothing = "empty commit for a dropped tree",
    Evicted = "dirty eviction",
    Spilled = "snapshot spilled",
    Sealed = "k syncing, k+1 sealed",
    HalfCheckpoint = "half-written checkpoint",
    CommitInCheckpoint = "commit in a half-written checkpoint",
    Compacting = "compaction",
    Merging = "patches merged",
    MarkIdle = "mark or background sync",
    Closing = "closing",
    Reopening = "reopening",
    Recovery = "recovery",
    Copying = "recovery copies unmarked groups",
}

/// A set of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases(u32);

impl Phases {
    /// Whether a phase is among them.
    #[must_use]
    pub fn has(self, phase: Phase) -> bool {
        self.0 & 1 << phase as u32 != 0
    }

    fn add(&mut self, phase: Phase) {
        self.0 |= 1 << phase as u32;
    }
}

/// The phases of every boundary of a trace.
#[must_use]
pub fn phases_of(trace: &Trace, created_at: usize, geometry: &Geometry) -> Vec<Phases> {
    let ops: Vec<OpInfo> = (0..trace.len()).map(|at| trace.op(at)).collect();
    let block_bytes = geometry.block_bytes as u64;
    let mut map = Map { phases: vec![Phases::default(); ops.len() + 1], ops: &ops, block_bytes };
    map.span(Phase::Creation, 0, created_at);
    map.writes();
    map.remarks();
    map.phases
}

/// The boundaries at which a recovery copied groups that no durable watermark covers. Empty if it copied
/// none.
///
/// The recovery took the first `opened_at` operations. The range goes from the first copied frame to the sync
/// of the header that makes the copy the log.
#[must_use]
pub fn copying(trace: &Trace, opened_at: usize, block_bytes: usize) -> Range<usize> {
    let writes: Vec<(usize, OpInfo)> = (0..opened_at)
        .map(|at| (at, trace.op(at)))
        .filter(|(_, op)| op.kind == OpKind::Write && is_segment(op))
        .collect();
    let first = writes.iter().find(|(_, op)| op.offset > 0);
    let header = writes.iter().rfind(|(_, op)| op.offset == 0 && op.bytes == block_bytes as u64);
    match (first, header) {
        (Some((first, _)), Some((header, _))) if first < header => first + 1..header + 2,
        _ => 0..0,
    }
}

struct Map<'a> {
    ops: &'a [OpInfo],
    /// A header block: a longer write at the start of a segment is a header with its first frame.
    block_bytes: u64,
    phases: Vec<Phases>,
}

impl Map<'_> {
    /// Boundaries from before operation `from` to before operation `to`.
    fn span(&mut self, phase: Phase, from: usize, to: usize) {
        let to = to.min(self.ops.len());
        self.phases[from..=to].iter_mut().for_each(|phases| phases.add(phase));
    }

    /// The next matching operation, or the end.
    fn next(&self, from: usize, fits: impl Fn(&OpInfo) -> bool) -> usize {
        self.ops[from..].iter().position(fits).map_or(self.ops.len(), |at| from + at)
    }

    fn sync_of(&self, from: usize) -> usize {
        self.next(from, |op| op.kind == OpKind::Sync && op.path == self.ops[from].path)
    }

    fn remark(&self, from: usize, texts: &[&str]) -> usize {
        self.next(from, |op| op.kind == OpKind::Mark && texts.iter().any(|text| op.note.starts_with(text)))
    }

    /// Finds the phases that the operations themselves show.
    fn writes(&mut self) {
        let mut uses: HashMap<PathBuf, u32> = HashMap::new();
        let mut reserved: HashMap<PathBuf, bool> = HashMap::new();
        for at in 0..self.ops.len() {
            let op = self.ops[at].clone();
            if is_segment(&op) && op.kind == OpKind::Write && op.offset == 0 {
                let zeroes = reserved.insert(op.path.clone(), false).unwrap_or(false);
                if zeroes {
                    self.span(Phase::SegmentMade, at, self.sync_of(at));
                } else if op.bytes > self.block_bytes {
                    self.span(Phase::SegmentChange, at, self.sync_of(at));
                    let use_count = uses.entry(op.path.clone()).or_default();
                    *use_count += 1;
                    if *use_count > 1 {
                        self.span(Phase::Recycle, at, self.sync_of(at));
                    }
                }
            }
            match op.kind {
                OpKind::Reserve if is_segment(&op) => drop(reserved.insert(op.path, true)),
                OpKind::Create | OpKind::Remove => drop(uses.remove(&op.path)),
                OpKind::Write if is_superblock(&op) => {
                    self.span(Phase::Superblock, at + 1, self.sync_of(at));
                }
                OpKind::SetLen if is_data(&op) => self.span(Phase::TailCut, at, self.sync_of(at)),
                OpKind::Punch => self.span(Phase::Punched, at + 1, self.sync_of(at)),
                _ => {}
            }
        }
    }

    /// Finds the phases that the remarks of the harness show.
    fn remarks(&mut self) {
        let remarks: Vec<(usize, String)> = self
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.kind == OpKind::Mark)
            .map(|(at, op)| (at, op.note.clone()))
            .collect();
        for (at, text) in remarks {
            match text.as_str() {
                "values" => self.values(at),
                "alone" => self.span(Phase::Alone, at, self.remark(at, &["committed"])),
                "checkpoint" => self.checkpoint(at),
                "evicted" => self.span(Phase::Evicted, at, self.next_data_sync(at)),
                "ordered in a sync" => {
                    let end = self.remark(at, &["committed", "checkpointed"]);
                    self.span(Phase::Sealed, at, end);
                }
                "compact" => self.span(Phase::Compacting, at, self.remark(at, &["compacted"])),
                "step" => self.step(at),
                "close" => self.span(Phase::Closing, at, self.remark(at, &["open"])),
                "open" => self.span(Phase::Reopening, at, self.remark(at, &["opened"])),
                commit if commit.starts_with("commit ") => self.commit(at, commit),
                _ => {}
            }
        }
    }

    fn next_data_sync(&self, at: usize) -> usize {
        self.next(at, |op| op.kind == OpKind::Sync && is_data(op))
    }

    /// Extents are written while a transaction is filled, and logged when it commits.
    fn values(&mut self, at: usize) {
        let end = self.remark(at, &["committed", "given up"]);
        let written = self.next(at, |op| op.kind == OpKind::Write && is_data(op));
        if written < self.remark(at, &["commit "]) {
            let logged = self.next(written, |op| op.kind == OpKind::Write && is_segment(op));
            self.span(Phase::ExtentUnlogged, written + 1, logged.min(end));
        }
    }

    fn checkpoint(&mut self, at: usize) {
        let end = self.remark(at, &["checkpointed"]);
        let merged = self.remark(at, &["merged"]);
        if merged < end {
            self.span(Phase::Merging, at, merged);
        }
        let first = self.next(at, |op| op.kind == OpKind::Write && is_data(op) && !is_superblock(op));
        let superblock = self.next(at, |op| op.kind == OpKind::Write && is_superblock(op));
        if first < superblock && superblock < end {
            self.span(Phase::HalfCheckpoint, first + 1, superblock);
            let inner = self.remark(first, &["inner commit"]);
            if inner < superblock {
                self.span(Phase::CommitInCheckpoint, inner, superblock);
            }
        }
    }

    /// A step that writes pages and no superblock has written back nodes of older snapshots.
    fn step(&mut self, at: usize) {
        let end = self.remark(at, &["stepped"]);
        if self.ops.get(end).is_some_and(|op| op.note.contains("empty commit")) {
            self.span(Phase::Nothing, at, end);
        }
        if self.ops.get(end).is_some_and(|op| op.note.contains("merged")) {
            self.span(Phase::Merging, at, end);
        }
        let page = self.next(at, |op| op.kind == OpKind::Write && is_data(op) && !is_superblock(op));
        let superblock = self.next(at, |op| op.kind == OpKind::Write && is_superblock(op));
        if page < end && superblock > end {
            self.span(Phase::Spilled, page, end);
        }
        let logged = self.next(at, |op| is_segment(op) && op.kind != OpKind::Reserve);
        if logged < end && logged < page.min(superblock) {
            self.span(Phase::MarkIdle, logged, end);
        }
    }

    fn commit(&mut self, at: usize, text: &str) {
        let end = self.remark(at, &["committed", "given up"]);
        if end < self.ops.len() && self.ops[end].note == "given up" {
            return;
        }
        if text.contains("bulk") {
            let frames = self.ops[at..end].iter();
            let segments = frames.filter(|op| {
                op.kind == OpKind::Write && is_segment(op) && op.offset == 0 && op.bytes > self.block_bytes
            });
            if segments.count() > 1 {
                self.span(Phase::MultiFrame, at, end);
            }
        }
        if text.contains("catalogue") {
            self.span(Phase::Catalogue, at, end);
        }
        // The new shape reaches the data file with the next checkpoint.
        let durable = self.next(end, |op| op.kind == OpKind::Write && is_superblock(op));
        let until = if durable - end < 200 { durable } else { end };
        if text.contains("split") {
            self.span(Phase::RootSplit, at, until);
        }
        if text.contains("merge") {
            self.span(Phase::RootMerge, at, until);
        }
    }
}

pub(crate) fn is_segment(op: &OpInfo) -> bool {
    op.path.extension().is_some_and(|extension| extension == "wal")
}

pub(crate) fn is_data(op: &OpInfo) -> bool {
    op.path.ends_with("data")
}

pub(crate) fn is_superblock(op: &OpInfo) -> bool {
    is_data(op) && op.offset < PAGES_FROM
}
