//! What a server takes of its clients at most.
//!
//! `budget` counts bytes, `places` counts calls, `entrance` connections; `body` charges the bytes of requests
//! and replies. Each gives back when its guard is dropped, whatever became of the call.

pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod entrance;
pub(crate) mod places;

use std::time::Duration;

/// How long a call waits for bytes or a place.
pub(crate) const WAIT: Duration = Duration::from_millis(100);

/// What a server takes of its clients at most. Beyond a limit it refuses with a code that says when to come
/// back.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once, half of them for the socket and half for TCP; of these, 256 of one other machine,
    /// and half without a call that was let in. Fewer if the system lets the process have fewer than 200
    /// files more.
    pub connections: usize,
    /// Calls at once on a connection.
    pub streams: u32,
    /// Bytes of all messages and replies in memory, beside the memory of the engine.
    pub memory_bytes: usize,
    /// Calls under way for each processor; the others wait for 100 ms.
    pub calls_per_core: usize,
    /// Scans under way.
    pub scans: usize,
    /// Watches of changes.
    pub watches: usize,
    /// Uploads of blobs.
    pub uploads: usize,
    /// An upload without a message for so long is given up.
    pub upload_silence: Duration,
    /// Uploads under way or stored that have no key yet.
    pub uploads_kept: usize,
    /// A stored upload that gets no key is deleted after this time.
    pub upload_kept: Duration,
    /// A download goes on in a newer state after this time: an older one keeps what was deleted since.
    pub download_state: Duration,
    /// Transactions of several messages that are open.
    pub transactions: usize,
    /// Such a transaction without a message for so long is rolled back.
    pub silence: Duration,
    /// A connection without a call that was let in is closed after this time.
    pub first_call: Duration,
    /// A stream of which no message is taken for so long ends. A connection is closed that takes nothing of a
    /// single reply, or of more than 4 MiB of streams.
    pub unread_replies: Duration,
    /// The time of a call that names no deadline.
    pub deadline: Duration,
    /// How long calls under way may take when the server goes down.
    pub drain_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 1_000,
            streams: 128,
            memory_bytes: 128 << 20,
            calls_per_core: 16,
            scans: 64,
            transactions: 1_000,
            watches: 1_000,
            uploads: 32,
            upload_silence: Duration::from_secs(30),
            uploads_kept: 4_096,
            upload_kept: Duration::from_secs(300),
            download_state: Duration::from_secs(60),
            silence: Duration::from_secs(5),
            first_call: Duration::from_secs(10),
            unread_replies: Duration::from_secs(30),
            deadline: Duration::from_secs(10),
            drain_grace: Duration::from_secs(1),
        }
    }
}

/// The most time that a call may ask for.
pub(crate) const DEADLINE_MAX: Duration = Duration::from_secs(300);

/// An upload and a backup may take longer: they end if no bytes come, or are taken.
pub(crate) const LONG_MAX: Duration = Duration::from_secs(24 * 3600);
