//! Reading the change feed: the changes of every commit, in order, once, and only once they are durable.
//!
//! Owns the form in which programs receive changes. The engine and `feed` decide which changes are kept.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::store::{CommitSeq, FeedChange, FeedCommit, FeedReader, FeedStats, FeedStop, FeedWhat};

use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::catalog::entries::{Origin, rows_tree};
use crate::catalog::forms;
use crate::catalog::schema::Schema;
use crate::feed::consumer::HOLD_ROUNDS;
use crate::feed::outside::FeedPosition;
use crate::store::TreeId;
use crate::store::error::{Code, Error, Result};
use crate::value::document::Document;
use crate::value::msgpack::begins_with_a_shape;
use crate::value::time::Time;
use crate::value::tuple::{self, Element, OwnedKey};
use crate::value::version;

/// One change of a document of a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<C: Collection> {
    /// The sequence of its commit. All changes of one commit have the same sequence, and come one after the
    /// other.
    pub seq: CommitSeq,
    /// When it was committed, by the wall clock; never earlier than the previous commit.
    pub time: Time,
    /// What was done.
    pub what: Changed<C, C::Key>,
}

/// What was done to a collection.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed<D, K> {
    /// A document was stored. Whether it replaced one is not recorded.
    Put(D),
    /// The document under this key was deleted.
    Deleted(K),
    /// The collection was dropped with all its documents. There is no `Deleted` for each of them.
    Dropped,
}

impl<C: Collection> Change<C> {
    /// The document as it was stored; `None` if something was deleted.
    pub fn document(&self) -> Option<&C> {
        match &self.what {
            Changed::Put(document) => Some(document),
            Changed::Deleted(_) | Changed::Dropped => None,
        }
    }

    /// The key; `None` if the collection was dropped.
    pub fn key(&self) -> Option<C::Key>
    where
        C::Key: Clone,
    {
        match &self.what {
            Changed::Put(document) => Some(document.key()),
            Changed::Deleted(key) => Some(key.clone()),
            Changed::Dropped => None,
        }
    }
}

/// One change of anything that a program stores: in a collection, a namespace of key-values or a tree of
/// bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct AnyChange {
    /// The commit it belongs to.
    pub seq: CommitSeq,
    /// When it was committed.
    pub time: Time,
    /// The collection, namespace or tree.
    pub origin: Origin,
    /// What was done.
    pub what: AnyChanged,
}

/// What was done to a collection, a namespace or a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyChanged {
    /// It was created.
    Created,
    /// It was dropped, with all its contents.
    Dropped,
    /// A value was stored. In a collection it is a document as MessagePack with names, else the stored bytes.
    Put {
        /// The stored key. For collections see [`AnyChange::key_elements`].
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// A key was deleted.
    Deleted {
        /// The stored key.
        key: Vec<u8>,
    },
}

impl AnyChange {
    /// The stored key; `None` if the whole store was created or dropped.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.what {
            AnyChanged::Put { key, .. } | AnyChanged::Deleted { key } => Some(key),
            AnyChanged::Created | AnyChanged::Dropped => None,
        }
    }

    /// The elements of a document's key.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if this is not a change of a document.
    pub fn key_elements(&self) -> Result<Vec<Element>> {
        match (&self.origin, self.key()) {
            (Origin::Collection(_), Some(key)) => tuple::decode(key),
            _ => Err(Error::invalid("only documents have keys of elements")),
        }
    }

    /// The document that was stored; `None` if this is not a put of one.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for bytes that are not a document.
    pub fn document(&self) -> Result<Option<Document>> {
        match (&self.origin, &self.what) {
            (Origin::Collection(_), AnyChanged::Put { value, .. }) => Document::from_bytes(value).map(Some),
            _ => Ok(None),
        }
    }
}

/// The types that changes can be delivered as. Sealed: typed changes, and [`AnyChange`].
pub trait Delivered: sealed::Delivered {}

impl<C: Collection> Delivered for Change<C> {}
impl Delivered for AnyChange {}

pub(crate) mod sealed {
    use super::*;

    pub trait Delivered: Sized {
        /// The tree to read; `None` for all.
        fn tree() -> Option<String>;

