//! Consumers: who reads the change feed for good, and whose position is stored with the work it does.
//!
//! A batch of changes, what the program makes of them and the new position are one transaction: after a crash each change has had
//! its effect once or will have it. What a consumer has not read is kept for it, also while no process has the database open.

use std::fmt;
use std::time::Duration;

use duramen_engine::{CommitSeq, Durability, FeedReader};

use crate::changes::{ChangeStop, Delivered, changes_of, open};
use crate::db::Db;
use crate::error::{Code, Error, Result};
use crate::feed::{self, Cursor};
use crate::reads::sealed::Readable;
use crate::transaction::Transaction;

/// Changes of one batch, unless it is said otherwise. Those of one commit stay together, however many.
const BATCH_CHANGES: usize = 256;

/// A consumer that finds nothing for itself in so many commits stores that it has read them, so that they are not kept for it.
const UNSTORED_COMMITS_MAX: u64 = 64;

/// How often one looks again where to begin, if that is let go of meanwhile.
pub(crate) const HOLD_ROUNDS: usize = 16;

/// Where a consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Start {
    #[default]
    Now,
    Oldest,
    After(CommitSeq),
}

/// A consumer by name, before it is registered: how it is to begin, and what happens when it lags.
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

/// What the database knows about a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerState {
    /// Its name.
    pub name: String,
    /// Everything up to this commit was handled.
    pub position: CommitSeq,
    /// Durable commits after that one, whether or not they changed anything for it.
    pub lag_commits: u64,
    /// Where it lags too far, writers are refused; else it loses changes.
    pub refuses_writers: bool,
    /// Changes that it has not read are gone: it gets [`FeedGap`](Code::FeedGap).
    pub has_gap: bool,
}

impl ConsumerOptions {
    pub(crate) fn new(db: &Db, name: String) -> ConsumerOptions {
        ConsumerOptions { db: db.clone(), name, start: Start::Now, refuses_writers: false }
    }

    /// Begins with what becomes durable from now on. So it does unless told otherwise.
    #[must_use]
    pub fn from_now(self) -> Self {
        ConsumerOptions { start: Start::Now, ..self }
    }

    /// Begins with the oldest change that is still kept.
    #[must_use]
    pub fn from_oldest(self) -> Self {
        ConsumerOptions { start: Start::Oldest, ..self }
    }

    /// Begins after a commit.
    #[must_use]
    pub fn after(self, seq: CommitSeq) -> Self {
        ConsumerOptions { start: Start::After(seq), ..self }
    }

    /// Where the feed holds `feed_bytes_max` for this consumer, writers get [`FeedFull`](Code::FeedFull) until it has read on. Its
    /// own transactions go through, and deletes. Without this, it loses the oldest changes, and is told so.
    #[must_use]
    pub fn refuse_writers(self) -> Self {
        ConsumerOptions { refuses_writers: true, ..self }
    }

