//! Rows flow from one thread that reads and encodes them to those that commit them, a batch a transaction.
//!
//! Owns the threads of an import and their order of events: batches are taken in the order of the input, so when a
//! row turns out to be bad every batch before it has been taken. The first failure stops the reading; what is being
//! committed is finished. Acknowledgements are printed by the one thread that waits for all.
//!
//! The collection is created, or takes its new columns, in the transaction of the first batch: where that fails,
//! nothing is left of it, and other terms can be tried.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use duramen::{Code, Db, RowBatch, Schema};

use super::progress::Progress;
use crate::failure::{FAILED, Failure, Result};
use crate::keys;
use crate::output::Output;
use crate::signals::Signals;

/// How often a waiting thread looks whether it is to stop.
const TICK: Duration = Duration::from_millis(50);

/// Rows in the order of the input, encoded.
pub(super) trait RowSource: Send {
    /// Adds the next row to the batch and says on which line it began; `None` at the end. A row that cannot be
    /// taken is a failure that names its line.
    fn push_next(&mut self, batch: &mut RowBatch) -> Result<Option<u64>>;

    /// The schema, if rows since the last call brought new columns.
    fn grown(&mut self) -> Option<Schema>;
}

/// What the user asked for.
pub(super) struct Terms {
    /// The collection as it is to be, as far as is known before the first row.
    pub(super) schema: Schema,
    pub(super) batch_rows: usize,
    pub(super) threads: usize,
    pub(super) replace: bool,
    pub(super) ack: bool,
}

/// What came of it.
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
}

struct Batch {
    number: u64,
    rows: RowBatch,
    lines: Vec<u64>,
    grown: Option<Schema>,
}

enum Event {
    Stored { number: u64, rows: u64, seq: u64 },
    Failed(Failure),
    Complete,
}

type Queue = Arc<Mutex<Receiver<std::result::Result<Option<Batch>, Failure>>>>;

/// Runs an import to its end, a failure or a signal.
pub(super) fn run(
    db: &Db,
    terms: &Terms,
    rows: Box<dyn RowSource>,
    out: Output,
    signals: &Signals,
    progress: &Progress,
) -> Loaded {
    let stop = Arc::new(AtomicBool::new(false));
    let (batches, queue) = mpsc::sync_channel(terms.threads + 1);
    let (events, inbox) = mpsc::channel();
    let reading = (terms.batch_rows, Arc::clone(&stop));
    // Never joined: it may wait for standard input for ever, and ends with the process.
    thread::spawn(move || read(rows, reading.0, &batches, &reading.1));
    let queue = Arc::new(Mutex::new(queue));
    let settled = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..terms.threads)
        .map(|_| {
            let writer = Writer {
                db: db.clone(),
                schema: terms.schema.clone(),
                replace: terms.replace,
                stop: Arc::clone(&stop),
                settled: Arc::clone(&settled),
            };
            let (queue, events) = (Arc::clone(&queue), events.clone());
            thread::spawn(move || {
                while let Some(event) = writer.step(&queue) {
                    if events.send(event).is_err() {
                        break;
                    }
                }
            })
        })
        .collect();
    drop(events);
    let mut loaded = attend(&inbox, terms.ack, out, signals, progress, &stop);
    for writer in writers {
        if writer.join().is_err() {
            return Loaded { failure: Some(panicked()), ..loaded };
        }
    }
    if loaded.complete && loaded.batches == 0 {
        match db.transact_with_receipt(|tx| tx.ensure(&terms.schema)) {
            Ok((_, receipt)) => loaded.seq = receipt.seq().0,
            Err(error) => loaded = Loaded { failure: Some(error.into()), ..Loaded::default() },
        }
    }
    loaded
}

fn panicked() -> Failure {
    Failure::said(
        FAILED,
        Code::System,
        "a thread of the import panicked",
        "this is a bug: please report it with the input",
    )
}

