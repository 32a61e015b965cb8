//! Consumers: permanent readers of the change feed, with a position that is stored together with their work.
//!
//! A batch of changes, the program's writes for them, and the new position are one transaction. So each
//! change takes effect exactly once, also across crashes. Unread changes are kept for a consumer, also while
//! no process has the database open. What a migration or a cascading delete writes is a change, too.

use std::fmt;
use std::time::Duration;

use crate::store::{CommitSeq, Durability, FeedReader};

use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::feed::changes::{ChangeStop, Delivered, changes_of, open};
use crate::feed::outside::COPY_FIRST;
use crate::feed::positions::{self, Cursor};
use crate::store::error::{Code, Error, Result};

/// The default number of changes per batch. Changes of one commit stay together, however many.
const BATCH_CHANGES: usize = 256;

/// After this many commits without a change for it, a consumer stores that it has read them, so that they can
/// be released.
const UNSTORED_COMMITS_MAX: u64 = 64;

/// Attempts to find a start position, if that is released meanwhile.
pub(crate) const HOLD_ROUNDS: usize = 16;

/// The position at which a consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Start {
    #[default]
    Now,
    Beginning,
    Oldest,
    After(CommitSeq),
}

/// A consumer by name, before it is registered: where it begins, and what happens if it lags.
#[derive(Debug)]
pub struct ConsumerOptions {
    db: Db,
    name: String,
    start: Start,
    refuses_writers: bool,
}

/// A consumer of the change feed, registered in the database.
#[derive(Debug, Clone)]
pub struct Consumer {
    db: Db,
    name: String,
}

/// The stored state of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerState {
    /// Its name.
    pub name: String,
    /// Everything up to this commit was handled.
    pub position: CommitSeq,
    /// Durable commits after that one, whether or not they concern the consumer.
    pub lag_commits: u64,
    /// Whether writers are refused if it lags too far. Otherwise it loses changes.
    pub refuses_writers: bool,
    /// Changes that it has not read are gone: its next read returns [`FeedGap`](Code::FeedGap).
    pub has_gap: bool,
}

impl ConsumerOptions {
    pub(crate) fn new(db: &Db, name: String) -> ConsumerOptions {
        ConsumerOptions { db: db.clone(), name, start: Start::Now, refuses_writers: false }
    }

    /// Begins with changes that become durable from now on. This is the default.
    #[must_use]
    pub fn from_now(self) -> Self {
        ConsumerOptions { start: Start::Now, ..self }
    }

    /// Begins with the first change there was.
    ///
    /// Where that is no longer kept, [`register`](ConsumerOptions::register) fails with
    /// [`FeedGap`](Code::FeedGap). What the consumer derives from the changes is therefore complete. For a
    /// database that is in use already, first copy its collections, then follow: [see the
    /// recipe](crate::cookbook#first-copy-then-follow).
    #[must_use]
    pub fn from_beginning(self) -> Self {
        ConsumerOptions { start: Start::Beginning, ..self }
    }

    /// Begins with the oldest change that is still kept. Older ones may have existed: what the consumer
    /// derives from the changes may be incomplete, and there is no error. See
    /// [`from_beginning`](ConsumerOptions::from_beginning).
    #[must_use]
    pub fn from_oldest(self) -> Self {
        ConsumerOptions { start: Start::Oldest, ..self }
    }

    /// Begins after a commit.
    #[must_use]
    pub fn after(self, seq: CommitSeq) -> Self {
        ConsumerOptions { start: Start::After(seq), ..self }
    }

    /// Refuses writers instead of losing changes.
    ///
    /// If the feed holds `feed_bytes_max` for this consumer, writers get [`FeedFull`](Code::FeedFull) until
    /// it has read on. Its own transactions and deletes still succeed. Without this option the consumer loses
    /// the oldest changes, and gets `FeedGap`.
    #[must_use]
    pub fn refuse_writers(self) -> Self {
        ConsumerOptions { refuses_writers: true, ..self }
    }

