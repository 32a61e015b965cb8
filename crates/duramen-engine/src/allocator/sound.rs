//! The invariant of every change of the space map: allocated blocks were free, freed blocks were used.
//!
//! D3 rests here. A block that is freed twice may belong to another page by the second time. The map refuses
//! such a change and stays as it is. The cause is a bug in the engine, or a file whose pages name one block
//! twice; both end all acknowledgement. A contradiction is no panic: hostile bytes can cause it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, OnceLock};

use super::{DeferredExtent, Space, State};
use crate::alarm::{invariant, locked};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;

/// Called once, without a lock of the allocator.
type Hook = Box<dyn Fn(Error) + Send + Sync>;

/// Called with the state that other threads will see.
#[cfg(test)]
type Look = Box<dyn Fn(&State) + Send + Sync>;

/// The first contradiction, and the hook that reports it.
#[derive(Default)]
pub(super) struct Soundness {
    first: OnceLock<Error>,
    hook: OnceLock<Hook>,
    /// Called with the state each time the lock is released: with every state that other threads can see.
    #[cfg(test)]
    pub(super) on_release: OnceLock<Look>,
}

impl fmt::Debug for Soundness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Soundness").field("first", &self.first).finish_non_exhaustive()
    }
}

/// The locked state. A contradiction found under the lock is reported after its release.
pub(super) struct Locked<'a> {
    soundness: &'a Soundness,
    state: Option<MutexGuard<'a, State>>,
}

const HELD: &str = "the guard is there until it is dropped";

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_deref().expect(HELD)
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_deref_mut().expect(HELD)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        #[cfg(test)]
        if let Some(look) = self.soundness.on_release.get() {
            look(self);
        }
        let found = self.contradiction.take();
        drop(self.state.take());
        if let Some(error) = found
            && self.soundness.first.set(error.clone()).is_ok()
            && let Some(hook) = self.soundness.hook.get()
        {
            hook(error);
        }
    }
}

impl Space {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { soundness: &self.soundness, state: Some(locked(self.state.lock())) }
    }

    /// Checks that no contradiction was ever found.
    ///
    /// # Errors
    /// `Corrupt`: which blocks were freed or handed out twice.
    pub(crate) fn is_sound(&self) -> Result<()> {
        self.soundness.first.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Sets the hook that ends all acknowledgement at the first contradiction.
    ///
    /// # Errors
    /// As [`Space::is_sound`].
    pub(crate) fn on_contradiction(&self, hook: impl Fn(Error) + Send + Sync + 'static) -> Result<()> {
        assert!(self.soundness.hook.set(Box::new(hook)).is_ok(), "one hook an engine");
        self.is_sound()
    }
}

impl State {
    /// Makes free blocks a page's.
    pub(super) fn hand_out(&mut self, block: u64, block_count: u32) -> Result<()> {
        let is_free = self.used.none_set(block, block_count) && self.holes.none_set(block, block_count);
        if !is_free || block < self.first_block {
            return Err(self.contradict("handed out, and they are in use", block, block_count));
        }
        self.own(block, block_count);
        Ok(())
    }

    /// Frees the blocks of a page.
    pub(super) fn free(&mut self, block: u64, block_count: u32) {
        let is_used = self.used.all_set(block, block_count) && self.holes.none_set(block, block_count);
        if !is_used || block < self.first_block {
            self.contradict("given back, and they are not in use", block, block_count);
        } else if self.holds_value(block, block_count) {
            self.contradict("given back, and a value that no checkpoint has lies there", block, block_count);
        } else {
            self.used.clear(block, block_count);
        }
    }

    /// Frees the blocks of a value that no checkpoint contains.
    pub(super) fn free_value(&mut self, block: u64, block_count: u32) {
        match self.unrooted.get(&block) {
            Some((count, _)) if *count == block_count => {
                self.unrooted.remove(&block);
                self.free(block, block_count);
            }
            _ => {
                drop(self.contradict("given back as a value's, and no value lies there", block, block_count))
            }
        }
    }

    /// Sets the commit of a value that was written without one.
    pub(super) fn name_value(&mut self, block: u64, block_count: u32, seq: CommitSeq) {
        match self.unrooted.get_mut(&block) {
            Some((count, commit @ None)) if *count == block_count => *commit = Some(seq),
            _ => drop(self.contradict("committed as a value's, and no value lies there", block, block_count)),
        }
    }

    /// Marks the blocks of a value that the log names. An older map may call them used, for a value that was
    /// being allocated and then given up. Blocks held for that map alone go to this value. Returns `false` if
    /// a page of the newest checkpoint or another value of the log lies there: one of the two is not what was
    /// written.
    pub(super) fn own_replayed(&mut self, block: u64, block_count: u32, seq: CommitSeq) -> bool {
        let end = block.saturating_add(u64::from(block_count));
        if !self.is_free(block, block_count) {
            let blocks = |(from, to)| u32::try_from(to - from).expect("a part of an extent");
            for extent in std::mem::take(&mut self.waiting) {
                let (from, to) = (extent.block, extent.block + u64::from(extent.block_count));
                let parts = [(from, to.min(block)), (from.max(end), to)];
                self.waiting.extend(
                    parts.into_iter().filter(|(from, to)| from < to).map(|part| DeferredExtent {
                        block: part.0,
                        block_count: blocks(part),
                        ..extent
                    }),
                );
                let held = (from.max(block), to.min(end));
                if held.0 < held.1 {
                    self.used.clear(held.0, blocks(held));
                }
            }
        }
        if !self.is_free(block, block_count) || block < self.first_block {
            return false;
        }
        self.own(block, block_count);
        let there = self.unrooted.insert(block, (block_count, Some(seq)));
        invariant!(there.is_none(), "no other value of the log lies at block {block}: {there:?}");
        let is_apart = |e: &DeferredExtent| e.block >= end || e.block + u64::from(e.block_count) <= block;
        debug_assert!(self.waiting.iter().all(is_apart), "no block of the value at {block} is freed later");
        true
    }

    /// Whether a value that no checkpoint contains lies in one of these blocks.
    pub(super) fn holds_value(&self, block: u64, block_count: u32) -> bool {
        let end = block.saturating_add(u64::from(block_count));
        let before_end = self.unrooted.range(..end).next_back();
        before_end.is_some_and(|(value, (count, _))| value + u64::from(*count) > block)
    }

    /// Reports blocks for a list that does not fit into them. It would overwrite those after them.
    pub(super) fn too_short(&mut self, block: u64, block_count: u32) -> Error {
        self.contradict("taken for the list of the map's pages, which is longer", block, block_count)
    }

    /// Reports blocks that must be used and are not.
    pub(super) fn not_covered(&mut self, block: u64, block_count: u32) -> Error {
        self.contradict("about to be named by a superblock whose map calls them free", block, block_count)
    }

    fn contradict(&mut self, what: &str, block: u64, block_count: u32) -> Error {
        let message =
            format!("the space map is contradicted: {block_count} blocks from block {block} on were {what}");
        let error = Error::new(Code::CorruptData, message).with_hint(
            "open the database again and run `duramen check DB`; if it finds nothing, report this: it is a fault of the engine",
        );
        self.contradiction.get_or_insert(error).clone()
    }
}
