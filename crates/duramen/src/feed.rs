//! The change feed: changes, consumers, and the observer of another process.

pub(crate) mod changes;
pub(crate) mod consumer;
pub(crate) mod observer;
pub(crate) mod outside;
pub(crate) mod positions;

use std::sync::Arc;

use crate::access::collection::Collection;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::feed::changes::{AnyChange, Change, Changes};
use crate::feed::consumer::{ConsumerOptions, ConsumerState};
use crate::feed::outside::FeedPosition;
use crate::store::error::Result;
use crate::store::{CommitSeq, FeedHold, FeedReader, FeedStats};

impl Db {
    /// The changes of a collection after a commit: durable ones only, in the order of commits, each once.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Debug, Serialize, Deserialize, Collection)]
    /// # struct Order { #[key] id: u64, cents: i64 }
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// let seen = db.feed().newest;
    /// db.put(&Order { id: 1, cents: 1250 })?;
    /// for change in db.changes::<Order>().since(seen) {
    ///     let change = change?;
    ///     println!("{}: {:?}", change.seq, change.document());
    /// #   assert_eq!(change.key(), Some(1));
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn changes<C: Collection>(&self) -> Changes<Change<C>> {
        Changes::new(self)
    }

    /// All changes: of collections, key-values and trees of bytes.
    #[must_use]
    pub fn all_changes(&self) -> Changes<AnyChange> {
        Changes::new(self)
    }

    /// A consumer of changes by name.
    ///
    /// Its position is stored in the same transaction as the work it does. Changes that it has not read are
    /// kept for it.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Debug, Serialize, Deserialize, Collection)]
    /// # struct Order { #[key] id: u64, cents: i64 }
    /// # #[derive(Debug, Serialize, Deserialize, Collection)]
    /// # struct Mail { #[key] order: u64 }
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// let mailer = db.consumer("mailer").from_now().register()?;
    /// db.put(&Order { id: 1, cents: 1250 })?;
    /// mailer.read::<duramen::Change<Order>>()?.run(|tx, changes| {
    ///     for order in changes.iter().filter_map(|change| change.document()) {
    ///         tx.put(&Mail { order: order.id })?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # assert!(db.get::<Mail>(1)?.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn consumer(&self, name: impl Into<String>) -> ConsumerOptions {
        ConsumerOptions::new(self, name.into())
    }

    /// Every consumer: its position, and whether changes it has not read are still kept.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn consumers(&self) -> Result<Vec<ConsumerState>> {
        let FeedStats { oldest, newest, .. } = self.feed();
        let state = |(name, cursor): (String, positions::Cursor)| ConsumerState {
            name,
            position: cursor.position,
            lag_commits: newest.0.saturating_sub(cursor.position.0),
            refuses_writers: cursor.refuses_writers,
            has_gap: cursor.position < oldest,
        };
        Ok(positions::cursors(self.snapshot()?.source())?.into_iter().map(state).collect())
    }

    /// What the change feed holds now, and the oldest change that can be read.
    #[must_use]
    pub fn feed(&self) -> FeedStats {
        self.engine().feed_stats()
    }

    /// The position after the newest durable commit, for a program that stores its position elsewhere.
    #[must_use]
    pub fn feed_position(&self) -> FeedPosition {
        FeedPosition { database: self.engine().database_id(), seq: self.feed().newest }
    }

    pub(crate) fn read_feed(
        &self,
        after: CommitSeq,
        wants: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<FeedReader> {
        self.engine().feed(after, Arc::new(wants))
    }

    pub(crate) fn hold_feed(&self, after: CommitSeq) -> Result<FeedHold> {
        self.engine().hold_feed(after)
    }
}
