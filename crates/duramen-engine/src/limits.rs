//! Every limit, once, with its reason; the table in docs/durability.md is checked against this file.

/// Longest key in bytes, as encoded. An inner node must hold at least eight children with such separators.
pub const KEY_BYTES_MAX: usize = 1024;

/// Values of at least this many bytes are written to extents of their own and the log holds a reference.
/// Below it a second sync would cost more than writing the bytes twice.
pub const BIG_VALUE_BYTES: usize = 32 * 1024;

/// Largest piece of a big value that has a checksum of its own; also the largest single write.
pub const BIG_VALUE_EXTENT_BYTES: usize = 1024 * 1024;

/// A leaf grows to this many bytes before it is split. A single larger entry has a leaf to itself.
pub const LEAF_BYTES_MAX: usize = 16 * 1024;

/// An inner node grows to this many bytes before it is split. With long reductions a node of few children may
/// be larger.
pub const INNER_BYTES_MAX: usize = 16 * 1024;

/// Largest reduction of a subtree, kept inside the child entry (decision 0016).
pub const REDUCTION_BYTES_MAX: usize = 4096;

/// An inner node is not cut into pieces of fewer children than this, however large they are: the tree must
/// narrow towards its root.
pub const INNER_CHILDREN_MIN: usize = 4;

/// The unit of space in the data file and of writes to the log.
pub const BLOCK_BYTES: usize = 4096;

/// First segment of a log; each new one doubles up to [`SEGMENT_BYTES_MAX`].
pub const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;

/// Largest segment of a log.
pub const SEGMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Memory over cache, dirty nodes, write sets and buffers, unless told otherwise. A read set is bounded by
/// notes: 4,096 a tree.
pub const MEMORY_BYTES_DEFAULT: usize = 256 * 1024 * 1024;

/// Least memory an engine can work with.
pub const MEMORY_BYTES_MIN: usize = 4 * 1024 * 1024;

/// A transaction may buffer this part of the memory.
pub const TRANSACTION_MEMORY_PART: usize = 4;

/// A transaction may buffer no more than this, however large the memory: replay notes places in a record in
/// 32 bits.
pub const TRANSACTION_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

/// The writes of all open transactions together may take this part of the memory. Beyond it, those of more
/// than [`WRITES_BYTES_FREE`] conflict, and `transact` runs them again, at last alone.
pub const WRITES_MEMORY_PART: usize = 2;

/// Commits that are ordered and not in the log may take this part of the memory before those at level
/// `Memory` wait, too.
pub const QUEUE_MEMORY_PART: usize = 4;

/// A transaction's first writes, which are never refused for what others buffer.
pub const WRITES_BYTES_FREE: usize = 64 * 1024;

/// Conflicts of one `transact` before its closure runs while no other transaction may commit.
pub const CONFLICTS_MAX: u32 = 8;

/// A commit at level `Process` is synced in the background after at most this long.
pub const PROCESS_SYNC_MS_MAX: u64 = 1000;

/// A commit at level `Process` is synced in the background after at most this many bytes.
pub const PROCESS_SYNC_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A durable mark follows the last group within this much idleness.
pub const MARK_IDLE_MS: u64 = 100;

/// Changes retained for readers that come back, by default.
pub const FEED_BYTES_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;

/// A file of retained changes is ended with the first commit beyond this: the unit in which changes are let
/// go of.
pub const FEED_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of retained changes under one checksum, and of one write of them.
pub const FEED_FRAME_BYTES: usize = 256 * 1024;

/// Failures to retain changes, but for a full disk, last so long before the oldest changes are given up.
pub const FEED_FAILING_MS_MAX: u64 = 60_000;

const _: () = assert!(
    TRANSACTION_BYTES_MAX <= (u32::MAX / 2) as usize + 1,
    "with what encoding adds, a record is below 4 GiB"
);
const _: () = assert!(SEGMENT_BYTES_MIN.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(SEGMENT_BYTES_MAX.is_multiple_of(SEGMENT_BYTES_MIN));
const _: () = assert!(
    2 * INNER_CHILDREN_MIN * (KEY_BYTES_MAX + REDUCTION_BYTES_MAX + 64) < 65536,
    "an inner node that cannot be cut is below 64 KiB"
);
const _: () = assert!(BIG_VALUE_BYTES + KEY_BYTES_MAX + 1024 < 65536, "a leaf's offsets are 16 bits");

/// Longest content of an entry that is replicated, big values included. A leader keeps it in memory until it
/// is decided, and so do its followers.
pub const RAFT_ENTRY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Newest entries of Raft's log that are kept in memory for followers that are a little behind.
pub const RAFT_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// In a cluster: a commit that no majority has decided on after this time returns with an unknown outcome.
pub const DECISION_MS_MAX: u64 = 10_000;