    /// Registers the consumer. An existing one keeps its position, and gets this policy.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `FeedGap` (E0804) if its first changes are no longer
    /// kept, or for a commit that does not exist; `CorruptFeed` (E0505) if they are corrupt;
    /// `InvalidArgument` (E0201) for an empty name; `KeyTooLong` (E0202) for a long name.
    pub fn register(self) -> Result<Consumer> {
        let ConsumerOptions { db, name, start, refuses_writers } = self;
        if name.is_empty() {
            return Err(Error::invalid("a consumer needs a name"));
        }
        let mut rounds = 0;
        // Held until the position is stored: before that, the changes after it are not kept for this
        // consumer.
        let (_hold, position) = loop {
            let feed = db.feed();
            let position = match start {
                Start::Now => feed.newest,
                Start::Beginning => CommitSeq(0),
                Start::Oldest => feed.oldest,
                Start::After(seq) => seq,
            };
            match db.hold_feed(position) {
                Ok(hold) => break (Some(hold), position),
                Err(_) if positions::cursor(db.snapshot()?.source(), &name)?.is_some() => {
                    break (None, position);
                }
                Err(error)
                    if error.code() == Code::FeedGap
                        && matches!(start, Start::Now | Start::Oldest)
                        && rounds < HOLD_ROUNDS =>
                {
                    rounds += 1;
                }
                Err(error) if error.code() == Code::FeedGap && start == Start::Beginning => {
                    return Err(Error::new(Code::FeedGap, error.message()).with_hint(COPY_FIRST));
                }
                Err(error) => return Err(error),
            }
        };
        db.transact(|tx| {
            let known = positions::cursor(tx.shared(), &name)?;
            let position = known.map_or(position, |known| known.position);
            let wanted = Cursor { position, refuses_writers };
            if known == Some(wanted) { Ok(()) } else { positions::set_cursor(tx.shared(), &name, wanted) }
        })?;
        Ok(Consumer { db, name })
    }
}

impl Consumer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The commit up to which everything was handled, as a snapshot sees it.
    ///
    /// Changes handled at level `Memory` may be missing for a moment.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchKey` (E0903) if it is no longer registered.
    pub fn position(&self) -> Result<CommitSeq> {
        Ok(self.cursor()?.position)
    }

    /// Moves the position: back to changes that are still kept, or forward past changes that it will not see.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `FeedGap` (E0804) if changes after that commit are no
    /// longer kept, or if there is no such commit; `CorruptFeed` (E0505) if they are corrupt;
    /// `NoSuchKey` (E0903) if it is no longer registered.
    pub fn seek(&self, after: CommitSeq) -> Result<()> {
        let _hold = self.db.hold_feed(after)?;
        self.db.transact(|tx| {
            let known = positions::cursor(tx.shared(), &self.name)?.ok_or_else(|| unknown(&self.name))?;
            positions::set_cursor(tx.shared(), &self.name, Cursor { position: after, ..known })
        })
    }

    /// Unregisters the consumer, so that nothing is kept for it any more. Returns whether it was registered.
    ///
    /// This succeeds even while writers are refused because of it.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits).
    pub fn unregister(self) -> Result<bool> {
        self.db.transact(|tx| positions::forget(tx.shared(), &self.name))
    }

    /// Reads changes as `T`: [`Change`](crate::Change) of a type, or [`AnyChange`](crate::AnyChange).
    ///
    /// A consumer has one position, among the changes of all types: reading those of one type passes those of
    /// all others. Register a consumer for each type, or read `AnyChange`.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits): it looks up the position in a transaction.
    /// `FeedGap` (E0804) if unread changes are gone: the hint names the position to
    /// [continue](Consumer::seek) from. `CorruptFeed` (E0505) if they are corrupt; `NoSuchKey` (E0903) if it
    /// is no longer registered.
    pub fn read<T: Delivered>(&self) -> Result<Consuming<T>> {
        // In a transaction: a snapshot does not yet see positions that were just stored at level `Memory`.
        let newest =
            self.db.at(Durability::Memory).transact(|tx| positions::cursor(tx.shared(), &self.name))?;
        let position = newest.ok_or_else(|| unknown(&self.name))?.position;
        let reader = open::<T>(&self.db, position).map_err(|error| at_no_position(error, position))?;
        Ok(Consuming {
            consumer: self.clone(),
            reader,
            position,
            astray: false,
            batch_changes: BATCH_CHANGES,
            batch: None,
            skips: None,
        })
    }

    fn cursor(&self) -> Result<Cursor> {
        positions::cursor(self.db.snapshot()?.source(), &self.name)?.ok_or_else(|| unknown(&self.name))
    }
}

