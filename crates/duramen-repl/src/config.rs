//! How consensus is configured, and why.

use openraft::{Config, SnapshotPolicy};

/// Milliseconds between two heartbeats, unless told otherwise. A round trip and one sync must take less on a
/// majority of the nodes: a heartbeat waits for its answer so long.
pub(crate) const HEARTBEAT_MS: u64 = 150;

/// The configuration for this heartbeat.
///
/// A follower campaigns only after a lease of `election_timeout_max` and a drawn timeout: with the times for
/// 150 ms a leader that is dead is replaced after 1.1 to 1.4 s.
pub(crate) fn config(heartbeat_ms: u64) -> Config {
    Config {
        cluster_name: "duramen".to_owned(),
        heartbeat_interval: heartbeat_ms,
        election_timeout_min: heartbeat_ms * 8 / 3,
        election_timeout_max: heartbeat_ms * 14 / 3,
        // A node that was cut off does not depose a leader that the others hear.
        enable_pre_vote: Some(true),
        // After a restart a leader would lead on in its term, where it has given lineages before.
        enable_leader_restore: Some(false),
        // A follower that has lost its log is no follower any more.
        allow_log_reversion: Some(false),
        // A leader whose heartbeats arrive and whose answers do not would keep the others from electing:
        // it looks whether a majority still answers. At least twice the longest election.
        quorum_loss_probe_interval: Some(heartbeat_ms * 10),
        // Consensus must not purge the log by itself: the database needs it from its last checkpoints on.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        max_payload_entries: 4096,
        // A state of many gigabytes is fetched while this call waits.
        install_snapshot_timeout: 24 * 3600 * 1000,
        ..Config::default()
    }
}
