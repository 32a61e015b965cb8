//! Fewer messages to followers: that entries are decided is told with the entries that follow.
//!
//! Consensus wants to tell it at once, in a message without entries. Under load the next entries come a
//! moment later, and carry it as well. A read on a follower seldom waits for that: the heartbeats by which
//! the leader confirms for it that it leads say how far it is.

use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use openraft::raft::AppendEntriesRequest;
use openraft_rt::Select2;

use crate::runtime::Runtime;
use crate::types::Types;

/// A request without entries waits so long for one with entries.
const HOLD: Duration = Duration::from_millis(5);

/// The requests of a stream, without those that a later one makes needless.
pub(crate) fn merged<R: Runtime>(
    requests: impl Stream<Item = AppendEntriesRequest<Types<R>>> + Send + Unpin + 'static,
) -> impl Stream<Item = AppendEntriesRequest<Types<R>>> + Send + 'static {
    stream::unfold(requests.fuse(), async |mut requests| {
        let mut request = requests.next().await?;
        let mut held = pin!(R::sleep(HOLD));
        while request.entries.is_empty() {
            match R::select2(requests.next(), held.as_mut()).await {
                // It follows the same entry, or later ones, and says that at least as much is decided.
                Select2::First(Some(later)) => request = later,
                Select2::First(None) | Select2::Second(()) => break,
            }
        }
        Some((request, requests))
    })
}
