//! The audit: who came, who was refused, and who changed users and definitions.
//!
//! It is lines of JSON in the directory `audit` of the database's, in 16 files of 64 MiB. Two lines tell of
//! each change: the first is on disk before it begins, the second says how it ended. Logins and refusals are
//! written once a second, and equal ones counted together: no call waits for them, and no client can fill the
//! disk with them.
//!
//! Each line has the hash of the one before, and once a minute a row of the database says how far the audit
//! has come: [`verify`] tells what was changed, taken out, moved or cut off. Who may write the files and the
//! database can make both anew. Stored bytes: docs/format.md, section "Audit".

mod chain;
mod line;
mod log;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};
use duramen::{Db, Document, Durability, LocalReads, Value, doc, wire};

pub use self::chain::{Mark, Verified, verify};
pub(crate) use self::line::Event;
pub use self::line::Hash;
use self::log::Log;

/// Between two rows of the database.
const MARK_INTERVAL: Duration = Duration::from_secs(60);

/// Kinds of logins and refusals that are told in a second; the others are counted together.
const TOLD_MAX: usize = 10;

/// What is told of a name.
const ON_CHARS_MAX: usize = 256;

/// The audit of a database.
pub struct Audit {
    db: Db,
    log: Mutex<Log>,
    waiting: Mutex<Waiting>,
    /// When the row of the database was written, and the last line that it has.
    marked: Mutex<(Instant, u64)>,
}

/// What was not written yet.
#[derive(Debug, Default)]
struct Waiting {
    /// Logins and refusals, and how often.
    counted: HashMap<Event, u64>,
    /// Ends of what was begun, in their order.
    ends: Vec<Event>,
}

/// The audits that are open in this process, by database and opening: two servers of one database have one.
static OPEN: Mutex<Vec<(Opening, Weak<Audit>)>> = Mutex::new(Vec::new());

/// The id of a database, and which opening of it this is.
type Opening = (Vec<u8>, u64);

/// Who does something.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    /// The name of the user.
    pub user: String,
    /// Where it is: an address, or `socket`.
    pub from: String,
}

impl Audit {
    /// Opens the audit of a database, which may be open already. Its files are made with the first line.
    ///
    /// # Errors
    /// `System` (E1001) if a file cannot be read; those of a [read](duramen::Error#reads).
    pub fn open(db: &Db) -> Result<Arc<Audit>> {
        let key = (key_of(db), db.opening());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, audit)| audit.strong_count() > 0);
        if let Some(audit) = open.iter().find(|(of, _)| *of == key).and_then(|(_, audit)| audit.upgrade()) {
            return Ok(audit);
        }
        let mark = mark_of(db)?;
        let log = Log::open(&db.durability_status().path, mark)?;
        let marked = (Instant::now(), mark.map_or(0, |mark| mark.last));
        let (log, waiting, marked) = (Mutex::new(log), Mutex::default(), Mutex::new(marked));
        let audit = Arc::new(Audit { db: db.clone(), log, waiting, marked });
        open.push((key, Arc::downgrade(&audit)));
        Ok(audit)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the audit must tell of. The line is on disk before `work` begins.
    ///
    /// # Errors
    /// Those of `work`; `DiskFull` (E0301) or `System` (E1001) if the line cannot be written: then nothing is
    /// done.
    pub fn act<T>(
        self: &Arc<Self>,
        actor: &Actor,
        act: (&str, &str),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.act_to(actor, act, work, |_| None)
    }

    /// As [`Audit::act`], to take away what may not be there: returns whether it was. If not, the last line
    /// has the code of an error (E0903).
    ///
    /// # Errors
    /// As [`Audit::act`].
    pub fn remove(
        self: &Arc<Self>,
        actor: &Actor,
        act: (&str, &str),
        work: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        self.act_to(actor, act, work, |was_there| (!was_there).then_some(Code::NoSuchKey))
    }

    /// As [`Audit::act`]; `missed` is the code that the last line has if the work went well and did nothing.
    fn act_to<T>(
        self: &Arc<Self>,
        actor: &Actor,
        (what, on): (&str, &str),
        work: impl FnOnce() -> Result<T>,
        missed: impl FnOnce(&T) -> Option<Code>,
    ) -> Result<T> {
        let begun = self.begin(actor, what, on)?;
        let done = work();
        begun.end(done.as_ref().map_or_else(|error| Some(error.code()), missed));
        done
    }

    /// Tells that something is about to be done.
    ///
    /// # Errors
    /// `DiskFull` (E0301) or `System` (E1001) if the line cannot be written.
    pub(crate) fn begin(self: &Arc<Self>, actor: &Actor, what: &str, on: &str) -> Result<Begun> {
        let event = Event {
            what: what.to_owned(),
            step: Some("begin"),
            user: actor.user.clone(),
            from: actor.from.clone(),
            on: on.chars().take(ON_CHARS_MAX).collect(),
            ..Event::default()
        };
        let mut log = self.log();
        self.write_ends(&mut log)?;
        let number = log.append(&event)?;
        log.sync()?;
        Ok(Begun {
            audit: Arc::clone(self),
            event: Event { step: Some("end"), begin: Some(number), ..event },
        })
    }

    /// Tells what is done already, or was refused, within a second.
    pub(crate) fn tell(&self, event: Event) {
        let counted = &mut self.waiting().counted;
        // Those who are nobody leave room for those who are somebody.
        let max = if event.user.is_empty() { TOLD_MAX / 2 } else { TOLD_MAX };
        let event = if counted.contains_key(&event) || counted.len() < max {
            event
        } else {
            Event { what: "others".to_owned(), ..Event::default() }
        };
        *counted.entry(event).or_default() += 1;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_ends(&self, log: &mut Log) -> Result<()> {
        let mut ends = std::mem::take(&mut self.waiting().ends);
        while let Some(end) = ends.first() {
            if let Err(error) = log.append(end) {
                self.waiting().ends.splice(0..0, ends);
                return Err(error);
            }
            ends.remove(0);
        }
        Ok(())
    }

    /// Writes what waits, and the row of the database if it is time, or if the audit is to be closed.
    ///
    /// # Errors
    /// `DiskFull` (E0301) or `System` (E1001) if the lines cannot be written; those of a
    /// [commit](duramen::Error#commits).
    pub fn flush(&self, is_last: bool) -> Result<()> {
        let mut log = self.log();
        self.write_ends(&mut log)?;
        let mut counted = std::mem::take(&mut self.waiting().counted);
        while let Some((event, count)) = counted.iter().next().map(|(event, count)| (event.clone(), *count)) {
            if let Err(error) = log.append(&Event { count: (count > 1).then_some(count), ..event.clone() }) {
                let mut waiting = self.waiting();
                counted
                    .into_iter()
                    .for_each(|(event, count)| *waiting.counted.entry(event).or_default() += count);
                return Err(error);
            }
            counted.remove(&event);
        }
        log.sync()?;
        let has_old_files = log.has_old_files();
        let mark = log.mark_without_old_files();
        // Calls that must be told go on meanwhile.
        drop(log);
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = is_last || has_old_files || marked.0.elapsed() >= MARK_INTERVAL;
        if let Some(mark) = mark.filter(|mark| is_time && mark.last > marked.1) {
            put_mark(&self.db, &mark)?;
            *marked = (Instant::now(), mark.last);
            self.log().drop_old_files(&mark);
        }
        Ok(())
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // Ends that cannot be written now are missing: their begins are there.
        let _ = self.write_ends(&mut self.log());
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("log", &self.log).finish_non_exhaustive()
    }
}

