//! Rows flow from one thread that reads and encodes them to threads that commit them, one transaction per
//! batch.
//!
//! Owns the threads of an import and their order of events. Batches are taken in the order of the input, so
//! when a row is bad, every batch before it has been taken. The first failure stops the reading; commits in
//! progress are finished. One committing thread stores a prefix of the input. Several store whole batches,
//! and some may be of lines after the one that failed. The thread that waits for all others prints the
//! acknowledgements.
//!
//! The first batch is committed before any other is taken, and its transaction creates the collection. If
//! that fails nothing of the import is stored, and another definition can be tried. Every batch adds the
//! later columns that it may need, since no batch knows which others will be committed, or when.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use duramen::{Code, Db, Durability, ErrorKind, RowBatch, Schema, doc};

use crate::backend::{RowsToStore, StoredRowBatch, Writing};
use crate::failure::{FAILED, Failure, Result};
use crate::keys;
use crate::output::Output;
use crate::progress::Progress;
use crate::signals::Signals;

use super::memory::Memory;
use super::repeats::{Keys, Repeat};

/// How often a waiting thread checks whether it should stop.
const TICK: Duration = Duration::from_millis(50);

/// Encoded rows in the order of the input.
pub(super) trait RowSource: Send {
    /// Adds the next row to the batch and returns the line on which it began; `None` at the end.
    ///
    /// An invalid row is a failure that names its line.
    fn push_next(&mut self, batch: &mut RowBatch) -> Result<Option<u64>>;

    /// The schema, if rows since the last call brought new columns.
    fn grown(&mut self) -> Option<Schema>;
}

/// The user's parameters.
pub(super) struct Terms {
    /// The resulting collection, as far as it is known before the first row.
    pub(super) schema: Schema,
    pub(super) batch: BatchSize,
    pub(super) threads: usize,
    pub(super) replace: bool,
    pub(super) level: Durability,
    pub(super) ack: bool,
    /// The command that drops the collection, in backticks.
    pub(super) drop_command: String,
    /// The documents of the collection before the import; `None` if there is no collection.
    pub(super) documents_before: Option<u64>,
    /// The rows get ids.
    pub(super) assigns_ids: bool,
}

/// When a batch is full: at the first of two bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchSize {
    rows: usize,
    bytes: usize,
    /// Values and names of fields: a server takes 262,144 of them.
    parts: usize,
}

/// Beyond so many, the next row could be too much for a server.
const PARTS_OF_SERVED: usize = 200_000;

impl BatchSize {
    /// Large rows make smaller batches, so that memory does not depend on the size of a row.
    pub(super) const DEFAULT: BatchSize = BatchSize { rows: 1000, bytes: 1 << 20, parts: usize::MAX };

    /// The user's number of rows, whatever their size: each batch is a transaction.
    pub(super) fn of_rows(rows: u32) -> BatchSize {
        BatchSize { rows: rows as usize, bytes: usize::MAX, parts: usize::MAX }
    }

    /// For a server, unless it is the user's.
    pub(super) fn for_server(self) -> BatchSize {
        if self.bytes == usize::MAX { self } else { BatchSize { parts: PARTS_OF_SERVED, ..self } }
    }

    /// Whether a batch is full. `parts` counts those of its rows.
    fn is_reached(self, batch: &RowBatch, parts: &mut usize) -> Result<bool> {
        if self.parts < usize::MAX {
            *parts += batch.count_parts(batch.len() - 1)?;
        }
        Ok(batch.len() >= self.rows || batch.bytes() >= self.bytes || *parts >= self.parts)
    }
}

/// The result of an import.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Rows whose commit returned.
    pub(super) rows: u64,
    /// Batches whose commit returned.
    pub(super) batches: u64,
    /// The largest sequence among them.
    pub(super) seq: u64,
    /// Whether the whole input was stored.
    pub(super) complete: bool,
    /// Why not, unless a signal was the reason.
    pub(super) failure: Option<Failure>,
    /// Whether some batch may or may not be stored.
    pub(super) in_doubt: bool,
    /// Stored rows that are known to have the key of an earlier row of the input.
    pub(super) repeats: u64,
    /// One of them.
    pub(super) first_repeat: Option<Repeat>,
    /// Whether there may be more of them.
    pub(super) has_forgotten_keys: bool,
}

impl Loaded {
    /// Records a failure; the first one is reported.
    fn failed(&mut self, failure: Failure) {
        self.in_doubt |= matches!(&failure, Failure::Said(said) if said.code.kind() == ErrorKind::InDoubt);
        self.complete = false;
        self.failure.get_or_insert(failure);
    }

