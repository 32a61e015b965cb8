//! A disk in memory with a volatile cache.
//!
//! It loses power, tears sectors, forgets directory entries and fails on demand. The same seed with the same
//! calls gives the same run.
//!
//! Owns [`MemDisk`] and its interfaces for tests. It never touches the real disk or randomness, and the real
//! clock only where a disk is [made with it](MemDisk::with_system_clock). Every
//! test of D1 (what is acknowledged survives), D6 (a failed sync) and D7 (a full disk) rests on this model.
//! It must lose at least as much as a real disk:
//!
//! - Reads see the cached contents. Bytes, lengths, reservations and holes are pending until the file is
//!   synced; creating, removing and renaming are pending until the directory is synced, even if the file is.
//! - A power cut keeps any subset of what is pending, in any order where writes overlap, torn at sectors.
//! - A sync covers what returned before it was called, nothing later. A durable write with
//!   `Dsync` or `DirectDsync` covers its own bytes and the length, nothing else.

mod content;
mod crash;
mod faults;
mod file;
mod gate;
mod model;
mod pending;
mod random;
mod state;
#[cfg(test)]
mod tests;
mod trace;
mod trace_bytes;
mod tree;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crash::{CrashChoice, SECTOR_BYTES};
pub use faults::{CallCounts, CallKind, Effect, Fault, FaultPlan};
pub use gate::{Blocker, SyncGate};
pub use random::{Random, mixed};
pub use trace::{Cursor, OpInfo, OpKind, Trace};

use crash::{hash_image, survivors};
use model::{Model, Node, Op};
use state::{Recording, State, normal};

use crate::disk::Disk;
use crate::os::OsDisk;

/// How far each read of a clock advances it.
const CLOCK_STEP_NS: u64 = 1_000;
/// Start of a new disk's wall clock: late in 2023.
const WALL_START_NS: u64 = 1_700_000_000_000_000_000;

/// A disk in memory. Its clocks stand still, except for a microsecond at each reading, unless it is made
/// with [`MemDisk::with_system_clock`]. Clones are the same disk; [`MemDisk::deep_clone`] is another one.
///
/// Paths are absolute; a relative one starts at the root. The root directory exists and is durable.
#[derive(Clone)]
pub struct MemDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    clock_ns: AtomicU64,
    /// Wall clock minus `clock_ns`, wrapping.
    wall_offset_ns: AtomicU64,
    /// Makes both clocks run.
    system: Option<OsDisk>,
    blocker: Mutex<Option<Blocker>>,
    seed: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left no partial change: `perform` is the last step of every call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) -> u64 {
        if self.system.is_some() {
            return self.now_ns();
        }
        self.clock_ns.fetch_add(CLOCK_STEP_NS, Ordering::Relaxed) + CLOCK_STEP_NS
    }

    /// The monotonic clock, without a step.
    fn now_ns(&self) -> u64 {
        let ran_ns = self.system.as_ref().map_or(0, Disk::monotonic_ns);
        self.clock_ns.load(Ordering::Relaxed).wrapping_add(ran_ns)
    }

    /// Runs the hook of a sync. No lock is held, so reads and writes go on meanwhile.
    fn block(&self, path: &Path) {
        let blocker = self.blocker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(blocker) = blocker {
            blocker(path);
        }
    }
}

impl fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemDisk").field("seed", &self.shared.seed).finish_non_exhaustive()
    }
}

impl MemDisk {
    /// An empty disk. The seed determines [`Disk::random`] and all later random choices.
    #[must_use]
    pub fn new(seed: u64) -> MemDisk {
        let mut model = Model::default();
        model.names.insert(normal(Path::new("/")), Node::Directory);
        MemDisk::from_model(model, seed, 0)
    }

    /// An empty disk whose clocks run as those of the system. All else is as with [`MemDisk::new`].
    #[must_use]
    pub fn with_system_clock(seed: u64) -> MemDisk {
        let disk = MemDisk::new(seed);
        let state = disk.shared.state().copy();
        let system = OsDisk::new();
        let wall_offset_ns = system.wall_ns().wrapping_sub(system.monotonic_ns());
        MemDisk::from_state(state, seed, 0, wall_offset_ns, Some(system))
    }