/// The consumer of a name, registered or not.
#[doc(hidden)]
#[must_use]
pub fn consumer_named(db: &Db, name: &str) -> Consumer {
    Consumer { db: db.clone(), name: name.to_owned() }
}

/// Moves the position of a consumer in the transaction that has handled the changes between the two.
///
/// # Errors
/// `DocumentChanged` (E0803) if it is not at `from`; `NoSuchKey` (E0903) if it is not registered;
/// `InvalidArgument` (E0201) for an earlier position.
#[doc(hidden)]
pub fn advance(tx: &Transaction<'_>, name: &str, from: CommitSeq, to: CommitSeq) -> Result<()> {
    if to < from {
        return Err(Error::invalid(format!("the consumer {name:?} does not go back from {from} to {to}"))
            .with_hint("seek moves a consumer back"));
    }
    let cursor = positions::cursor(tx.shared(), name)?.ok_or_else(|| unknown(name))?;
    if cursor.position != from {
        let at = cursor.position;
        let what = format!("the consumer {name:?} is at commit {at}, not at {from}");
        // No conflict: run again, the transaction would handle the same changes at the same wrong place.
        return Err(Error::new(Code::DocumentChanged, what).with_hint(
            "these changes were handled by another program, or an earlier try: go on from there",
        ));
    }
    positions::set_cursor(tx.shared(), name, Cursor { position: to, ..cursor })
}

fn unknown(name: &str) -> Error {
    Error::new(Code::NoSuchKey, format!("there is no consumer {name:?}")).with_hint("register it")
}

/// The error of a consumer that is before all changes: a copy of a database sets its consumers there.
fn at_no_position(error: Error, position: CommitSeq) -> Error {
    let Some(goes_on) = error.goes_on_after().filter(|_| error.code() == Code::FeedGap && position.0 == 0)
    else {
        return error;
    };
    error.with_hint(format!(
        "this is a restored backup or a copy, where no consumer has a position; or the consumer has missed its first \
         changes: {COPY_FIRST}, or seek to {goes_on}"
    ))
}

/// Whether an error is about the change itself. Other errors (for example of the catalogue, whose names the
/// change may need) may be gone at the next step.
fn is_of_the_change(error: &Error) -> bool {
    let code = error.code();
    matches!(code, Code::Unreadable | Code::InvalidArgument | Code::KeyTooLong | Code::CorruptFeed)
}

/// Called with the error of each undecodable change, before it is skipped.
type Skips = Box<dyn FnMut(&Error) + Send>;

/// A running consumer. Only one at a time: of two with the same name one gets `WriteConflict`, and continues
/// after the other.
pub struct Consuming<T> {
    consumer: Consumer,
    reader: FeedReader,
    /// The stored position.
    position: CommitSeq,
    /// The reader is ahead of the handled changes, and must begin again at the position.
    astray: bool,
    batch_changes: usize,
    /// Changes that were read but not handled, and the last commit among them.
    batch: Option<(Vec<T>, CommitSeq)>,
    skips: Option<Skips>,
}

impl<T: Delivered> Consuming<T> {
    /// Sets the approximate number of changes per batch. All changes of one commit come together.
    #[must_use]
    pub fn batch(self, changes: usize) -> Self {
        Consuming { batch_changes: changes.max(1), ..self }
    }

