//! What a node does with transactions, and how far it is. Consensus looks at both while a closure that runs
//! alone holds the order, and must not wait for it.

use std::sync::{Mutex, MutexGuard};

use super::Role;
use crate::alarm::locked;
use crate::raft_log::LogEnd;

/// Changed only by a thread that has the order.
#[derive(Debug)]
pub(in crate::commit) struct Standing(Mutex<(Role, LogEnd)>);

impl Default for Standing {
    fn default() -> Standing {
        Standing(Mutex::new((Role::Follows, LogEnd::default())))
    }
}

impl Standing {
    fn now(&self) -> MutexGuard<'_, (Role, LogEnd)> {
        locked(self.0.lock())
    }

    pub(in crate::commit) fn role(&self) -> Role {
        self.now().0
    }

    /// The entry whose commit is the published root.
    pub(in crate::commit) fn end(&self) -> LogEnd {
        self.now().1
    }

    pub(super) fn set_role(&self, role: Role) {
        self.now().0 = role;
    }

    pub(super) fn set_end(&self, end: LogEnd) {
        self.now().1 = end;
    }
}