/// What was begun. Dropped before [`Begun::end`], it is told that how it ended is not known: the client is
/// gone, and the work may go on.
#[derive(Debug)]
pub(crate) struct Begun {
    audit: Arc<Audit>,
    /// Its end.
    event: Event,
}

impl Begun {
    /// Tells how it ended. The line is on disk a second later.
    pub(crate) fn end(mut self, code: Option<Code>) {
        self.event.code = code.map(|code| code.to_string());
        self.tell();
    }

    fn tell(&mut self) {
        let event = std::mem::take(&mut self.event);
        // Written with the next line, or within a second: nobody waits for it.
        self.audit.waiting().ends.push(event);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.event.step.is_some() {
            self.event.code = Some(Code::OutcomeUnknown.to_string());
            self.tell();
        }
    }
}

/// How far the audit of a database has come, as its row says.
///
/// # Errors
/// Those of a [read](duramen::Error#reads).
pub fn mark_of(db: &Db) -> Result<Option<Mark>> {
    mark_in(&db.snapshot()?, &key_of(db))
}

fn mark_in(state: &impl LocalReads, key: &[u8]) -> Result<Option<Mark>> {
    let Some(row) = wire::audit_row(state, key)? else { return Ok(None) };
    let row = Document::from_bytes(&row)?;
    let number = |field: &str| match row.get(field) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let hash = match row.get("hash") {
        Some(Value::Bytes(hash)) => Hash::try_from(&hash[..]).ok(),
        _ => None,
    };
    match (number("first"), number("last"), hash) {
        (Some(first), Some(last), Some(hash)) => Ok(Some(Mark { first, last, hash })),
        _ => Err(Error::new(Code::Unreadable, "the row of the audit is not one that this release writes")
            .with_hint("open the database with the release that wrote it")),
    }
}

fn put_mark(db: &Db, mark: &Mark) -> Result<()> {
    let row = doc! { "first": mark.first, "last": mark.last, "hash": Value::Bytes(mark.hash.to_vec()) };
    let (key, row) = (key_of(db), row.to_bytes()?);
    db.at(Durability::Disk).transact(|tx| wire::put_audit_row(tx, &key, &row))
}

/// A copy of a database has an audit of its own, and the row of the other one.
fn key_of(db: &Db) -> Vec<u8> {
    db.durability_status().database.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    //! A change of which a power cut leaves no line was done in secret.
    use super::*;

    #[test]
    fn the_line_of_a_change_is_on_disk_before_it_begins() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = Db::open(directory.path().join("db")).expect("a database");
        let audit = Audit::open(&db).expect("opened");
        for what in ["put_user", "drop_user"] {
            let is_synced = audit.act(&Actor::default(), (what, "x"), || Ok(audit.log().is_synced()));
            assert!(is_synced.expect("done"), "{what}");
        }
    }
}