    fn stored(&mut self, stored: &Stored) {
        self.rows += stored.rows;
        self.batches += 1;
        self.seq = self.seq.max(stored.seq);
        self.repeats += stored.repeats.len() as u64;
        self.first_repeat = self.first_repeat.or(stored.repeats.first().copied());
        self.has_forgotten_keys |= stored.has_forgotten_keys;
    }
}

struct Batch {
    number: u64,
    rows: RowBatch,
    lines: Vec<u64>,
    shape: Shape,
    /// Its rows with the key of an earlier row of the input, as far as that is known.
    repeats: Vec<Repeat>,
    /// Whether there may be more of them.
    has_forgotten_keys: bool,
}

/// The schema that the rows of a batch need.
#[derive(Clone)]
struct Shape {
    schema: Arc<Schema>,
    /// Counts the schemas of an import, from 1. Each has all columns of the previous ones.
    version: u64,
}

impl Shape {
    fn grow(&mut self, schema: Schema) {
        self.schema = Arc::new(schema);
        self.version += 1;
    }
}

/// A batch whose commit returned.
struct Stored {
    number: u64,
    rows: u64,
    seq: u64,
    repeats: Vec<Repeat>,
    has_forgotten_keys: bool,
}

enum Event {
    Stored(Stored),
    Failed(Failure),
    Complete,
}

/// A batch, the end of the input, or the failure that ended it.
type Taken = std::result::Result<Option<Batch>, Failure>;

type Queue = Mutex<Receiver<Taken>>;

/// Runs an import until its end, a failure or a signal.
pub(super) fn run(
    target: &Arc<Writing>,
    terms: &Terms,
    rows: Box<dyn RowSource>,
    memory: Option<Memory>,
    out: Output,
    signals: &Signals,
    progress: &Progress,
) -> Loaded {
    let dropped_before = target.local().map(|db| db.stats().commit.dropped);
    let stop = Arc::new(AtomicBool::new(false));
    let (batches, queue) = mpsc::sync_channel(terms.threads + 1);
    let (events, inbox) = mpsc::channel();
    let shape = Shape { schema: Arc::new(terms.schema.clone()), version: 1 };
    let reading = (terms.batch, Arc::clone(&stop));
    // Never joined: it may wait for standard input for ever, and ends with the process.
    thread::spawn(move || read(rows, shape, reading.0, &batches, &reading.1));
    let writers = start_writers(&Writer::new(target, terms, memory, &stop), terms.threads, queue, &events);
    drop(events);
    let mut loaded = attend(&inbox, terms.ack, out, signals, progress, &stop);
    for writer in writers {
        if writer.join().is_err() {
            loaded.failed(panicked());
        }
    }
    if loaded.complete && loaded.batches == 0 {
        match target.ensure(&terms.schema, terms.level) {
            Ok(seq) => loaded.seq = seq,
            Err(failure) => loaded.failed(failure),
        }
    }
    if let (Some(db), Some(dropped_before)) = (target.local(), dropped_before)
        && let Err(failure) = all_in_the_log(db, dropped_before)
    {
        loaded.failed(failure);
    }
    loaded
}

/// Checks that no commit was dropped. At level `Memory` a commit returns before it is in the log, and may not
/// fit there.
fn all_in_the_log(db: &Db, dropped_before: u64) -> Result<()> {
    // A transaction without writes returns once the commits that it could read are in the log.
    db.transact(|_| Ok(()))?;
    let dropped = db.stats().commit.dropped - dropped_before;
    if dropped == 0 {
        return Ok(());
    }
    let message =
        format!("{dropped} of the commits at level memory never happened: the log could not take them");
    Err(Failure::said(FAILED, Code::DiskFull, message, "make room on the disk, and repeat"))
}

fn start_writers(
    writer: &Writer,
    threads: usize,
    queue: Receiver<Taken>,
    events: &Sender<Event>,
) -> Vec<JoinHandle<()>> {
    let queue = Arc::new(Mutex::new(queue));
    let start = |_| {
        let (writer, queue, events) = (writer.clone(), Arc::clone(&queue), events.clone());
        thread::spawn(move || {
            while let Some(event) = writer.step(&queue) {
                if events.send(event).is_err() {
                    break;
                }
            }
        })
    };
    (0..threads).map(start).collect()
}

fn panicked() -> Failure {
    Failure::said(
        FAILED,
        Code::System,
        "a thread of the import panicked",
        "this is a bug: please report it with the input",
    )
}

