//! The open database of a shell: read-only until a command writes, then writable.

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
    /// Whether the session's lock keeps other processes from reading.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(*self.open.borrow(), Open::ToWrite(_))
    }

    /// The open database, or else the one that `open` opens.
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

    /// The database for writing at a level. A read-only one is reopened; if that fails, it stays open for
    /// reading.
    pub(super) fn to_write(
        &self,
        level: Durability,
        write: impl FnOnce() -> Result<Db>,
        read: impl FnOnce() -> Result<Db>,
    ) -> Result<Opened> {
        let mut held = self.open.borrow_mut();
        if !matches!(*held, Open::ToWrite(_)) {
            // Two locks of one process conflict: the one for reading is released first.
            *held = Open::Nothing;
            match write() {
                Ok(db) => *held = Open::ToWrite(db),
                Err(failure) => {
                    // If reading fails too, the next command reports it.
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

    /// Ends the session: a database that was written is closed, as a single command would.
    pub(crate) fn close(&self) -> Result<()> {
        match std::mem::take(&mut *self.open.borrow_mut()) {
            Open::ToWrite(db) => Ok(db.close()?),
            Open::Nothing | Open::ToRead(_) => Ok(()),
        }
    }
}