        /// A change as delivered to a program; `None` to skip it.
        fn of(db: &Db, seq: CommitSeq, time: Time, change: FeedChange) -> Result<Option<Self>>;
    }
}

impl<C: Collection> sealed::Delivered for Change<C> {
    fn tree() -> Option<String> {
        Some(rows_tree(C::NAME))
    }

    fn of(db: &Db, seq: CommitSeq, time: Time, change: FeedChange) -> Result<Option<Self>> {
        let shapes = &db.open_state().catalog.shapes;
        let what = match change.what {
            FeedWhat::Created => return Ok(None),
            FeedWhat::Dropped => Changed::Dropped,
            FeedWhat::Put { key, value } => {
                let document = codec::from_bytes::<C>(shapes, &key, &value);
                Changed::Put(document.map_err(|error| if_without_shape(error, &key, C::NAME))?)
            }
            FeedWhat::Deleted { key } => Changed::Deleted(C::Key::from_elements(tuple::decode(&key)?)?),
            FeedWhat::Lost { key } => return Err(lost(&tuple::show(&key), C::NAME, seq)),
        };
        Ok(Some(Change { seq, time, what }))
    }
}

impl sealed::Delivered for AnyChange {
    fn tree() -> Option<String> {
        None
    }

    fn of(db: &Db, seq: CommitSeq, time: Time, change: FeedChange) -> Result<Option<Self>> {
        any_change(seq, time, change, &mut OfDatabase(db))
    }
}

struct OfDatabase<'a>(&'a Db);

impl Names for OfDatabase<'_> {
    fn described(&mut self, collection: &str, _: bool) -> Result<(TreeId, Schema)> {
        let entry = self.0.snapshot()?.entry(collection)?;
        Ok((entry.tree, entry.schema.clone()))
    }

    fn by_shape(&mut self, document: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let shapes = &self.0.open_state().catalog.shapes;
        if shapes.split(document).is_err() {
            return Ok(false);
        }
        forms::name_by_shape(shapes, document, out).map(|()| true)
    }
}

/// Where a reader of the feed finds the names of fields.
pub(crate) trait Names {
    /// The tree and the schema of the collection of a name; the current ones if `fresh`.
    fn described(&mut self, collection: &str, fresh: bool) -> Result<(TreeId, Schema)>;

    /// Appends a document of a shape with its names. Returns `false` if there is no such shape.
    fn by_shape(&mut self, document: &[u8], out: &mut Vec<u8>) -> Result<bool>;
}

/// The shape of a change is lost. That is about the change: others can be read.
fn without_shape(key: &[u8], collection: &str) -> Error {
    let message = format!(
        "the change of {} in {collection} has no names for its fields: its shape is lost",
        tuple::show(key)
    );
    Error::new(Code::Unreadable, message)
        .with_hint("go on with the next change, and run `duramen check DB`: the database is corrupt")
}

fn if_without_shape(error: Error, key: &[u8], collection: &str) -> Error {
    if error.is_corruption() { without_shape(key, collection) } else { error }
}

/// A change in untyped form.
pub(crate) fn any_change(
    seq: CommitSeq,
    time: Time,
    change: FeedChange,
    names: &mut dyn Names,
) -> Result<Option<AnyChange>> {
    let Some(origin) = Origin::of(&change.name) else { return Ok(None) };
    let what = match (change.what, &origin) {
        (FeedWhat::Created, _) => AnyChanged::Created,
        (FeedWhat::Dropped, _) => AnyChanged::Dropped,
        (FeedWhat::Deleted { key }, _) => AnyChanged::Deleted { key },
        (FeedWhat::Lost { key }, _) => return Err(lost(&tuple::show(&key), origin.name(), seq)),
        (FeedWhat::Put { key, value }, Origin::Collection(name)) => {
            AnyChanged::Put { value: named(change.tree, name, &key, value, names)?, key }
        }
        (FeedWhat::Put { key, value }, _) => AnyChanged::Put { key, value },
    };
    Ok(Some(AnyChange { seq, time, origin, what }))
}

