//! Refuses commits inside the closure of a transaction of the same database.
//!
//! Such a commit is outside of the transaction: it stays if the transaction rolls back, and is repeated each
//! time the closure runs again. If it changes what the closure has read, the transaction conflicts with it at
//! every run. The check is by thread and by database: transactions of other databases are allowed.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::access::open_state::OpenState;
use crate::store::error::{Error, Result};

thread_local! {
    /// The databases in whose closures this thread is, innermost last.
    static RUNNING: RefCell<Vec<*const OpenState>> = const { RefCell::new(Vec::new()) };
}

/// Exists while this thread runs the closure of a transaction.
pub(crate) struct Inside {
    is_noted: bool,
    /// It ends in the thread in which it began.
    of_thread: PhantomData<*const ()>,
}

impl Inside {
    /// The thread begins to run a closure.
    pub(crate) fn enter(state: &OpenState) -> Inside {
        // The destructors of a thread's values may still commit. There is no list then.
        let noted = RUNNING.try_with(|running| running.borrow_mut().push(state));
        Inside { is_noted: noted.is_ok(), of_thread: PhantomData }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.is_noted {
            // An error means that the list has ended with the thread.
            RUNNING.try_with(|running| running.borrow_mut().pop()).ok();
        }
    }
}

/// Fails if this thread is inside the closure of a transaction of this database.
///
/// # Errors
/// `InvalidArgument` (E0201).
pub(crate) fn refuse(state: &OpenState) -> Result<()> {
    let is_inside = RUNNING.try_with(|running| running.borrow().contains(&std::ptr::from_ref(state)));
    if !is_inside.unwrap_or(false) {
        return Ok(());
    }
    let message = "a commit through the database inside the closure of one of its transactions: it would be \
                   outside of the transaction, and be repeated each time the closure runs";
    Err(Error::invalid(message).with_hint("call it on `tx`, or after the transaction"))
}