/// Waits for what the writers say until the last of them has ended.
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
                if ack && let Err(failure) = out.line(&format!("ack {number} {} {seq}", loaded.rows)) {
                    let failure = match failure {
                        Failure::OutputClosed => acks_unread(),
                        other => other,
                    };
                    loaded.failure.get_or_insert(failure);
                    stop.store(true, Ordering::Relaxed);
                }
            }
            Ok(Event::Failed(failure)) => {
                loaded.failure.get_or_insert(failure);
                stop.store(true, Ordering::Relaxed);
            }
            Ok(Event::Complete) => loaded.complete = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if signals.received().is_some() {
            stop.store(true, Ordering::Relaxed);
        }
        progress.stored(loaded.rows, begun);
    }
    loaded.complete &= loaded.failure.is_none();
    loaded
}

fn acks_unread() -> Failure {
    Failure::said(
        FAILED,
        Code::System,
        "nobody reads the acknowledgements any more",
        "keep standard output open, or leave --ack out",
    )
}

/// The reading thread: fills batches until the input ends, fails, or nobody wants more.
fn read(
    mut rows: Box<dyn RowSource>,
    batch_rows: usize,
    batches: &SyncSender<std::result::Result<Option<Batch>, Failure>>,
    stop: &AtomicBool,
) {
    for number in 1.. {
        let mut batch =
            Batch { number, rows: RowBatch::new(), lines: Vec::with_capacity(batch_rows), grown: None };
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match rows.push_next(&mut batch.rows) {
                Ok(Some(line)) => batch.lines.push(line),
                Ok(None) => break true,
                // The rows of this batch before the bad one are not stored: a batch is stored whole or not at all.
                Err(failure) => {
                    // After a signal there is nothing to say: that not all was read is known from what is missing.
                    if !matches!(failure, Failure::Exit(_)) {
                        let _ = batches.send(Err(failure));
                    }
                    return;
                }
            }
            if batch.rows.len() == batch_rows {
                break false;
            }
        };
        batch.grown = rows.grown();
        if !batch.rows.is_empty() && batches.send(Ok(Some(batch))).is_err() {
            return;
        }
        if ended {
            let _ = batches.send(Ok(None));
            return;
        }
    }
}

struct Writer {
    db: Db,
    schema: Schema,
    replace: bool,
    stop: Arc<AtomicBool>,
    /// Whether the collection is there, under these terms.
    settled: Arc<AtomicBool>,
}

impl Writer {
    /// Takes one batch and commits it. `None` when there is nothing more to do.
    fn step(&self, queue: &Queue) -> Option<Event> {
        let taken = loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            // A writer that panicked while it held the queue is told of when it is joined.
            let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            match queue.recv_timeout(TICK) {
                Ok(taken) => break taken,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        };
        Some(match taken {
            Ok(Some(batch)) => self.commit(&batch).unwrap_or_else(Event::Failed),
            Ok(None) => Event::Complete,
            Err(failure) => Event::Failed(failure),
        })
    }

    fn commit(&self, batch: &Batch) -> Result<Event> {
        let mut in_the_way = None;
        let settled = self.settled.load(Ordering::Relaxed);
        let stored = self.db.transact_with_receipt(|tx| {
            match &batch.grown {
                Some(grown) => _ = tx.ensure(grown)?,
                None if settled => {}
                None => _ = tx.ensure(&self.schema)?,
            }
            if self.replace {
                return tx.put_rows(self.schema.name(), &batch.rows);
            }
            in_the_way = tx.insert_rows(self.schema.name(), &batch.rows)?;
            match in_the_way {
                None => Ok(()),
                Some(_) => Err(duramen::Error::new(Code::AlreadyExists, "a key is there already")),
            }
        });
        match (stored, in_the_way) {
            (Ok(((), receipt)), _) => {
                self.settled.store(true, Ordering::Relaxed);
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
            format!("line {line}: {} has a document under {key} already", self.schema.name()),
            "--replace puts the later document in its place",
        )
    }
}
