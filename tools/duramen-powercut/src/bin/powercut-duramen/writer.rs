//! A writer: runs each commit of its plan, with its row, and acknowledges it.
//!
//! Owns the translation of planned writes into calls of the database.

use std::cell::Cell;

use duramen::blobs::Upload;
use duramen::{Db, Durability, Error, LocalReads, Reads, Time, Transaction, Ttl, doc};

use crate::opening::{
    COMMITS, COUNTERS, FILES, LOG, NEXT_TICKET, PARCELS, PLAIN, SESSIONS, TICKETS, numbers, parcels, row_key,
    scratch, temporary,
};
use crate::plan::{Count, Plan, State, Write, content, own_key};
use crate::releases::Release;
use crate::row::Row;
use crate::wrong::{Outcome, Wrong};

/// A writer, and the result of its commits so far.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) id: u32,
    pub(crate) state: State,
}

impl Writer {
    /// Runs the next commit, at the planned or a forced level. Returns its number, its level and its
    /// sequence.
    pub(crate) fn commit(
        &mut self,
        db: &Db,
        release: Release,
        level: Option<Durability>,
    ) -> Outcome<(u64, Durability, u64)> {
        let (plan, number) = (self.state.plan(), self.state.count);
        let db = db.at(level.unwrap_or(plan.level));
        let (row, seq) = self.perform(&db, &plan, number, release).map_err(|error| {
            Wrong::from(error).while_doing(&format!("commit {number} of writer {}", self.id))
        })?;
        self.state.apply(&plan, &row);
        Ok((number, db.durability(), seq))
    }

    fn perform(&self, db: &Db, plan: &Plan, number: u64, release: Release) -> Result<(Row, u64), Error> {
        if plan.abandoned_bytes > 0 {
            let bytes = vec![1; plan.abandoned_bytes];
            drop(db.blobs(FILES).piece_bytes(1024)?.upload(&bytes[..])?);
        }
        let mut upload = None;
        for write in &plan.writes {
            if let Write::Blob(_, length, piece_bytes) = write {
                let bytes = content(self.id, number, 0, *length);
                upload = Some(db.blobs(FILES).piece_bytes(*piece_bytes)?.upload(&bytes[..])?);
            }
        }
        let done = Cell::new(None);
        let run = |tx: &mut Transaction<'_>, is_given_up: bool| {
            for write in &plan.writes {
                self.write(tx, write, number, release, upload.as_ref())?;
            }
            let ticket = if plan.takes_ticket { Some(take_ticket(tx, self.id, number)?) } else { None };
            let row = Row { release, now_ms: millis(tx.time()), ticket };
            tx.put_bytes(COMMITS, &row_key(self.id, number), &row.encode(self.id, number))?;
            done.set(Some(row));
            if is_given_up { Err(Error::invalid("given up")) } else { Ok(()) }
        };
        if plan.is_given_up_first {
            match db.write(|tx| run(tx, true)) {
                Err(error) if error.code() == duramen::Code::InvalidArgument => {}
                other => drop(other?),
            }
        }
        let receipt = db.write(|tx| run(tx, false))?;
        Ok((done.get().expect("it ran"), receipt.seq().0))
    }

    fn write(
        &self,
        tx: &mut Transaction<'_>,
        write: &Write,
        number: u64,
        release: Release,
        upload: Option<&Upload>,
    ) -> Result<(), Error> {
        let own = |key: u64| own_key(self.id, key);
        match write {
            Write::Put(order) => release.put(tx, order),
            Write::Delete(id) => release.delete(tx, own(*id)).map(drop),
            Write::Parcel(key, order) => {
                tx.ensure(&parcels())?;
                let parcels = tx.documents(PARCELS);
                match order {
                    Some(order) => {
                        parcels.put(doc! { "id": own(*key), "order": own(*order), "number": number })
                    }
                    None => parcels.delete(own(*key)).map(drop),
                }
            }
            Write::Log(key, n) => {
                tx.ensure(&numbers(LOG))?;
                match n {
                    Some(n) => tx.documents(LOG).put(doc! { "id": own(*key), "n": *n }),
                    None => tx.documents(LOG).delete(own(*key)).map(drop),
                }
            }
            Write::Fill(from, count) => {
                let name = temporary(self.id);
                tx.ensure(&numbers(&name))?;
                let n = i64::try_from(number % 1000).expect("less than a thousand");
                (*from..from + count).try_for_each(|id| tx.documents(&name).put(doc! { "id": id, "n": n }))
            }
            Write::Drop => tx.drop_collection(&temporary(self.id)).map(drop),
            Write::Count(key, Count::Put(n)) => tx.kv(COUNTERS).put(own(*key), n),
            Write::Count(key, Count::Increment(n)) => tx.kv(COUNTERS).increment(own(*key), *n).map(drop),
            Write::Count(key, Count::Delete) => tx.kv(COUNTERS).delete(own(*key)).map(drop),
            Write::Session(key, ms) => {
                let ttl = ms.map_or(Ttl::forever(), Ttl::millis);
                tx.kv(SESSIONS).put_with(own(*key), &number, ttl)
            }
            Write::Touch(key, ms) => tx.kv(SESSIONS).touch(own(*key), Ttl::millis(*ms)).map(drop),
            Write::EndSession(key) => tx.kv(SESSIONS).delete(own(*key)).map(drop),
            Write::Scratch(key, n) => tx.kv(&scratch(self.id)).put(*key, n),
            Write::Clear => tx.kv(&scratch(self.id)).clear().map(drop),
            Write::Bytes(key, Some(length)) => {
                tx.put_bytes(PLAIN, &own(*key).to_be_bytes(), &content(self.id, number, 1 + key, *length))
            }
            Write::Bytes(key, None) => tx.delete_bytes(PLAIN, &own(*key).to_be_bytes()).map(drop),
            Write::Blob(key, ..) => match upload {
                Some(upload) => tx.blobs(FILES).attach(own(*key), upload),
                None => Err(Error::invalid("there is nothing to attach")),
            },
            Write::DeleteBlob(key) => tx.blobs(FILES).delete(own(*key)).map(drop),
            Write::RenameBlob(from, to) => tx.blobs(FILES).rename(own(*from), own(*to)).map(drop),
        }
    }
}

/// Takes the next of the tickets that all writers share.
fn take_ticket(tx: &mut Transaction<'_>, writer: u32, number: u64) -> Result<u64, Error> {
    let next = tx.get_bytes(TICKETS, NEXT_TICKET);
    let next = crate::releases::answer(next)?.flatten();
    let next = next.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
    tx.put_bytes(TICKETS, &next.to_be_bytes(), &row_key(writer, number))?;
    tx.put_bytes(TICKETS, NEXT_TICKET, &(next + 1).to_be_bytes())?;
    Ok(next)
}

/// Milliseconds since 1970.
pub(crate) fn millis(time: Time) -> u64 {
    let ms = time.seconds() * 1000 + i64::from(time.nanoseconds() / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}
