//! What the layers agree on about work behind the scenes, which is run from above.

use std::fmt;
use std::time::Duration;

/// The thread of an open database. Dropped, it has stopped.
pub(crate) trait BackgroundWork: fmt::Debug + Send + Sync {
    /// Stops, and waits for the step under way, unless it is called in it.
    fn stop(&self);
}

/// When a job wants its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// As soon as may be.
    More,
    /// After this long.
    Due(Duration),
    /// When there is work again.
    Nothing,
}
