//! Hears of commits as they happen, in the threads that make them.
//!
//! Owns the seam between the workload and a caller that must know where in the disk's calls a commit began and was
//! acknowledged.

use duramen_engine::Receipt;

use crate::contents::Dice;

/// What a run calls.
pub trait Listener: Sync {
    /// Right before a commit is asked for: a place in an order of the listener's.
    fn begins(&self) -> usize {
        0
    }

    /// Right after a commit has returned, or its receipt has waited. Where nothing was written it has no place.
    fn ended(&self, _receipt: &Receipt, _began_at: Option<usize>) {}

    /// Between two transactions.
    fn rests(&self, _dice: &mut Dice) {}
}

/// Hears nothing.
impl Listener for () {}
