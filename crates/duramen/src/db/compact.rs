//! Compaction: shortens the data file to what is left in it. The moving is the engine's; this adds what of
//! the change feed holds space.

use std::time::Duration;

use crate::access::handle::Db;
use crate::store::CommitSeq;
use crate::store::error::Result;
use crate::value::time::Time;

pub use crate::store::{CompactProgress, HeldSnapshot};

/// The result of a compaction: what was gained, and what still holds space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Length of the data file before.
    pub before_bytes: u64,
    /// Length of the data file after.
    pub after_bytes: u64,
    /// Bytes of pages and values that were moved.
    pub moved_bytes: u64,
    /// Bytes of pages that only snapshots of this process still need. Once these end, the next checkpoint
    /// frees them.
    pub held_bytes: u64,
    /// The oldest of these snapshots.
    pub oldest_snapshot: Option<HeldSnapshot>,
    /// Bytes of files that keep changes for the change feed.
    pub feed_bytes: u64,
    /// The consumers for which these files keep changes.
    pub consumers: Vec<HoldingConsumer>,
}

/// A consumer of the change feed for which files keep changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingConsumer {
    /// Its name.
    pub name: String,
    /// Everything up to this commit was handled.
    pub position: CommitSeq,
    /// The age of the first change that it has not handled. `None` if that cannot be read.
    pub age: Option<Duration>,
}

impl Db {
    /// Shortens the data file to what is left in it, while others read and write.
    ///
    /// Deleted documents leave free space between others, and the file does not become shorter. This moves
    /// pages from the end of the file to that space, packs pages that hold little, and cuts the file. No
    /// document changes, no transaction conflicts with it, and the change feed shows nothing. Snapshots keep
    /// the pages that they read: the file can be cut there once they end.
    ///
    /// It reads what tells where pages are, all pages of collections with values of 32 KiB or more, and what
    /// it moves, which it writes once. What it moves counts as space that open snapshots hold: with
    /// `snapshot_space_bytes_max` it may end them, and a backup that runs.
    ///
    /// It needs a little free space on the disk, and no more than `memory_bytes` of memory. It can be stopped
    /// at any time, by a crash too, and another call goes on. Pages without free space in them are split by
    /// later inserts between their keys: compact after many deletes, not regularly.
    ///
    /// The file keeps room ahead, as that of a closed database does: a sixteenth of what is used, at least
    /// 2 MiB or what writing every page anew takes, at most 24 MiB. So the file of a small database stays at
    /// some MiB, and another call may leave it a little longer or shorter.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// let notes = db.bytes("notes");
    /// notes.put("a", "1")?;
    /// notes.delete("a")?;
    /// let done = db.compact()?;
    /// println!("{} bytes, {} before", done.after_bytes, done.before_bytes);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if the database was opened read-only; `InvalidArgument` (E0201) if a compaction of
    /// it runs already; `DiskFull` (E0301) if there is no room to move anything, or to go on. Those of a
    /// [read](crate::Error#reads), a [commit](crate::Error#commits) and a
    /// [checkpoint](crate::Error#checkpoints).
    pub fn compact(&self) -> Result<Compacted> {
        self.compact_with(|_| Ok(()))
    }

    /// As [`Db::compact`], and reports its progress. An error from `progress` stops it; what was moved stays
    /// moved. `progress` must not wait for a thread that closes the database: the close waits until the
    /// compaction has ended.
    ///
    /// # Errors
    /// As [`Db::compact`]; errors of `progress`.
    pub fn compact_with(
        &self,
        mut progress: impl FnMut(&CompactProgress) -> Result<()>,
    ) -> Result<Compacted> {
        let report = self.engine().compact(&mut progress)?;
        Ok(Compacted {
            before_bytes: report.before_bytes,
            after_bytes: report.after_bytes,
            moved_bytes: report.moved_bytes,
            held_bytes: report.held_bytes,
            oldest_snapshot: report.oldest_snapshot,
            feed_bytes: self.feed().file_bytes,
            consumers: self.holding_consumers()?,
        })
    }

    fn holding_consumers(&self) -> Result<Vec<HoldingConsumer>> {
        let now = Time::now();
        let mut holding = Vec::new();
        let log_from = self.feed().log_from;
        for consumer in self.consumers()?.into_iter().filter(|consumer| !consumer.has_gap) {
            // Of commits without a change nothing is kept, and the log is there without consumers, too.
            let age = match self.all_changes().since(consumer.position).next() {
                None => continue,
                Some(Ok(first)) if first.seq > log_from => continue,
                Some(Ok(first)) => {
                    let seconds = now.seconds().saturating_sub(first.time.seconds());
                    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
                }
                Some(Err(_)) if consumer.position >= log_from => continue,
                Some(Err(_)) => None,
            };
            holding.push(HoldingConsumer { name: consumer.name, position: consumer.position, age });
        }
        Ok(holding)
    }
}
