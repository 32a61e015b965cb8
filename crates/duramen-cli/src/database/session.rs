//! What a shell has open: one database, to read until a command writes, to write from then on.

use std::cell::RefCell;
use std::rc::Rc;

use duramen::{Db, Durability};

use super::Opened;
use crate::failure::Result;

/// Shared by the commands of a shell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    open: Rc<RefCell<Open>>,
}

#[derive(Debug, Default)]
enum Open {
    #[default]
    Nothing,
    ToRead(Db),
    ToWrite(Db),
}

impl Session {
    /// Whether others are kept from reading.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(*self.open.borrow(), Open::ToWrite(_))
    }

    /// What is open, or else what `open` opens.
    pub(super) fn to_read(&self, open: impl FnOnce() -> Result<Db>) -> Result<Opened> {
        let mut held = self.open.borrow_mut();
        if let Open::Nothing = *held {
            *held = Open::ToRead(open()?);
        }
        match &*held {
            Open::ToRead(db) | Open::ToWrite(db) => Ok(Opened { db: db.clone(), is_shared: true }),
            Open::Nothing => unreachable!("it was opened above"),
        }
    }

    /// The database to write at a level: opened anew if it is open to read, which goes on if that fails.
    pub(super) fn to_write(
        &self,
        level: Durability,
        write: impl FnOnce() -> Result<Db>,
        read: impl FnOnce() -> Result<Db>,
    ) -> Result<Opened> {
        let mut held = self.open.borrow_mut();
        if !matches!(*held, Open::ToWrite(_)) {
            // Two locks of one process are in each other's way: the one to read goes first.
            *held = Open::Nothing;
            match write() {
                Ok(db) => *held = Open::ToWrite(db),
                Err(failure) => {
                    // If reading fails too, the next command says so.
                    if let Ok(db) = read() {
                        *held = Open::ToRead(db);
                    }
                    return Err(failure);
                }
            }
        }
        match &*held {
            Open::ToWrite(db) => Ok(Opened { db: db.at(level), is_shared: true }),
            Open::Nothing | Open::ToRead(_) => unreachable!("it was opened above"),
        }
    }

    /// Ends it: what was written is closed as a command of its own would.
    pub(crate) fn close(&self) -> Result<()> {
        match std::mem::take(&mut *self.open.borrow_mut()) {
            Open::ToWrite(db) => Ok(db.close()?),
            Open::Nothing | Open::ToRead(_) => Ok(()),
        }
    }
}
