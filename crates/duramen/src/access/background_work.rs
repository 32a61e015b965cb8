//! The interface between the layers for background work, which the `db` layer runs.

use std::fmt;
use std::time::Duration;

/// The background thread of an open database. Dropping it stops the thread.
pub(crate) trait BackgroundWork: fmt::Debug + Send + Sync {
    /// Stops, and waits for the current step, unless the caller is that step.
    fn stop(&self);
}

/// When a job wants its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Immediately.
    More,
    /// After this long.
    Due(Duration),
    /// Once new work is made.
    Nothing,
}