/// Prints that a batch is durable.
fn acknowledge(batch: u64, rows: u64, seq: u64, out: Output) -> Result<()> {
    if out.is_json() {
        return out.object("ack", doc! { "batch": batch, "rows": rows, "seq": seq });
    }
    out.line(&format!("ack {batch} {rows} {seq}"))
}

/// Handles events of the writers until the last of them has ended.
fn attend(
    inbox: &Receiver<Event>,
    ack: bool,
    out: Output,
    signals: &Signals,
    progress: &Progress,
    stop: &AtomicBool,
) -> Loaded {
    let begun = Instant::now();
    let mut loaded = Loaded::default();
    loop {
        match inbox.recv_timeout(TICK) {
            Ok(Event::Stored(stored)) => {
                loaded.stored(&stored);
                if ack && let Err(failure) = acknowledge(stored.number, loaded.rows, stored.seq, out) {
                    let failure = match failure {
                        Failure::OutputClosed => acks_unread(),
                        other => other,
                    };
                    loaded.failed(failure);
                    stop.store(true, Ordering::Relaxed);
                }
            }
            // The writer that failed has stopped the others.
            Ok(Event::Failed(failure)) => loaded.failed(failure),
            Ok(Event::Complete) => loaded.complete = loaded.failure.is_none(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return loaded,
        }
        if signals.received().is_some() {
            stop.store(true, Ordering::Relaxed);
        }
        progress.stored(loaded.rows, begun);
    }
}

fn acks_unread() -> Failure {
    Failure::said(
        FAILED,
        Code::System,
        "the acknowledgements are no longer read",
        "keep standard output open, or leave --ack out",
    )
}

/// The reading thread: fills batches until the input ends or fails, or no writer is left.
fn read(
    mut rows: Box<dyn RowSource>,
    mut shape: Shape,
    size: BatchSize,
    batches: &SyncSender<Taken>,
    stop: &AtomicBool,
) {
    let mut keys = Keys::default();
    for number in 1.. {
        let (mut encoded, mut lines, mut parts) = (RowBatch::new(), Vec::new(), 0);
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let next = rows.push_next(&mut encoded).and_then(|line| {
                let is_full = line.is_some() && size.is_reached(&encoded, &mut parts)?;
                Ok((line, is_full))
            });
            match next {
                Ok((Some(line), is_full)) => {
                    lines.push(line);
                    if is_full {
                        break false;
                    }
                }
                Ok((None, _)) => break true,
                // The rows of this batch before the bad one are not stored: a batch is stored whole or not at
                // all.
                Err(failure) => {
                    // After a signal no failure is sent: the missing end already shows that the reading
                    // stopped.
                    if !matches!(failure, Failure::Exit(_)) {
                        let _ = batches.send(Err(failure));
                    }
                    return;
                }
            }
        };
        if let Some(grown) = rows.grown() {
            shape.grow(grown);
        }
        let repeats = keys.repeats(encoded.keys(), &lines);
        let (shape, has_forgotten_keys) = (shape.clone(), keys.may_have_missed());
        let batch = Batch { number, rows: encoded, lines, shape, repeats, has_forgotten_keys };
        if !batch.rows.is_empty() && batches.send(Ok(Some(batch))).is_err() {
            return;
        }
        if ended {
            let _ = batches.send(Ok(None));
            return;
        }
    }
}

#[derive(Clone)]
struct Writer {
    target: Arc<Writing>,
    collection: String,
    replace: bool,
    level: Durability,
    drop_command: String,
    documents_before: Option<u64>,
    assigns_ids: bool,
    /// Of a database that this command has open.
    memory: Option<Arc<Memory>>,
    /// Whether batches are committed in the order of the input.
    in_order: bool,
    stop: Arc<AtomicBool>,
    /// The newest version of the schema that is known to be committed; 0 if none is.
    committed: Arc<AtomicU64>,
}

impl Writer {
    fn new(target: &Arc<Writing>, terms: &Terms, memory: Option<Memory>, stop: &Arc<AtomicBool>) -> Writer {
        Writer {
            target: Arc::clone(target),
            collection: terms.schema.name().to_owned(),
            replace: terms.replace,
            level: terms.level,
            drop_command: terms.drop_command.clone(),
            documents_before: terms.documents_before,
            assigns_ids: terms.assigns_ids,
            memory: memory.map(Arc::new),
            in_order: terms.threads == 1,
            stop: Arc::clone(stop),
            committed: Arc::default(),
        }
    }

