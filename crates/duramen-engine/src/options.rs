//! How a database is opened: levels of durability, memory, sizes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use duramen_disk::SyncMethod;

use crate::error::{Error, Result};
use crate::limits;

/// The level a commit waits for before it is acknowledged.
///
/// As text, for configuration files and flags, it is `memory`, `process` or `disk`:
///
/// ```
/// # use duramen_engine::options::Durability;
/// assert_eq!("process".parse::<Durability>()?, Durability::Process);
/// assert_eq!(Durability::Disk.to_string(), "disk");
/// # Ok::<(), duramen_engine::error::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Durability {
    /// Waits for nothing, unless a quarter of the memory is queued for the log. The commit is ordered and
    /// soon in the log, and lost if the process ends before that.
    Memory,
    /// Handed to the kernel: survives `kill -9`, not a power cut. Synced in the background.
    Process,
    /// Survives a power cut and a kernel panic, on a disk that honours flush (D1).
    #[default]
    Disk,
}

impl Durability {
    /// Every level, the weakest first.
    pub const ALL: [Durability; 3] = [Durability::Memory, Durability::Process, Durability::Disk];

    /// The name of the level: `memory`, `process` or `disk`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Process => "process",
            Durability::Disk => "disk",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Durability {
    type Err = Error;

    /// Reads the name of a level, in lower case.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for any other text.
    fn from_str(text: &str) -> Result<Durability> {
        Durability::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not a level of durability"))
                .with_hint("write memory, process or disk")
        })
    }
}

/// Sizes of structures on disk. Tests shrink them so that little data crosses every boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Unit of space and of log writes; a power of two, at least 512.
    pub block_bytes: usize,
    /// A leaf is split beyond this.
    pub leaf_bytes_max: usize,
    /// An inner node is split beyond this.
    pub inner_bytes_max: usize,
    /// Values of at least this size go to extents of their own.
    pub big_value_bytes: usize,
    /// Largest extent of a big value.
    pub big_value_extent_bytes: usize,
    /// First log segment.
    pub segment_bytes_min: u64,
    /// Largest log segment.
    pub segment_bytes_max: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry {
            block_bytes: limits::BLOCK_BYTES,
            leaf_bytes_max: limits::LEAF_BYTES_MAX,
            inner_bytes_max: limits::INNER_BYTES_MAX,
            big_value_bytes: limits::BIG_VALUE_BYTES,
            big_value_extent_bytes: limits::BIG_VALUE_EXTENT_BYTES,
            segment_bytes_min: limits::SEGMENT_BYTES_MIN,
            segment_bytes_max: limits::SEGMENT_BYTES_MAX,
        }
    }
}

impl Geometry {
    /// Whether the sizes fit together.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.block_bytes.is_power_of_two()
            && (512..=65536).contains(&self.block_bytes)
            && (256..=32768).contains(&self.leaf_bytes_max)
            && (256..=32768).contains(&self.inner_bytes_max)
            && (64..=limits::BIG_VALUE_BYTES).contains(&self.big_value_bytes)
            && (64..=limits::BIG_VALUE_EXTENT_BYTES).contains(&self.big_value_extent_bytes)
            && self.segment_bytes_min >= 4 * self.block_bytes as u64
            && self.segment_bytes_max >= self.segment_bytes_min
            && self.segment_bytes_max <= 1 << 40
            && self.segment_bytes_min.is_multiple_of(self.block_bytes as u64)
            && self.segment_bytes_max.is_multiple_of(self.block_bytes as u64)
    }
}

/// Thresholds and slice sizes for giving space and memory back. Not stored on disk.
///
/// The default is what releases use. With debug assertions it is small, so that little data crosses every
/// threshold.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveBack {
    /// Shorter runs of free blocks are not punched.
    pub run_blocks_min: u32,
    /// With fewer free blocks nothing is given back.
    pub free_blocks_min: u64,
    /// Blocks that one checkpoint punches at most. The file system may delay writes to the file meanwhile.
    pub punch_blocks_max: u64,
    /// A hole is taken back in pieces of this size, so that little more is reserved than requested.
    pub take_back_bytes: usize,
    /// Pages of one dropped tree that one checkpoint reclaims.
    pub reclaimed_pages_max: usize,
    /// A commit of a compaction ends with the group of leaves that reaches this many bytes. It is applied
    /// under the order lock: a larger one would delay concurrent commits.
    pub compacted_bytes: usize,
    /// Patches that are kept take this part of their room in memory once some were merged, in percent.
    ///
    /// With less, more leaves are written for as many changes; with more, merging makes little room, and
    /// checkpoints come more often (decision 0041).
    pub kept_patch_percent: usize,
}

