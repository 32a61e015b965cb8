//! What must hold when a transaction takes its place in the order, beside what it read: a time that must not
//! have passed.
//!
//! Validation compares states, and time is in no state. So a lock with a lifetime, read as held, may end
//! before the commit. A condition is checked under the order lock, where no other commit comes between.

use std::fmt;

use super::Committer;
use crate::error::Result;

/// Checked under the order lock, by any thread. It must return at once. Inside it commits and waits are
/// refused; a panic is an error of the commit.
pub type Condition = Box<dyn FnMut() -> Result<()> + Send>;

/// The conditions of a transaction.
#[derive(Default)]
pub(crate) struct Conditions(Vec<Condition>);

impl Conditions {
    /// Adds one.
    pub(crate) fn add(&mut self, condition: Condition) {
        self.0.push(condition);
    }

    /// Whether all of them hold now.
    ///
    /// # Errors
    /// That of the first one that does not hold.
    pub(super) fn check(&mut self, committer: &Committer) -> Result<()> {
        self.0.iter_mut().try_for_each(|condition| committer.run_condition(condition))
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} conditions", self.0.len())
    }
}
