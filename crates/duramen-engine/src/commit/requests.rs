//! Transactions on their way into the order while another thread serves: it enters them, too.
//!
//! At most one thread serves: it takes the order lock to enter transactions. (One that runs alone takes it
//! for itself.) A thread that comes meanwhile queues its transaction and mostly waits once, for its group,
//! instead of twice, for the lock before that. What commits read and write in memory stays with one
//! processor.

use std::collections::VecDeque;
use std::sync::Arc;

use super::order::Prepared;
use super::wait::Waiter;
use crate::alarm::locked;
use crate::sync::Mutex;

/// The queue, and whether a thread serves.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Arc<Waiter>>,
    pub(super) is_served: bool,
}

impl Requests {
    /// Lets the calling thread serve and returns its transaction, or queues that and returns where to wait.
    pub(super) fn serve_or_queue(&self, prepared: Prepared) -> Result<Prepared, Arc<Waiter>> {
        let mut queue = locked(self.queue.lock());
        if !std::mem::replace(&mut queue.is_served, true) {
            return Ok(prepared);
        }
        let waiter = Arc::new(Waiter::with(prepared));
        queue.waiting.push_back(Arc::clone(&waiter));
        Err(waiter)
    }

    /// The next transaction for the thread that serves; without one it does not serve any more.
    ///
    /// In one critical section: a thread that comes later serves, and finds no thread that counts on it.
    pub(super) fn next(&self) -> Option<Arc<Waiter>> {
        let mut queue = locked(self.queue.lock());
        let next = queue.waiting.pop_front();
        queue.is_served = next.is_some();
        next
    }
}
