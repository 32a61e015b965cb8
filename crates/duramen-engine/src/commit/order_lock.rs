//! The order lock, and the condition on which threads wait for leadership or for durability.

use std::sync::Arc;
use std::time::Duration;

use super::group::Forming;
use super::recent::Recent;
use super::replica::ReplicaOrder;
use super::requests::Requests;
use super::wait::Waiter;
use crate::alarm::{invariant, locked};
use crate::ids::CommitSeq;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// What the order lock guards: the group that forms, and what commits are validated against.
#[derive(Debug)]
pub(super) struct Order {
    /// Commits that were ordered and not taken by a leader yet.
    pub(super) forming: Forming,
    /// The newest commits, for validation.
    pub(super) recent: Recent,
    /// Whether a thread leads.
    leading: bool,
    /// How often ordered commits were dropped.
    pub(super) rollback_epoch: u64,
    /// In a node of a cluster.
    pub(super) replica: Option<Box<ReplicaOrder>>,
    /// Threads that wait on the leadership condition. At zero, no thread is notified.
    waiting: usize,
}

/// The order lock with its condition.
#[derive(Debug)]
pub(super) struct OrderLock {
    order: Mutex<Order>,
    /// Signalled when leadership changes or something becomes durable.
    leadership: Condvar,
    /// Transactions that another thread enters.
    pub(super) requests: Requests,
}

impl OrderLock {
    /// No commit is ordered after `seq`.
    #[must_use]
    pub(super) fn new(seq: CommitSeq) -> OrderLock {
        OrderLock {
            order: Mutex::new(Order {
                forming: Forming::default(),
                recent: Recent::new(seq),
                leading: false,
                rollback_epoch: 0,
                replica: None,
                waiting: 0,
            }),
            leadership: Condvar::new(),
            requests: Requests::default(),
        }
    }

    /// Takes the lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, Order> {
        locked(self.order.lock())
    }

    /// Waits for a change of leadership or for durability. The lock is released meanwhile.
    pub(super) fn wait<'a>(&'a self, mut order: MutexGuard<'a, Order>) -> MutexGuard<'a, Order> {
        order.waiting += 1;
        let mut order = locked(self.leadership.wait(order));
        order.waiting -= 1;
        order
    }

    /// The same, for this long at most.
    pub(super) fn wait_for<'a>(
        &'a self,
        mut order: MutexGuard<'a, Order>,
        at_most: Duration,
    ) -> MutexGuard<'a, Order> {
        order.waiting += 1;
        let (mut order, _) = locked(self.leadership.wait_timeout(order, at_most));
        order.waiting -= 1;
        order
    }

    /// Releases the lock, then wakes the threads that wait.
    pub(super) fn unlock_and_wake(&self, order: MutexGuard<'_, Order>) {
        let waiting = order.waiting;
        drop(order);
        if waiting > 0 {
            self.wake();
        }
    }

    /// Wakes the threads that wait, for a caller that may hold any lock.
    pub(super) fn wake(&self) {
        self.leadership.notify_all();
    }
}

impl Order {
    /// Whether a thread leads.
    #[must_use]
    pub(super) fn is_led(&self) -> bool {
        self.leading
    }

    /// Takes leadership for this thread. No other thread leads.
    pub(super) fn lead(&mut self) {
        invariant!(!self.leading, "one thread leads");
        self.leading = true;
    }

    /// Takes leadership, unless a thread leads.
    #[must_use]
    pub(super) fn take_leadership(&mut self) -> bool {
        !std::mem::replace(&mut self.leading, true)
    }

    /// Passes leadership to the first waiter of the forming group and returns it, or ends leadership.
    pub(super) fn pass_leadership(&mut self) -> Option<Arc<Waiter>> {
        let next = (!self.forming.waiters.is_empty()).then(|| self.forming.waiters.remove(0));
        self.leading = next.is_some();
        next
    }
}
