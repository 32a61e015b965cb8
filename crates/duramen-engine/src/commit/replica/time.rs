//! The time of commits in a node of a cluster. The log has it, so it is the same on every node.
//!
//! A leader reads the disk's wall clock once, when it begins to lead, and goes on by the monotonic clock: no
//! later change of the system's clock moves the time of commits, and no commit is earlier than one before it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::catalog::Root;
use crate::commit::Committer;

/// What a leader adds to the monotonic clock.
#[derive(Debug)]
pub(in crate::commit) struct OrderClock(AtomicU64);

/// The node does not lead.
const STANDS: u64 = u64::MAX;

impl Default for OrderClock {
    fn default() -> OrderClock {
        OrderClock(AtomicU64::new(STANDS))
    }
}

impl OrderClock {
    /// The node leads, and it is this time.
    fn start(&self, now_ns: u64, monotonic_ns: u64) {
        self.0.store(now_ns.saturating_sub(monotonic_ns).min(STANDS - 1), Ordering::Release);
    }

    /// The node leads no longer.
    pub(super) fn stop(&self) {
        self.0.store(STANDS, Ordering::Release);
    }

    /// The time now, while the node leads.
    fn now_ns(&self, monotonic_ns: u64) -> Option<u64> {
        let offset = self.0.load(Ordering::Acquire);
        (offset != STANDS).then(|| monotonic_ns.saturating_add(offset))
    }
}

impl Committer {
    /// This node begins to lead after a commit of this time.
    pub(super) fn start_time(&self, after_ns: u64) {
        let log = self.log();
        self.order_clock.start(log.wall_ns().max(after_ns), log.now_ns());
    }

    /// The time of a commit that follows this root; 0 in a database that is no node.
    pub(in crate::commit) fn time_after(&self, root: &Root) -> u64 {
        if !self.is_replica() {
            return 0;
        }
        self.order_clock.now_ns(self.log().now_ns()).map_or(root.time_ns, |now_ns| now_ns.max(root.time_ns))
    }

    /// The time by the log, in nanoseconds since 1970: on the leader it runs, on other nodes it is that of
    /// the last published commit. `None` in a database that is no node of a cluster.
    pub(crate) fn log_time_ns(&self) -> Option<u64> {
        self.is_replica().then(|| self.time_after(&self.published()))
    }

    /// Whether transactions are ordered here: in a node while it leads, in other databases always.
    pub(crate) fn takes_transactions(&self) -> bool {
        !self.is_replica() || self.order_clock.now_ns(0).is_some()
    }

    /// In a node: the lineage of commits. Another one begins with each leadership of this node, and with each
    /// order that is given up. `None` in a database that is no node of a cluster.
    pub(crate) fn lineage(&self) -> Option<u64> {
        self.is_replica().then(|| self.published().rollback_epoch)
    }
}
