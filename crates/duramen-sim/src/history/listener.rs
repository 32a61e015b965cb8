//! Callbacks at commits, in the threads that make them.
//!
//! Owns the interface between the workload and a caller that must know at which disk calls a commit began and
//! was acknowledged.

use duramen_engine::Receipt;

use crate::contents::Dice;

/// The callbacks of a run.
pub trait Listener: Sync {
    /// Called right before a commit: returns a position in an order of the listener's.
    fn begins(&self) -> usize {
        0
    }

    /// Called right after a commit has returned, or its receipt has waited. Without writes there is no
    /// position.
    fn ended(&self, _receipt: &Receipt, _began_at: Option<usize>) {}

    /// Called between two transactions.
    fn rests(&self, _dice: &mut Dice) {}
}

/// Ignores all callbacks.
impl Listener for () {}
