//! What a program does in a life: transactions of any kind and level, blobs piece by piece, a consumer,
//! passing time.
//!
//! Owns how each is recorded in the history.

use std::cell::Cell;

use duramen::{Code, Durability, Error, LocalReads};

use super::{Life, NS_A_MS, START_MS};
use crate::product::feed::{MIRROR, work};
use crate::product::judge::{failed, millis, same};
use crate::product::model::{BlobModel, State, blob_bytes};
use crate::product::references::Phase;
use crate::product::references::writes::Outcome;
use crate::product::writes::{Applied, Circumstances, Write, some_writes};
use crate::search::run::some_level;

/// The smallest pieces that blobs may have.
const PIECE_BYTES: usize = 1024;

/// The error text of an abandoned transaction.
const GIVEN_UP: &str = "given up";

impl Life {
    pub(super) fn circumstances(&mut self) -> Result<Circumstances, String> {
        let shown = self.look_at_views(false)?;
        let is_migrating = shown.as_ref().is_some_and(|shown| shown.is_migrating);
        // Documents yet to be converted have no rows: the migration finds two with one address.
        let is_unique = shown.is_some_and(|shown| shown.answers_by_name("by_email"));
        Ok(Circumstances {
            release: self.release,
            is_migrating,
            is_unique,
            has_upload: self.upload.is_some(),
            books: Phase::of_books(self.db()).map_err(failed("references"))?,
        })
    }

    /// Makes a few writes of any kind at any level, and commits or abandons them. Returns whether it reached
    /// its end.
    pub(super) fn transaction(&mut self, is_given_up: bool) -> Result<bool, String> {
        let at = self.circumstances()?;
        let writes = some_writes(&self.state, at, &mut self.random);
        let level = some_level(&mut self.random);
        let began = self.disk.recorded_len();
        let before = self.published();
        let (now, ticket) = (Cell::new(0), Cell::new(u64::MAX));
        let upload = self.upload.as_ref();
        let done = self.db().at(level).write(|tx| {
            now.set(millis(tx.time()));
            let upload = upload.map(|(upload, _)| upload);
            writes.iter().try_for_each(|write| write.perform(tx, at.release, upload, &ticket))?;
            if is_given_up { Err(Error::invalid(GIVEN_UP)) } else { Ok(()) }
        });
        let refusal = Refusal::of(&writes, &self.state, at);
        let receipt = match done {
            Ok(_) if refusal.is_certain => return Err(format!("{:?} is due: {writes:?}", refusal.codes)),
            Ok(_) if is_given_up => return Err(format!("given up, and committed: {writes:?}")),
            Ok(receipt) => receipt,
            Err(error) => {
                let is_given_up = is_given_up && !refusal.is_at_once && error.message() == GIVEN_UP;
                if !is_given_up && !refusal.codes.contains(&error.code()) {
                    return Err(failed(&format!("transaction {writes:?}"))(error));
                }
                same("the newest commit after a transaction that failed", &self.published(), &before)?;
                if !is_given_up {
                    self.tally.refused_with(error.code());
                }
                return Ok(is_given_up);
            }
        };
        let upload_model = upload.map_or((0, 0), |(_, model)| *model);
        // A value that has expired stays so while the database is open.
        let (earliest, latest) = (self.now_ms.max(self.wall_ms), self.latest_ms);
        if !(earliest..=latest).contains(&now.get()) {
            return Err(format!("it is {} by the transaction, and {earliest} to {latest}", now.get()));
        }
        self.now_ms = now.get();
        if ticket.get() <= self.state.last_ticket && self.state.last_ticket > 0 {
            return Err(format!("the id {} was given twice", ticket.get()));
        }
        let version = self.release.version();
        let applied = Applied { now_ms: now.get(), version, upload: upload_model, ticket: ticket.get() };
        let (mut state, mut told) = (self.state.clone(), Vec::new());
        writes.iter().for_each(|write| write.apply(&mut state, &applied, &mut told));
        if writes.iter().any(|write| matches!(write, Write::Attach(_))) {
            self.upload = None;
        }
        self.tally.unrestricted += unrestricted_deletes(&writes, &self.state);
        let seq = receipt.seq().0;
        if seq > before {
            self.made(seq, seq, began, state, told);
        }
        self.acknowledged(seq, level);
        Ok(true)
    }

    /// Notes what a receipt promises.
    pub(super) fn acknowledged(&mut self, seq: u64, level: Durability) {
        if level == Durability::Disk {
            self.history.promise(self.disk.recorded_len(), seq);
        }
        if level != Durability::Memory {
            self.handed_over = self.handed_over.max(seq);
        }
    }

    pub(super) fn some_blob(&mut self) -> BlobModel {
        let length = if self.random.chance(1, 5) {
            self.random.between(8000, 10_000)
        } else {
            self.random.below(3000)
        };
        (length, u8::try_from(self.random.below(256)).expect("less than 256"))
    }

    pub(super) fn put_blob(&mut self) -> Result<(), String> {
        let (key, blob) = (self.random.below(8) as u64, self.some_blob());
        let (began, before) = (self.disk.recorded_len(), self.published());
        let blobs = self.db().blobs("files").piece_bytes(PIECE_BYTES).map_err(failed("pieces"))?;
        blobs.put(key, &blob_bytes(blob)[..]).map_err(failed("put"))?;
        let mut state = self.state.clone();
        state.blobs.insert(key, blob);
        // The commit that makes it visible is durable; deletions after it are not.
        let durable = self.db().stats().commit.durable.0;
        self.made(before + 1, durable, began, state, Vec::new());
        Ok(())
    }

