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

use duramen::{Code, Db, ErrorKind, Reads, RowBatch, Schema, doc};

use crate::failure::{FAILED, Failure, Result};
use crate::keys;
use crate::output::Output;
use crate::progress::Progress;
use crate::signals::Signals;

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
    pub(super) batch_rows: usize,
    pub(super) threads: usize,
    pub(super) replace: bool,
    pub(super) ack: bool,
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
}

impl Loaded {
    /// Records a failure; the first one is reported.
    fn failed(&mut self, failure: Failure) {
        self.in_doubt |= matches!(&failure, Failure::Said(said) if said.code.kind() == ErrorKind::InDoubt);
        self.complete = false;
        self.failure.get_or_insert(failure);
    }
}

struct Batch {
    number: u64,
    rows: RowBatch,
    lines: Vec<u64>,
    shape: Shape,
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

enum Event {
    Stored { number: u64, rows: u64, seq: u64 },
    Failed(Failure),
    Complete,
}

/// A batch, the end of the input, or the failure that ended it.
type Taken = std::result::Result<Option<Batch>, Failure>;

type Queue = Mutex<Receiver<Taken>>;

/// Runs an import until its end, a failure or a signal.
pub(super) fn run(
    db: &Db,
    terms: &Terms,
    rows: Box<dyn RowSource>,
    out: Output,
    signals: &Signals,
    progress: &Progress,
) -> Loaded {
    let dropped_before = db.stats().commit.dropped;
    let stop = Arc::new(AtomicBool::new(false));
    let (batches, queue) = mpsc::sync_channel(terms.threads + 1);
    let (events, inbox) = mpsc::channel();
    let shape = Shape { schema: Arc::new(terms.schema.clone()), version: 1 };
    let reading = (terms.batch_rows, Arc::clone(&stop));
    // Never joined: it may wait for standard input for ever, and ends with the process.
    thread::spawn(move || read(rows, shape, reading.0, &batches, &reading.1));
    let writers = start_writers(&Writer::new(db, terms, &stop), terms.threads, queue, &events);
    drop(events);
    let mut loaded = attend(&inbox, terms.ack, out, signals, progress, &stop);
    for writer in writers {
        if writer.join().is_err() {
            loaded.failed(panicked());
        }
    }
    if loaded.complete && loaded.batches == 0 {
        match db.transact_with_receipt(|tx| tx.ensure(&terms.schema)) {
            Ok((_, receipt)) => loaded.seq = receipt.seq().0,
            Err(error) => loaded.failed(error.into()),
        }
    }
    if let Err(failure) = all_in_the_log(db, dropped_before) {
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
            Ok(Event::Stored { number, rows, seq }) => {
                loaded.rows += rows;
                loaded.batches += 1;
                loaded.seq = loaded.seq.max(seq);
                if ack && let Err(failure) = acknowledge(number, loaded.rows, seq, out) {
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
    batch_rows: usize,
    batches: &SyncSender<Taken>,
    stop: &AtomicBool,
) {
    for number in 1.. {
        let (mut encoded, mut lines) = (RowBatch::new(), Vec::with_capacity(batch_rows));
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match rows.push_next(&mut encoded) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break true,
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
            if encoded.len() == batch_rows {
                break false;
            }
        };
        if let Some(grown) = rows.grown() {
            shape.grow(grown);
        }
        let batch = Batch { number, rows: encoded, lines, shape: shape.clone() };
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
    db: Db,
    collection: String,
    replace: bool,
    /// Whether batches are committed in the order of the input.
    in_order: bool,
    stop: Arc<AtomicBool>,
    /// The newest version of the schema that is known to be committed; 0 if none is.
    committed: Arc<AtomicU64>,
}

impl Writer {
    fn new(db: &Db, terms: &Terms, stop: &Arc<AtomicBool>) -> Writer {
        Writer {
            db: db.clone(),
            collection: terms.schema.name().to_owned(),
            replace: terms.replace,
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

    fn commit(&self, batch: &Batch) -> Result<Event> {
        let mut in_the_way = None;
        let known = self.committed.load(Ordering::Acquire) >= batch.shape.version;
        let stored = self.db.transact_with_receipt(|tx| {
            if !known {
                tx.ensure(&batch.shape.schema)?;
            }
            let documents = tx.documents(&self.collection);
            if self.replace {
                return documents.put_rows(&batch.rows);
            }
            in_the_way = documents.insert_rows(&batch.rows)?;
            match in_the_way {
                None => Ok(()),
                Some(_) => Err(duramen::Error::new(Code::AlreadyExists, "a key exists already")),
            }
        });
        match (stored, in_the_way) {
            (Ok(((), receipt)), _) => {
                self.committed.fetch_max(batch.shape.version, Ordering::AcqRel);
                let rows = batch.rows.len() as u64;
                Ok(Event::Stored { number: batch.number, rows, seq: receipt.seq().0 })
            }
            (Err(error), Some(index)) if error.code() == Code::AlreadyExists => {
                Err(self.repeated(batch, index))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    fn repeated(&self, batch: &Batch, index: usize) -> Failure {
        let line = batch.lines.get(index).copied().unwrap_or(0);
        let key = batch.rows.iter().nth(index).map_or_else(String::new, |(key, _)| keys::shown(key));
        Failure::said(
            FAILED,
            Code::AlreadyExists,
            format!("line {line}: {} has a document under {key} already", self.collection),
            if self.in_order {
                "--replace puts the later document in its place"
            } else {
                "--replace puts one in the place of the other, and with --threads 1 always the later one"
            },
        )
    }
}