    /// Takes one batch and commits it. `None` if nothing is left to do.
    fn step(&self, queue: &Queue) -> Option<Event> {
        let taken = loop {
            // A writer that panicked while it held the queue is reported when it is joined.
            let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            match queue.recv_timeout(TICK) {
                // No writer takes the second batch before the first is committed, or has stopped the import.
                Ok(Ok(Some(first))) if first.number == 1 => return Some(self.settle(Ok(Some(first)))),
                Ok(taken) => break taken,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        };
        Some(self.settle(taken))
    }

    /// Commits a batch. A failure stops the import.
    fn settle(&self, taken: Taken) -> Event {
        let settled = match taken {
            Ok(Some(batch)) => self.commit(&batch),
            Ok(None) => Ok(Event::Complete),
            Err(failure) => Err(failure),
        };
        settled.unwrap_or_else(|failure| {
            self.stop.store(true, Ordering::Release);
            Event::Failed(failure)
        })
    }

    /// Commits a batch, with more memory if it needs that.
    fn commit(&self, batch: &Batch) -> Result<Event> {
        let (Some(memory), Some(db)) = (&self.memory, self.target.local()) else {
            return self.try_commit(batch);
        };
        let stored = match self.try_commit(batch) {
            Err(Failure::Said(said)) if said.code == Code::TooLarge && memory.raise(db)? => {
                self.try_commit(batch)
            }
            stored => stored,
        };
        memory.review(db, batch.rows.len())?;
        stored
    }

    fn try_commit(&self, batch: &Batch) -> Result<Event> {
        let is_known = self.committed.load(Ordering::Acquire) >= batch.shape.version;
        let stored = self.target.store(&RowsToStore {
            collection: &self.collection,
            rows: &batch.rows,
            ensure: (!is_known).then_some(&*batch.shape.schema),
            replace: self.replace,
            level: self.level,
            stop: &self.stop,
        });
        match stored {
            Ok(StoredRowBatch::Committed(seq)) => {
                self.committed.fetch_max(batch.shape.version, Ordering::AcqRel);
                Ok(Event::Stored(Stored {
                    number: batch.number,
                    rows: batch.rows.len() as u64,
                    seq,
                    repeats: batch.repeats.clone(),
                    has_forgotten_keys: batch.has_forgotten_keys,
                }))
            }
            Ok(StoredRowBatch::KeyExists(index)) => Err(self.repeated(batch, index)),
            Err(failure) if failure.code() == Some(Code::MissingTarget) => Err(failure.hinted(
                "import the collection that it refers to first; rows that refer to rows of the same import must \
                 be in one batch with them, or after them: --batch, --threads 1",
            )),
            Err(failure) => Err(failure),
        }
    }

    fn repeated(&self, batch: &Batch, index: usize) -> Failure {
        let line = batch.lines.get(index).copied().unwrap_or(0);
        let key = batch.rows.keys().nth(index).map_or_else(String::new, keys::shown);
        let earlier = batch.repeats.iter().find(|repeat| repeat.index == index).map(|repeat| repeat.earlier);
        let collection = &self.collection;
        // Beside a server others store documents, too.
        let is_only_writer = self.target.local().is_some();
        let was_empty = is_only_writer && self.documents_before.unwrap_or(0) == 0;
        let (message, is_of_input) = match earlier {
            Some(earlier) => (format!("lines {earlier} and {line} have the same key: {key}"), true),
            None if was_empty => {
                let other = if self.in_order { "an earlier line" } else { "another line" };
                (format!("line {line}: {other} has the same key: {key}"), true)
            }
            None => {
                let is_certain = self.in_order && !batch.has_forgotten_keys;
                let since = match (is_only_writer, is_certain) {
                    (true, true) => "from before this import",
                    (true, false) => "from before or of another line",
                    (false, true) => "from before or of another writer",
                    (false, false) => "from before, of another writer or of another line",
                };
                (format!("line {line}: {collection} has a document under {key} already, {since}"), false)
            }
        };
        let hint = match (is_of_input, self.documents_before) {
            (false, _) if self.assigns_ids => {
                "another import took these ids: import again, and the ids begin after its last".to_owned()
            }
            (false, _) => "--replace puts the row of the input in its place".to_owned(),
            (true, None) if batch.number == 1 => format!("import again, {APART}"),
            (true, None) if is_only_writer => format!("{} and import again, {APART}", self.drop_command),
            (true, _) => format!("import into a new collection, {APART}"),
        };
        Failure::said(FAILED, Code::AlreadyExists, message, hint)
    }
}

/// How rows with the same key are kept.
const APART: &str = "with a column more in --key that tells them apart, or with --assign-id; \
                     --replace keeps only one of them";