    /// Writes more of the current upload, or ends it; begins a new one if there is none.
    pub(super) fn upload_some(&mut self) -> Result<(), String> {
        use std::io::Write as _;
        let Some((mut writer, blob, done)) = self.writer.take() else {
            let blob = self.some_blob();
            let blobs = self.db().blobs("files").piece_bytes(PIECE_BYTES).map_err(failed("pieces"))?;
            self.writer = Some((blobs.writer(()).map_err(failed("writer"))?, blob, 0));
            return Ok(());
        };
        if done < blob.0 {
            let to = (done + self.random.between(1, 9000)).min(blob.0);
            writer.write_all(&blob_bytes(blob)[done..to]).map_err(|error| format!("write: {error}"))?;
            self.writer = Some((writer, blob, to));
            return Ok(());
        }
        self.upload = Some((writer.finish_unattached().map_err(failed("finish"))?, blob));
        Ok(())
    }

    /// Abandons an upload, finished or not; begins one for that if there is none. Returns whether there was
    /// one.
    pub(super) fn give_up_upload(&mut self) -> Result<bool, String> {
        if self.writer.is_none() && self.upload.is_none() {
            let pieces = self.random.between(2, 5);
            for _ in 0..pieces {
                self.upload_some()?;
            }
        }
        Ok(self.writer.take().is_some() | self.upload.take().is_some())
    }

    /// Lets time pass, and deletes expired values. Returns whether there were any.
    pub(super) fn expire(&mut self) -> Result<bool, String> {
        self.wall_ms += self.random.below(600) as u64;
        self.set_clock();
        let expired = self.db().sweep_expired().map_err(failed("sweep_expired"))?;
        Ok(self.tally.cleaned(expired))
    }

    /// Collects orphaned pieces. Returns whether there were any.
    ///
    /// Transactions that write blobs collect by themselves, so that an upload is abandoned before.
    pub(super) fn collect(&mut self) -> Result<bool, String> {
        self.give_up_upload()?;
        let collected = self.db().sweep_blobs().map_err(failed("sweep_blobs"))?;
        Ok(self.tally.cleaned(collected))
    }

    /// Runs the consumer, in transactions of any level. Returns whether it got any changes.
    pub(super) fn consume(&mut self) -> Result<bool, String> {
        let level = some_level(&mut self.random);
        let (batch, batches) = (self.random.between(1, 9), self.random.between(1, 4));
        let consumer = self.db().at(level).consumer(MIRROR).register().map_err(failed("register"))?;
        work(&consumer, batch, batches).map(|count| count > 0).map_err(failed("consumer"))
    }

    /// Makes a checkpoint, with transactions between its writes.
    pub(super) fn checkpoint(&mut self) -> Result<(), String> {
        let (db, mut beside) = (self.db().clone(), Ok(()));
        let written = db.checkpoint_with(&mut || {
            if beside.is_ok() && self.random.chance(1, 6) {
                beside = self.transaction(false).map(drop);
            }
        });
        written.map_err(failed("checkpoint"))?;
        beside.map_err(|what| format!("beside a checkpoint: {what}"))
    }

    /// Lets time pass until the engine's background work is due.
    pub(super) fn step_engine(&mut self) -> Result<(), String> {
        let ms = self.random.below(1500) as u64;
        self.disk.advance_clock(ms * NS_A_MS);
        self.wall_ms += ms;
        self.set_clock();
        self.db().step_engine().map_err(failed("step_engine"))
    }

    /// Sets the clock: forwards, past what expires, or backwards. Returns whether it changed.
    pub(super) fn jump(&mut self) -> Result<bool, String> {
        let (before, ms) = (self.wall_ms, self.random.below(3000) as u64);
        self.wall_ms =
            if self.random.chance(1, 2) { self.wall_ms + ms } else { (self.wall_ms - ms).max(START_MS) };
        self.set_clock();
        Ok(self.wall_ms != before)
    }
}

/// How the unique view and the references refuse a transaction.
#[derive(Debug, Default)]
struct Refusal {
    /// The errors that may be returned.
    codes: Vec<Code>,
    /// Whether one of them must be.
    is_certain: bool,
    /// Whether a call returns one of them, before the commit.
    is_at_once: bool,
}

impl Refusal {
    /// That of writes which are applied one after the other.
    fn of(writes: &[Write], state: &State, at: Circumstances) -> Refusal {
        let (mut refusal, mut state) = (Refusal::default(), state.clone());
        let applied = Applied { now_ms: 0, version: 0, upload: (0, 0), ticket: 0 };
        for write in writes {
            let (code, is_certain) = match write.outcome(&state, at) {
                Outcome::Passes => (None, false),
                Outcome::RefusedAtOnce(code) => {
                    refusal.is_at_once = true;
                    (Some(code), true)
                }
                Outcome::RefusedAtCommit(code) => (Some(code), true),
                Outcome::MayBeRefused(code) => (Some(code), false),
            };
            refusal.codes.extend(code);
            refusal.is_certain |= is_certain;
            write.apply(&mut state, &applied, &mut Vec::new());
        }
        refusal
    }
}

/// How many of these writes delete what a restricting reference names, and nothing refers to.
fn unrestricted_deletes(writes: &[Write], before: &State) -> u64 {
    let is_one = |write: &&Write| match write {
        Write::Reference(write) => write.is_unrestricted_delete(&before.referring),
        _ => false,
    };
    writes.iter().filter(is_one).count() as u64
}