    fn from_model(model: Model, seed: u64, clock_ns: u64) -> MemDisk {
        MemDisk::from_state(State::over(model, seed), seed, clock_ns, WALL_START_NS, None)
    }

    fn from_state(
        state: State,
        seed: u64,
        clock_ns: u64,
        wall_offset_ns: u64,
        system: Option<OsDisk>,
    ) -> MemDisk {
        let (clock_ns, wall_offset_ns) = (AtomicU64::new(clock_ns), AtomicU64::new(wall_offset_ns));
        let (state, blocker) = (Mutex::new(state), Mutex::new(None));
        MemDisk { shared: Arc::new(Shared { state, clock_ns, wall_offset_ns, system, blocker, seed }) }
    }

    /// The seed this disk was made with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Another disk with the same contents and the same pending changes; healthy, unlocked, not recording.
    #[must_use]
    pub fn deep_clone(&self) -> MemDisk {
        let shared = &self.shared;
        let clock_ns = shared.clock_ns.load(Ordering::Relaxed);
        let wall_offset_ns = shared.wall_offset_ns.load(Ordering::Relaxed);
        MemDisk::from_state(
            shared.state().copy(),
            shared.seed,
            clock_ns,
            wall_offset_ns,
            shared.system.clone(),
        )
    }

    /// What a power cut now would leave, as another disk, whose clocks stand still. This disk remains usable.
    #[must_use]
    pub fn crash(&self, choice: &CrashChoice) -> MemDisk {
        let clock_ns = self.shared.now_ns();
        let model = survivors(&self.shared.state().model, choice);
        MemDisk::from_model(model, content::mix(self.shared.seed, 1), clock_ns)
    }