/// A document in untyped form: without its version prefix, and with field names if it is positional.
///
/// The names are the catalogue's for its version, since fields are only ever added at the end. A collection
/// that took the name of a dropped one has another tree, and does not describe the other's documents.
fn named(
    tree: TreeId,
    collection: &str,
    key: &[u8],
    value: Vec<u8>,
    names: &mut dyn Names,
) -> Result<Vec<u8>> {
    let (version, document) = version::split(&value)?;
    if begins_with_a_shape(document) {
        let mut out = Vec::new();
        let is_named = names.by_shape(document, &mut out)?;
        return if is_named { Ok(out) } else { Err(without_shape(key, collection)) };
    }
    if !forms::is_positional(document) {
        return Ok(if document.len() == value.len() { value } else { document.to_vec() });
    }
    let mut out = Vec::with_capacity(2 * document.len());
    let mut named = |fresh| {
        out.clear();
        let (found, schema) = names.described(collection, fresh)?;
        if found != tree {
            return Err(Error::new(Code::Unreadable, "another collection has this name by now"));
        }
        forms::name_positional(schema.names_in_feed(version)?, document, &mut out)
    };
    let done = named(false).or_else(|_| named(true));
    match done {
        Ok(()) => Ok(out),
        // Any other error is not about the change: the next attempt may succeed.
        Err(error) if !matches!(error.code(), Code::Unreadable | Code::NoSuchTree | Code::InvalidArgument) => {
            Err(error)
        }
        Err(error) => Err(Error::new(
            Code::Unreadable,
            format!(
                "the change of {} in {collection} has no names for its fields, and the catalogue has none any more: {}",
                tuple::show(key),
                error.message()
            ),
        )
        .with_hint("go on with the next change; the type that wrote it can still read it")),
    }
}

fn lost(key: &str, name: &str, seq: CommitSeq) -> Error {
    let message = format!(
        "the value that commit {seq} stored under {key} in {name} was corrupt before it could be kept"
    );
    Error::new(Code::CorruptFeed, message)
        .with_hint("go on with the next change; look at what is under the key now")
}

/// Changes of a selected kind, before the position to start from is chosen.
#[derive(Debug)]
pub struct Changes<T> {
    db: Db,
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T: Delivered> Changes<T> {
    pub(crate) fn new(db: &Db) -> Changes<T> {
        Changes { db: db.clone(), kind: std::marker::PhantomData }
    }

    /// Every change after a commit, oldest first.
    ///
    /// The iterator ends at the newest durable change, and continues from there when `next` is called again.
    /// A database that was poisoned by a failed sync ends with one last error. While the iterator exists,
    /// undelivered changes are kept for it, within `feed_bytes_max`.
    ///
    /// If changes after that commit are no longer kept, or there is no such commit, the first item is the
    /// error [`FeedGap`](Code::FeedGap), and the iterator ends. In a restored database the same sequence is
    /// another commit, without an error: a program that stores its position outside uses
    /// [`Changes::resume`]. A change that does not decode as the type is an error that names it; the next
    /// item is the next change.
    ///
    /// Starting costs one scan of the log since the newest checkpoint.
    #[must_use]
    pub fn since(self, after: CommitSeq) -> ChangeIter<T> {
        ChangeIter::begin(self.db, after)
    }

    /// As [`Changes::since`], from a position that the program has stored outside of the database.
    ///
    /// If it is of another database (a backup was restored, or a repaired copy took the place), the first
    /// item is the error [`FeedGap`](Code::FeedGap). A copy that was made with the tools of the file system
    /// has the identity of its original, and is not noticed: give it one of its own with [`Db::backup`].
    #[must_use]
    pub fn resume(self, position: FeedPosition) -> ChangeIter<T> {
        match position.check(self.db.engine().database_id()) {
            Ok(()) => ChangeIter::begin(self.db, position.seq),
            Err(error) => ChangeIter::failed(self.db, error),
        }
    }

    /// Every change since the database was created. If any is no longer kept, the first item is the error
    /// [`FeedGap`](Code::FeedGap): first copy the collections, then follow.
    #[must_use]
    pub fn from_beginning(self) -> ChangeIter<T> {
        ChangeIter::begin(self.db, CommitSeq(0))
    }

    /// Every change that becomes durable from now on.
    #[must_use]
    pub fn from_now(self) -> ChangeIter<T> {
        self.begin_at(|feed| feed.newest)
    }

    /// Every change that is still kept. Older ones may have existed.
    #[must_use]
    pub fn from_oldest(self) -> ChangeIter<T> {
        self.begin_at(|feed| feed.oldest)
    }

    /// Begins again if that position is released meanwhile.
    fn begin_at(self, place: impl Fn(&FeedStats) -> CommitSeq) -> ChangeIter<T> {
        let mut begun = ChangeIter::begin(self.db.clone(), place(&self.db.feed()));
        for _ in 0..HOLD_ROUNDS {
            if begun.failed.as_ref().is_none_or(|error| error.code() != Code::FeedGap) {
                break;
            }
            begun = ChangeIter::begin(self.db.clone(), place(&self.db.feed()));
        }
        begun
    }
}

/// Changes in commit order.
pub struct ChangeIter<T> {
    db: Db,
    reader: Option<FeedReader>,
    queue: VecDeque<Result<T>>,
    /// Why nothing can be read; returned once.
    failed: Option<Error>,
    follows: bool,
    /// Where the reader begins again, if the program's code panicked in what was read after it.
    astray: Option<CommitSeq>,
}

/// Stops a waiting [`ChangeIter`], from any thread.
#[derive(Debug, Clone)]
pub struct ChangeStop(Option<FeedStop>);

impl ChangeStop {
    pub(crate) fn of(reader: &FeedReader) -> ChangeStop {
        ChangeStop(Some(reader.stopper()))
    }