    /// Skips changes that do not decode as `T`, after calling `told` with the error.
    ///
    /// Without this, such a change is an error of the step that finds it, and of each later step. Errors that
    /// are not about the change itself (the catalogue is corrupt, for example) still fail the step. `told`
    /// may then be called again for the changes before it.
    #[must_use]
    pub fn skip_unreadable(self, told: impl FnMut(&Error) + Send + 'static) -> Self {
        Consuming { skips: Some(Box::new(told)), ..self }
    }

    /// Handles the next batch. Returns how many changes it contained; 0 if there are none.
    ///
    /// The writes of `handle` and the new position are one transaction, at the durability level of the handle
    /// that the consumer was registered with. `handle` runs again after a conflict.
    ///
    /// # Errors
    /// An error from `handle`: the next step delivers the same batch. Those of
    /// [reading changes](crate::Error#changes) and of a [commit](crate::Error#commits); after
    /// `WriteConflict` (E0101) the next step continues after what another process handled. `Unreadable`
    /// (E0213) if a change does not decode; `NoSuchKey` (E0903) if it is no longer registered.
    pub fn step(
        &mut self,
        mut handle: impl FnMut(&mut Transaction<'_>, &[T]) -> Result<()>,
    ) -> Result<usize> {
        loop {
            match self.advance(&mut handle)? {
                // None of the skipped changes was for this consumer.
                Some(0) => {}
                Some(count) => return Ok(count),
                None => return Ok(0),
            }
        }
    }

    /// Handles a batch, or stores a position without one; `None` if there is nothing to store either.
    fn advance(
        &mut self,
        handle: &mut dyn FnMut(&mut Transaction<'_>, &[T]) -> Result<()>,
    ) -> Result<Option<usize>> {
        if self.batch.is_none() {
            self.batch = self.next_batch()?;
        }
        let (changes, last) = match &self.batch {
            Some((changes, last)) => (&changes[..], *last),
            None if !self.must_say_it_has_read() => return Ok(None),
            None => (&[][..], self.reader.position()),
        };
        let count = changes.len();
        let (name, expected) = (&self.consumer.name, self.position);
        let found = self.consumer.db.transact(|tx| {
            let cursor = positions::cursor(tx.shared(), name)?.ok_or_else(|| unknown(name))?;
            if cursor.position != expected {
                return Ok(cursor.position);
            }
            if !changes.is_empty() {
                handle(tx, changes)?;
            }
            positions::set_cursor(tx.shared(), name, Cursor { position: last, ..cursor })?;
            Ok(expected)
        })?;
        if found != expected {
            return Err(self.overtaken(found));
        }
        self.position = last;
        self.batch = None;
        self.reader.done();
        Ok(Some(count))
    }

    /// Whether to store a position although no change was for this consumer.
    ///
    /// It does so after many commits. While writers are refused it also does so as soon as files are kept for
    /// it: only the consumer itself can end that. This happens once per checkpoint, as files hold nothing
    /// newer; so two consumers do not keep each other busy.
    fn must_say_it_has_read(&self) -> bool {
        let unstored = self.reader.position().0 - self.position.0;
        if unstored == 0 || unstored > UNSTORED_COMMITS_MAX {
            return unstored > 0;
        }
        let feed = self.consumer.db.feed();
        feed.refusal.is_some() && self.position < feed.log_from
    }

    /// Handles everything that is durable, batch by batch. Returns the number of changes.
    ///
    /// # Errors
    /// As [`Consuming::step`]. Batches handled before the error stay handled.
    pub fn run(&mut self, mut handle: impl FnMut(&mut Transaction<'_>, &[T]) -> Result<()>) -> Result<usize> {
        let mut count = 0;
        self.run_counting(&mut handle, &mut count)?;
        Ok(count)
    }

    fn run_counting(
        &mut self,
        handle: &mut dyn FnMut(&mut Transaction<'_>, &[T]) -> Result<()>,
        count: &mut usize,
    ) -> Result<()> {
        loop {
            match self.step(&mut *handle)? {
                0 => return Ok(()),
                more => *count += more,
            }
        }
    }

    /// Handles everything and waits for more. Returns the number of changes.
    ///
    /// Ends when it is [stopped](Consuming::stopper) or the database is closed.
    ///
    /// # Errors
    /// As [`Consuming::step`], but `Closed` (E0207) ends it without an error; `EnginePoisoned` (E0601) if a
    /// sync failed while it waited.
    pub fn follow(
        &mut self,
        mut handle: impl FnMut(&mut Transaction<'_>, &[T]) -> Result<()>,
    ) -> Result<usize> {
        let mut count = 0;
        loop {
            match self.run_counting(&mut handle, &mut count) {
                Err(error) if error.code() == Code::Closed => return Ok(count),
                Err(error) => return Err(error),
                Ok(()) if !self.wait(None) => return self.reader.failure().map_or(Ok(count), Err),
                Ok(()) => {}
            }
        }
    }

    /// Waits until there may be a change to handle, for at most `at_most`. Returns whether there may be one.
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        self.batch.is_some() || self.astray || self.reader.wait(at_most)
    }

    /// A handle that stops the waiting, from any thread.
    #[must_use]
    pub fn stopper(&self) -> ChangeStop {
        ChangeStop::of(&self.reader)
    }

    /// Calls `woken` once, when a next change may exist or can never exist; immediately if that is already
    /// so.
    ///
    /// A later call replaces one that has not fired yet. `woken` runs in a thread that commits, and must
    /// return soon.
    pub fn call_when_more(&self, woken: impl FnOnce() + Send + 'static) {
        if self.batch.is_some() || self.astray {
            woken();
        } else {
            self.reader.call_when_more(Box::new(woken));
        }
    }

    /// The next changes, in whole commits.
    fn next_batch(&mut self) -> Result<Option<(Vec<T>, CommitSeq)>> {
        if self.astray {
            self.read_again(self.position)?;
        }
        // Until the batch is whole: the program's code runs here, and may panic when the reader has gone on
        // already.
        self.astray = true;
        let (mut changes, mut last) = (Vec::new(), None);
        while changes.len() < self.batch_changes {
            let commit = match self.reader.next() {
                Ok(Some(commit)) => commit,
                Ok(None) => break,
                // Changes read before the error are handled first. The next step meets the error again.
                Err(_) if last.is_some() => break,
                Err(error) => return Err(error),
            };
            let (before, commits_before) = (changes.len(), last.replace(commit.seq));
            let of_commit: Vec<Result<T>> = changes_of(&self.consumer.db, commit).collect();
            for change in of_commit {
                match (change, &mut self.skips) {
                    (Ok(change), _) => changes.push(change),
                    (Err(error), Some(told)) if is_of_the_change(&error) => told(&error),
                    (Err(error), _) => {
                        let Some(last) = commits_before else { return Err(error) };
                        changes.truncate(before);
                        return Ok(Some((changes, last)));
                    }
                }
            }
        }
        self.astray = false;
        Ok(last.map(|last| (changes, last)))
    }

    fn read_again(&mut self, from: CommitSeq) -> Result<()> {
        // A stopper that was handed out belongs to this consumer, not to one reader.
        self.reader = open::<T>(&self.consumer.db, from)?.with_stopper(self.reader.stopper());
        self.position = from;
        self.astray = false;
        self.batch = None;
        Ok(())
    }

    fn overtaken(&mut self, position: CommitSeq) -> Error {
        if let Err(error) = self.read_again(position) {
            return error;
        }
        let message = format!(
            "the consumer {:?} was moved to commit {position} by another program",
            self.consumer.name
        );
        Error::new(Code::WriteConflict, message)
            .with_hint("step again to go on from there; let one process run a consumer")
    }
}

impl<T> fmt::Debug for Consuming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consuming")
            .field("consumer", &self.consumer)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