    /// How many changes a power cut now may lose.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.shared.state().model.pending_len()
    }

    /// A hash of names and contents as reads see them, to count distinct crash images. Not a checksum.
    #[must_use]
    pub fn image_hash(&self) -> u64 {
        let state = self.shared.state();
        hash_image(&state.names, |inode| state.inodes.get(&inode).map(|inode| &inode.content))
    }

    /// Starts recording from here; what was recorded before is dropped.
    pub fn record(&self) {
        let mut state = self.shared.state();
        state.recording = Some(Recording { base: state.model.clone(), ops: Vec::new() });
    }

    /// Adds a remark to the recording, to name the phase that the operations after it belong to.
    pub fn annotate(&self, text: impl AsRef<str>) {
        let mut state = self.shared.state();
        if state.recording.is_some() {
            state.perform(Op::Mark(Arc::from(text.as_ref())));
        }
    }

    /// What was recorded so far; recording goes on. Empty if [`MemDisk::record`] was not called.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let state = self.shared.state();
        let (base, ops) = match &state.recording {
            Some(recording) => (recording.base.clone(), recording.ops.clone()),
            None => (state.model.clone(), Vec::new()),
        };
        Trace { base, ops, seed: self.shared.seed, clock_ns: self.shared.now_ns() }
    }

    /// Ends the recording and returns it.
    #[must_use]
    pub fn stop_recording(&self) -> Trace {
        let trace = self.trace();
        self.shared.state().recording = None;
        trace
    }

    /// How many operations the recording holds now: the boundary right after the last one.
    #[must_use]
    pub fn recorded_len(&self) -> usize {
        self.shared.state().recording.as_ref().map_or(0, |recording| recording.ops.len())
    }

    /// Replaces the faults; each counts its calls from now.
    pub fn set_faults(&self, plan: impl Into<FaultPlan>) {
        let mut state = self.shared.state();
        state.faults.plan = plan.into();
        state.faults.hits = CallCounts::default();
    }

    /// How many calls the present faults have hit.
    #[must_use]
    pub fn fault_hit_count(&self) -> u64 {
        self.fault_hits().total()
    }

    /// How many calls of each kind the present faults have hit.
    #[must_use]
    pub fn fault_hits(&self) -> CallCounts {
        self.shared.state().faults.hits
    }

    /// How many calls were refused for want of room since the capacity was set.
    #[must_use]
    pub fn room_refused_count(&self) -> u64 {
        self.shared.state().room_refused_count
    }

    /// How many calls were made since the disk was made or the counts were reset.
    #[must_use]
    pub fn call_counts(&self) -> CallCounts {
        self.shared.state().faults.counts
    }

    /// Sets all counts to zero; faults keep theirs.
    pub fn reset_call_counts(&self) {
        self.shared.state().faults.counts = CallCounts::default();
    }

    /// Drops some clean pages of the cache, as the kernel may at any time. Returns how many of them then read
    /// differently: a page that a failed sync marked clean reads old (D6). Not counted as a call.
    pub fn evict(&self, seed: u64) -> u64 {
        self.shared.state().evict(&mut Random::new(seed))
    }

    /// Limits the disk to this many bytes of allocated pages (4 KiB each); beyond it `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        let mut state = self.shared.state();
        state.capacity_bytes = bytes;
        state.room_refused_count = 0;
    }

    /// Bytes of allocated pages: what [`MemDisk::set_capacity`] limits.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.shared.state().used_bytes()
    }

    /// Mounts the disk read-only, or not: changes are then refused with `ReadOnlyFilesystem`.
    pub fn set_read_only(&self, read_only: bool) {
        self.shared.state().read_only = read_only;
    }

    /// Mounts a network file system at a path, or none. Only [`Disk::file_system`]
    /// reports it.
    pub fn set_network(&self, mount: Option<&Path>) {
        self.shared.state().network = mount.map(normal);
    }

    /// Sets the hook that every sync of a file or directory calls before it takes effect.
    pub fn set_blocker(&self, blocker: Option<Blocker>) {
        *self.shared.blocker.lock().unwrap_or_else(PoisonError::into_inner) = blocker;
    }

    /// Moves both clocks forward.
    pub fn advance_clock(&self, ns: u64) {
        self.shared.clock_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Sets the wall clock, backwards too; the monotonic clock does not notice.
    pub fn set_wall_clock(&self, ns: u64) {
        let offset = ns.wrapping_sub(self.shared.now_ns());
        self.shared.wall_offset_ns.store(offset, Ordering::Relaxed);
    }

    /// The paths of all files as reads see them, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.shared.state();
        let files = state.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.to_path_buf()).collect()
    }

    /// The bytes of a file as reads see them. Not counted as a call.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut state = self.shared.state();
        let inode = state.file(&normal(path.as_ref()))?;
        Ok(state.inode(inode).content.to_vec())
    }

    /// Writes a file directly: durable at once, with the directories above it. Not counted as a call.
    ///
    /// Handles that are open on it see the new bytes; pending changes of it are gone.
    ///
    /// # Errors
    /// `IsADirectory`.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.shared.state();
        let path = normal(path.as_ref());
        let inode = match state.names.get(&path) {
            Some(Node::Directory) => return Err(state::error(io::ErrorKind::IsADirectory, &path)),
            Some(Node::File(inode)) => *inode,
            None => state.new_inode(),
        };
        state.perform(Op::Put { path, inode, bytes: Arc::from(bytes) });
        Ok(())
    }

    /// Deletes a file or a whole directory directly: durable at once. Not counted as a call.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for the root.
    pub fn delete(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.shared.state();
        let path = normal(path.as_ref());
        if path.parent().is_none() {
            return Err(state::error(io::ErrorKind::InvalidInput, &path));
        }
        if !state.names.contains_key(&path) {
            return Err(state::error(io::ErrorKind::NotFound, &path));
        }
        state.perform(Op::Delete { path });
        Ok(())
    }

    /// Flips one bit of a file wherever it is stored: cached, durable and pending. Not counted.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`; `InvalidInput` if `offset` is not inside the file.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.shared.state();
        let path = normal(path.as_ref());
        let inode = state.file(&path)?;
        if offset >= state.inode(inode).content.len() {
            return Err(state::error(io::ErrorKind::InvalidInput, &path));
        }
        state.perform(Op::Flip { path, inode, offset, bit });
        Ok(())
    }
}