    /// Stops the iterator permanently.
    pub fn stop(&self) {
        if let Some(stop) = &self.0 {
            stop.stop();
        }
    }
}

impl<T: Delivered> ChangeIter<T> {
    fn begin(db: Db, after: CommitSeq) -> ChangeIter<T> {
        let (reader, failed) = match open::<T>(&db, after) {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        ChangeIter { db, reader, queue: VecDeque::new(), failed, follows: false, astray: None }
    }

    /// An iterator with an error only.
    fn failed(db: Db, error: Error) -> ChangeIter<T> {
        let (reader, failed) = (None, Some(error));
        ChangeIter { db, reader, queue: VecDeque::new(), failed, follows: false, astray: None }
    }

    /// Makes the iterator wait for more changes instead of ending.
    ///
    /// It then ends when the database is closed, or when it is [stopped](ChangeIter::stopper). A database
    /// opened read-only never has more changes.
    #[must_use]
    pub fn follow(self) -> ChangeIter<T> {
        ChangeIter { follows: true, ..self }
    }

    /// The next change; waits for one, for at most `at_most`.
    ///
    /// # Errors
    /// An item can be one of [reading changes](crate::Error#changes); `FeedGap` (E0804) ends the iterator.
    /// `Unreadable` (E0213) if a change does not decode as `T`; `CorruptFeed` (E0505) if its value is lost.
    /// The last item is `EnginePoisoned` (E0601) if a sync failed; `ForkedHandle` (E0206) in
    /// a forked process comes first.
    pub fn next_within(&mut self, at_most: Duration) -> Option<Result<T>> {
        self.next_or_wait(Some(at_most))
    }

    /// A handle that stops the waiting.
    #[must_use]
    pub fn stopper(&self) -> ChangeStop {
        ChangeStop(self.reader.as_ref().map(FeedReader::stopper))
    }

    /// The last commit whose changes were all read from the feed; the last ones may not be delivered yet.
    ///
    /// To resume later, use the sequence of the last commit whose changes were all handled.
    #[must_use]
    pub fn position(&self) -> Option<CommitSeq> {
        self.astray.or_else(|| self.reader.as_ref().map(FeedReader::position))
    }

    /// The changes of the next commit that has any, all of them; `None` if there is none now. It does not
    /// wait.
    ///
    /// # Errors
    /// An item can be one of [reading changes](crate::Error#changes), as of
    /// [`next_within`](ChangeIter::next_within).
    pub fn next_commit(&mut self) -> Option<Vec<Result<T>>> {
        if self.read_more() || self.read_failure() {
            return Some(self.queue.drain(..).collect());
        }
        None
    }

    /// Calls `woken` once, when a next change may exist or can never exist; immediately if that is already
    /// so.
    ///
    /// A later call replaces one that has not fired yet. `woken` runs in a thread that commits, and must
    /// return soon: it should wake a task, not do the task's work.
    pub fn call_when_more(&self, woken: impl FnOnce() + Send + 'static) {
        match &self.reader {
            Some(reader) if self.queue.is_empty() && self.astray.is_none() => {
                reader.call_when_more(Box::new(woken))
            }
            _ => woken(),
        }
    }

    /// Whether no next change can exist: the database is closed or read-only, or the reading was stopped or
    /// failed.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.queue.is_empty()
            && self.failed.is_none()
            && self.astray.is_none()
            && self.reader.as_ref().is_none_or(FeedReader::is_at_end)
    }

