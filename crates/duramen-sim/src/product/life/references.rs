//! The reference of the books: added while there are documents, checked beside transactions, changed and
//! dropped.
//!
//! Owns the rule that a check ends: every book is checked, or the books that refer to nothing are reported.

use duramen::{Code, Error, LocalReads, OnDelete, Transaction};

use super::Life;
use crate::product::judge::{failed, same};
use crate::product::model::State;
use crate::product::references::writes::{ReferenceWrite, book_document, some_book};
use crate::product::references::{BOOKS, Phase, SHELF, SHELVES, of_books};
use crate::search::run::some_level;

impl Life {
    /// Adds the reference of the books, changes what it does, drops it, or has the books checked.
    pub(super) fn reference_on_data(&mut self) -> Result<(), String> {
        let action = *self.random.pick(&OnDelete::ALL);
        match self.state.referring.reference {
            None => {
                self.put_books()?;
                self.add_reference(action)?;
            }
            Some(_) if self.random.chance(1, 4) => {
                let mut state = self.state.clone();
                state.referring.reference = None;
                self.write_at_some_level(state, |tx| tx.drop_reference(BOOKS, SHELF).map(drop))?;
            }
            Some(known) if known != action && self.random.chance(1, 2) => self.add_reference(action)?,
            Some(_) => return self.check_some(),
        }
        let steps = self.random.below(3);
        for _ in 0..steps {
            self.db().step_background().map_err(failed("step_background"))?;
        }
        Ok(())
    }

    fn add_reference(&mut self, action: OnDelete) -> Result<(), String> {
        let mut state = self.state.clone();
        state.referring.reference = Some(action);
        self.write_at_some_level(state, |tx| tx.add_reference(BOOKS, &of_books(action)).map(drop))
    }

    /// Stores some books, most of them on shelves that are there.
    fn put_books(&mut self) -> Result<(), String> {
        let mut state = self.state.clone();
        let count = self.random.between(4, 12);
        let mut writes: Vec<ReferenceWrite> = Vec::new();
        // Without a reference, no shelf is looked up.
        let is_careful = self.random.chance(2, 3);
        for _ in 0..count {
            let write = some_book(&state.referring, &mut self.random);
            write.apply(&mut state.referring);
            writes.push(write);
        }
        if is_careful {
            let known = state.referring.shelves.clone();
            let lost = state.referring.books.values().flatten().filter(|shelf| !known.contains(shelf));
            let mut shelves: Vec<ReferenceWrite> =
                lost.map(|shelf| ReferenceWrite::PutShelf(*shelf)).collect();
            shelves.iter().for_each(|write| write.apply(&mut state.referring));
            writes.append(&mut shelves);
        }
        self.write_at_some_level(state, |tx| writes.iter().try_for_each(|write| write.perform(tx)))
    }

    /// Commits at any level, and notes the state.
    fn write_at_some_level(
        &mut self,
        state: State,
        write: impl Fn(&mut Transaction<'_>) -> Result<(), Error>,
    ) -> Result<(), String> {
        let level = some_level(&mut self.random);
        let (began, before) = (self.disk.recorded_len(), self.published());
        let receipt = self.db().at(level).write(|tx| write(tx)).map_err(failed("references"))?;
        let seq = receipt.seq().0;
        if seq > before {
            self.made(seq, seq, began, state, Vec::new());
        }
        self.acknowledged(seq, level);
        Ok(())
    }

    /// Checks books beside transactions, and stops before the end or not.
    fn check_some(&mut self) -> Result<(), String> {
        let (db, mut beside, stops) = (self.db().clone(), Ok(()), self.random.chance(1, 2));
        let checked = db.documents(BOOKS).build_views(|_| {
            if beside.is_ok() && self.random.chance(1, 3) {
                beside = self.transaction(false).map(drop);
            }
            if stops && self.random.chance(1, 3) { Err(Error::invalid("stopped")) } else { Ok(()) }
        });
        beside.map_err(|what| format!("beside a check of references: {what}"))?;
        match checked {
            Err(error) if error.message() == "stopped" => Ok(()),
            checked => self.checked(checked),
        }
    }

    /// The result of a check that came to its end.
    fn checked(&mut self, checked: Result<(), Error>) -> Result<(), String> {
        let missing = self.state.referring.missing_shelves();
        match checked {
            Ok(()) if missing.is_empty() => {
                self.tally.checked += u64::from(self.state.referring.reference.is_some());
                Ok(())
            }
            Ok(()) => Err(format!("every book was checked, and these shelves are missing: {missing:?}")),
            Err(error) if error.code() == Code::MissingTarget && !missing.is_empty() => {
                self.tally.violations += 1;
                let words = match missing.len() {
                    1 => "document ".to_owned(),
                    count => format!("{count} documents "),
                };
                if !error.message().starts_with(&words) {
                    return Err(format!("these shelves are missing: {missing:?}, and the error is {error}"));
                }
                Ok(())
            }
            Err(error) => Err(failed("the check of books")(error)),
        }
    }

    /// Has all books checked. Then puts what is missing, and checks again.
    pub(super) fn check_on(&mut self) -> Result<(), String> {
        let checked = self.db().documents(BOOKS).build_views(|_| Ok(()));
        self.checked(checked)?;
        if self.state.referring.reference.is_none() {
            return Ok(());
        }
        let missing = self.state.referring.missing_shelves();
        let wanted = if missing.is_empty() { Phase::Checked } else { Phase::Failed };
        let phase = Phase::of_books(self.db()).map_err(failed("references"))?;
        same("the reference of the books after its check", &phase, &Some(wanted))?;
        if missing.is_empty() {
            return Ok(());
        }
        let mut state = self.state.clone();
        state.referring.shelves.extend(&missing);
        self.write_at_some_level(state, |tx| {
            missing.iter().try_for_each(|id| tx.documents(SHELVES).put(book_document(*id, None)))
        })?;
        let checked = self.db().documents(BOOKS).build_views(|_| Ok(()));
        self.checked(checked)
    }

    /// Checks that the background has ended the check of the books, or reports its violations.
    pub(super) fn is_checked_by_the_background(&self) -> Result<(), String> {
        let phase = Phase::of_books(self.db()).map_err(failed("references"))?;
        let missing = self.state.referring.missing_shelves();
        let wanted = if missing.is_empty() { Phase::Checked } else { Phase::Failed };
        let wanted = self.state.referring.reference.map(|_| wanted);
        same("the reference of the books after the background", &phase, &wanted)
    }
}