impl GiveBack {
    /// The values that releases use.
    pub const SHIPPED: GiveBack = GiveBack {
        run_blocks_min: 256,
        free_blocks_min: 4096,
        punch_blocks_max: 65536,
        take_back_bytes: 1024 * 1024,
        reclaimed_pages_max: 16384,
        compacted_bytes: 256 * 1024,
        kept_patch_percent: 75,
    };

    /// Little data crosses these, and reclaiming takes several checkpoints.
    pub const SMALL: GiveBack = GiveBack {
        run_blocks_min: 8,
        free_blocks_min: 32,
        punch_blocks_max: 256,
        take_back_bytes: 8 * 1024,
        reclaimed_pages_max: 8,
        compacted_bytes: 8 * 1024,
        kept_patch_percent: 3,
    };
}

impl Default for GiveBack {
    fn default() -> Self {
        if cfg!(debug_assertions) { GiveBack::SMALL } else { GiveBack::SHIPPED }
    }
}

/// What runs the background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// Threads of the engine; the default.
    #[default]
    Threads,
    /// The caller, by [`Engine::step`](crate::Engine::step). For simulations.
    Stepped,
}

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Target for cache, dirty nodes, write sets and buffers together, in bytes.
    pub memory_bytes: usize,
    /// The default level of commits.
    pub durability: Durability,
    /// How log writes become durable. `None` uses the method chosen at creation: it was measured for about
    /// 150 ms, where methods other than `fdatasync` are proven on the file system (decision 0007). `Some` is
    /// used on every file system.
    pub sync: Option<SyncMethod>,
    /// Directory of the log, if it is not `wal` inside the database.
    pub wal_dir: Option<PathBuf>,
    /// Create the database if it does not exist.
    pub create: bool,
    /// Never write: replay in memory. Works on a read-only mount.
    pub read_only: bool,
    /// Lets `Engine::repair` go on without a log of the database, whose commits are lost then. Opening never
    /// does.
    pub repair_without_log: bool,
    /// Open on a network file system, or on one of a type not known to be local.
    pub allow_network_fs: bool,
    /// Sizes; stored in the superblock at creation.
    pub geometry: Geometry,
    /// Compress leaves with LZ4 when a checkpoint writes them, where that saves a block. What is compressed
    /// is read either way, and stays so until it is written anew. A database with compressed pages cannot be
    /// opened by builds that do not know them.
    pub compress: bool,
    /// Write what changes in a leaf as a patch beside its page, where that is on disk already. Patches that
    /// are there are read either way. Tests open databases without new ones.
    #[doc(hidden)]
    pub patches: bool,
    /// When space is given back.
    #[doc(hidden)]
    pub give_back: GiveBack,
    /// What runs the background work.
    pub background: Background,
    /// Ends the oldest snapshot when the space held only by snapshots passes this many bytes.
    pub snapshot_space_bytes_max: Option<u64>,
    /// A checkpoint starts when the log since the last one holds this many bytes. `None`: a
    /// quarter of `memory_bytes`.
    pub checkpoint_log_bytes: Option<u64>,
    /// Answers reads before the log since the newest checkpoint is in the trees (deferred redo). A thread
    /// applies it meanwhile, and writes wait for it. `None`: yes with [`Background::Threads`]. Simulations
    /// choose.
    pub answer_before_replay: Option<bool>,
    /// The newest changes of this many bytes are kept for the feed even without a consumer, in whole files.
    pub feed_retain_bytes: u64,
    /// Changes younger than this are kept for the feed even without a consumer, in whole files.
    pub feed_retain_age: Duration,
    /// Approximate bound of the feed in bytes, give or take a file of an eighth of it. At the bound the
    /// consumer farthest behind loses changes, or writers are refused.
    pub feed_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            durability: Durability::Disk,
            sync: None,
            wal_dir: None,
            create: true,
            read_only: false,
            repair_without_log: false,
            allow_network_fs: false,
            geometry: Geometry::default(),
            compress: true,
            patches: true,
            give_back: GiveBack::default(),
            background: Background::Threads,
            snapshot_space_bytes_max: None,
            checkpoint_log_bytes: None,
            answer_before_replay: None,
            feed_retain_bytes: 0,
            feed_retain_age: Duration::ZERO,
            feed_bytes_max: limits::FEED_BYTES_MAX_DEFAULT,
        }
    }
}