    fn next_or_wait(&mut self, at_most: Option<Duration>) -> Option<Result<T>> {
        loop {
            if self.read_more() {
                return self.take_read();
            }
            let reader = self.reader.as_ref()?;
            if at_most == Some(Duration::ZERO) || !reader.wait(at_most) {
                return if self.read_failure() { self.take_read() } else { None };
            }
        }
    }

    /// The next change that was read already.
    pub(crate) fn take_read(&mut self) -> Option<Result<T>> {
        self.queue.pop_front()
    }

    /// Reads until a change is queued; `false` if there is none now.
    pub(crate) fn read_more(&mut self) -> bool {
        while self.queue.is_empty() {
            if let Some(from) = self.astray.take() {
                self.begin_again(from);
            }
            let reader = match (&mut self.reader, self.failed.take()) {
                (_, Some(error)) => {
                    self.queue.push_back(Err(error));
                    return true;
                }
                (Some(reader), None) => reader,
                (None, None) => return false,
            };
            // The caller has handled all earlier changes, as it requests the next one.
            reader.done();
            let before = reader.position();
            match reader.next() {
                Ok(Some(commit)) => {
                    self.astray = Some(before);
                    let of_commit: Vec<Result<T>> = changes_of(&self.db, commit).collect();
                    self.queue.extend(of_commit);
                    self.astray = None;
                }
                Ok(None) => return false,
                Err(error) => {
                    if matches!(error.code(), Code::FeedGap | Code::CorruptFeed) {
                        self.reader = None;
                    }
                    self.queue.push_back(Err(error));
                }
            }
        }
        true
    }

    /// Reads again after an earlier commit. If that is not possible, the iterator ends with the error.
    fn begin_again(&mut self, from: CommitSeq) {
        let Some(reader) = self.reader.take() else { return };
        // The old reader keeps the changes until the new one does.
        match open::<T>(&self.db, from) {
            // An existing stopper stops this iterator, not only its first reader.
            Ok(again) => self.reader = Some(again.with_stopper(reader.stopper())),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Queues the reason why reading failed, once. `false` if it did not fail.
    pub(crate) fn read_failure(&mut self) -> bool {
        let failure = self.reader.as_ref().and_then(FeedReader::failure);
        let Some(failure) = failure else { return false };
        self.reader = None;
        self.queue.push_back(Err(failure));
        true
    }
}

impl<T: Delivered> Iterator for ChangeIter<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.next_or_wait(if self.follows { None } else { Some(Duration::ZERO) })
    }
}

impl<T> fmt::Debug for ChangeIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeIter").field("reader", &self.reader).finish_non_exhaustive()
    }
}

/// Opens a reader of the wanted changes after a commit.
pub(crate) fn open<T: Delivered>(db: &Db, after: CommitSeq) -> Result<FeedReader> {
    let tree = T::tree();
    db.read_feed(after, move |name| tree.as_deref().is_none_or(|tree| tree == name))
}

/// The changes of a commit, as delivered to a program.
pub(crate) fn changes_of<T: Delivered>(db: &Db, commit: FeedCommit) -> impl Iterator<Item = Result<T>> {
    let FeedCommit { seq, time_ns, changes } = commit;
    let time = time_of(time_ns);
    changes.into_iter().filter_map(move |change| T::of(db, seq, time, change).transpose())
}

pub(crate) fn time_of(ns: u64) -> Time {
    let seconds = i64::try_from(ns / 1_000_000_000).expect("a sixth of the range at most");
    let rest = u32::try_from(ns % 1_000_000_000).expect("less than 10^9");
    Time::new(seconds, rest).expect("fewer nanoseconds than a second has")
}