    /// Registers the consumer, or takes the one that is: that one keeps its position, and gets this policy.
    ///
    /// # Errors
    /// [`FeedGap`](Code::FeedGap) if it is to begin with changes that are no longer kept; those of a commit.
    pub fn register(self) -> Result<Consumer> {
        let ConsumerOptions { db, name, start, refuses_writers } = self;
        if name.is_empty() {
            return Err(Error::invalid("a consumer needs a name"));
        }
        let mut rounds = 0;
        // Held until the position is stored: what lies between would not be kept for anybody.
        let (_hold, position) = loop {
            let feed = db.feed();
            let position = match start {
                Start::Now => feed.newest,
                Start::Oldest => feed.oldest,
                Start::After(seq) => seq,
            };
            match db.hold_feed(position) {
                Ok(hold) => break (Some(hold), position),
                Err(_) if feed::cursor(db.snapshot()?.source(), &name)?.is_some() => break (None, position),
                Err(error)
                    if error.code() == Code::FeedGap
                        && !matches!(start, Start::After(_))
                        && rounds < HOLD_ROUNDS =>
                {
                    rounds += 1;
                }
                Err(error) => return Err(error),
            }
        };
        db.transact(|tx| {
            let known = feed::cursor(tx.shared(), &name)?;
            let position = known.map_or(position, |known| known.position);
            let wanted = Cursor { position, refuses_writers };
            if known == Some(wanted) { Ok(()) } else { feed::set_cursor(tx.shared(), &name, wanted) }
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

    /// Everything up to this commit was handled, as a snapshot sees it: what was handled at level `Memory` may be missing
    /// for a moment.
    ///
    /// # Errors
    /// `NoSuchKey` if it is not registered any more.
    pub fn position(&self) -> Result<CommitSeq> {
        Ok(self.cursor()?.position)
    }

    /// Goes on from another place: back to changes that are still kept, or forward, without those between.
    ///
    /// # Errors
    /// [`FeedGap`](Code::FeedGap) if that is no longer kept; `NoSuchKey`; those of a commit.
    pub fn seek(&self, after: CommitSeq) -> Result<()> {
        let _hold = self.db.hold_feed(after)?;
        self.db.transact(|tx| {
            let known = feed::cursor(tx.shared(), &self.name)?.ok_or_else(|| unknown(&self.name))?;
            feed::set_cursor(tx.shared(), &self.name, Cursor { position: after, ..known })
        })
    }

    /// Forgets the consumer: nothing is kept for it any more. Returns whether it was there. Goes through also where writers are
    /// refused for its sake.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn unregister(self) -> Result<bool> {
        self.db.transact(|tx| feed::forget(tx.shared(), &self.name))
    }

    /// Reads changes as `T`: [`Change`](crate::Change) of a type, or [`AnyChange`](crate::AnyChange).
    ///
    /// # Errors
    /// [`FeedGap`](Code::FeedGap) if changes it has not read are gone: the hint says from where it can [go on](Consumer::seek).
    /// `NoSuchKey` if it is not registered any more.
    pub fn read<T: Delivered>(&self) -> Result<Consuming<T>> {
        // In a transaction: a snapshot does not see yet what was registered, moved or handled at level `Memory` just before.
        let newest = self.db.at(Durability::Memory).transact(|tx| feed::cursor(tx.shared(), &self.name))?;
        let position = newest.ok_or_else(|| unknown(&self.name))?.position;
        let reader = open::<T>(&self.db, position)?;
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
        feed::cursor(self.db.snapshot()?.source(), &self.name)?.ok_or_else(|| unknown(&self.name))
    }
}

fn unknown(name: &str) -> Error {
    Error::new(Code::NoSuchKey, format!("there is no consumer {name:?}")).with_hint("register it")
}

/// Whether an error says that the change itself does not read. What kept it from being read for now (the catalogue, whose names it may
/// need, cannot be read) may be over at the next step.
fn is_of_the_change(error: &Error) -> bool {
    let code = error.code();
    matches!(code, Code::Unreadable | Code::InvalidArgument | Code::KeyTooLong | Code::DamagedFeed)
}

/// Is told of each change that does not read as the type, before it is passed over.
type Skips = Box<dyn FnMut(&Error) + Send>;

/// A consumer at work. One at a time: of two with the same name one gets `WriteConflict`, and reads on behind the other.
pub struct Consuming<T> {
    consumer: Consumer,
    reader: FeedReader,
    /// The position that is stored.
    position: CommitSeq,
    /// The reader has come further than was handled, and must begin again at the position.
    astray: bool,
    batch_changes: usize,
    /// Read and not handled yet, and the last commit in it.
    batch: Option<(Vec<T>, CommitSeq)>,
    skips: Option<Skips>,
}

impl<T: Delivered> Consuming<T> {
    /// Hands over about so many changes at once. All of one commit come together.
    #[must_use]
    pub fn batch(self, changes: usize) -> Self {
        Consuming { batch_changes: changes.max(1), ..self }
    }

    /// Passes over changes that do not read as `T`, once `told` was. Without this they are an error of the step that finds them, and
    /// of each further one. What keeps a change from being read for now, or for as long as the catalogue is damaged, is an error of the
    /// step all the same; `told` may then be told again of those before it.
    #[must_use]
    pub fn skip_unreadable(self, told: impl FnMut(&Error) + Send + 'static) -> Self {
        Consuming { skips: Some(Box::new(told)), ..self }
    }

    /// Handles the next batch: what `handle` writes and the new position are one transaction, at the level of the handle that the
    /// consumer was registered with. `handle` runs again after a conflict. Returns how many changes it was given; 0 if there are none.
    ///
    /// # Errors
    /// What `handle` returned: the same batch comes again. [`FeedGap`](Code::FeedGap); `WriteConflict` if another process of the same
    /// name came in between: the next step goes on behind it. Those of a commit.
    pub fn step(
        &mut self,
        mut handle: impl FnMut(&mut Transaction<'_>, &[T]) -> Result<()>,
    ) -> Result<usize> {
        loop {
            match self.advance(&mut handle)? {
                // Nothing of what was passed over was for this consumer.
                Some(0) => {}
                Some(count) => return Ok(count),
                None => return Ok(0),
            }
        }
    }

    /// Handles a batch, or stores that there was nothing; `None` if there is nothing to be stored either.
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
            let cursor = feed::cursor(tx.shared(), name)?.ok_or_else(|| unknown(name))?;
            if cursor.position != expected {
                return Ok(cursor.position);
            }
            if !changes.is_empty() {
                handle(tx, changes)?;
            }
            feed::set_cursor(tx.shared(), name, Cursor { position: last, ..cursor })?;
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

    /// Whether nothing was found for it in so much that it is to be stored. Where writers are refused it is as soon as files are kept
    /// for it: nobody else can end that. Once for each checkpoint, as files hold nothing newer; two consumers do not keep each other
    /// at it.
    fn must_say_it_has_read(&self) -> bool {
        let unstored = self.reader.position().0 - self.position.0;
        if unstored == 0 || unstored > UNSTORED_COMMITS_MAX {
            return unstored > 0;
        }
        let feed = self.consumer.db.feed();
        feed.refusal.is_some() && self.position < feed.log_from
    }

    /// Handles everything that is durable, batch by batch. Returns how many changes there were.
    ///
    /// # Errors
    /// As [`Consuming::step`]; what was handled before stays so.
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

    /// Handles everything, and waits for more, until it is [stopped](Consuming::stopper) or the database is closed. Returns how many
    /// changes there were.
    ///
    /// # Errors
    /// As [`Consuming::step`]; `Poisoned` if a sync failed while it waited.
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

    /// Waits until there may be something to handle, at most so long; says whether there may be.
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        self.batch.is_some() || self.astray || self.reader.wait(at_most)
    }

    /// What ends the waiting, from any thread.
    #[must_use]
    pub fn stopper(&self) -> ChangeStop {
        ChangeStop::of(&self.reader)
    }

    /// Calls `woken` once, when there may be something to handle, or there will never be; at once if that is so. A later call takes
    /// the place of one that was not answered yet. It is called in a thread that commits, and must return soon.
    pub fn call_when_more(&self, woken: impl FnOnce() + Send + 'static) {
        if self.batch.is_some() || self.astray {
            woken();
        } else {
            self.reader.call_when_more(Box::new(woken));
        }
    }

    /// The next changes, whole commits of them.
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
                // What was read before it is handled first: the next step meets the error again.
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
        // Who was given a stopper means this consumer, not this reader.
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
        let message =
            format!("the consumer {:?} was moved to commit {position} by somebody else", self.consumer.name);
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
