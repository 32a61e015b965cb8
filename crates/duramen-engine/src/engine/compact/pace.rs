//! How much one step of a compaction takes: less when the disk is full or its state is ended.

/// Groups that one step looks at.
const STEP_GROUPS: usize = 64;

/// On a full disk slices become smaller, down to this part of their size.
const SLICE_PART_MIN: usize = 64;

/// Slices become smaller on a full disk, and larger after a checkpoint, by this factor.
const SLICE_FACTOR: usize = 4;

/// So many steps in turn may lose the state that they read, which is ended to free its space.
const ENDED_MAX: u32 = 8;

/// The size of the next step.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes of a slice where nothing hinders it.
    pub whole_bytes: usize,
    /// Bytes of the next slice.
    pub slice_bytes: usize,
    /// Groups of the next step.
    pub groups: usize,
    /// Steps in turn that lost their state.
    ended_count: u32,
    /// A slice was committed since the disk was found full.
    went_on: bool,
}

impl Pace {
    pub(super) fn new(whole_bytes: usize) -> Pace {
        // A slice that is full when it is empty would not get on.
        let whole_bytes = whole_bytes.max(1);
        Pace { whole_bytes, slice_bytes: whole_bytes, groups: STEP_GROUPS, ended_count: 0, went_on: false }
    }

    fn slice_bytes_min(&self) -> usize {
        (self.whole_bytes / SLICE_PART_MIN).max(1)
    }

    /// A step kept its state.
    pub(super) fn step_done(&mut self) {
        self.ended_count = 0;
    }

    /// A slice was committed.
    pub(super) fn slice_done(&mut self) {
        self.went_on = true;
    }

    /// A step lost its state: the next is half as large. `false` if that happens again and again.
    pub(super) fn state_ended(&mut self) -> bool {
        self.ended_count += 1;
        self.groups = (self.groups / 2).max(1);
        self.slice_bytes = (self.slice_bytes / 2).max(self.slice_bytes_min());
        self.ended_count <= ENDED_MAX
    }

    /// The disk had no room for a slice. If slices went through before, a checkpoint frees the room that they
    /// took, in the log too, and slices keep their size. `false` if they cannot become smaller.
    pub(super) fn disk_full(&mut self) -> bool {
        if std::mem::take(&mut self.went_on) {
            return true;
        }
        let is_smallest = self.slice_bytes <= self.slice_bytes_min();
        self.slice_bytes = (self.slice_bytes / SLICE_FACTOR).max(self.slice_bytes_min());
        !is_smallest
    }

    /// A checkpoint was written after slices that went through.
    pub(super) fn checkpointed(&mut self) {
        self.slice_bytes = (self.slice_bytes * SLICE_FACTOR).min(self.whole_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log may be what was full. Slices of a 64th of their size, each with a block of the log, would fill
    /// it again and again.
    #[test]
    fn slices_shrink_only_if_none_went_through_and_grow_after_a_checkpoint() {
        let mut pace = Pace::new(64 * 1024);
        pace.slice_done();
        assert!(pace.disk_full());
        assert_eq!(pace.slice_bytes, 64 * 1024, "a checkpoint frees what the slice took");
        for slice_bytes in [16, 4, 1] {
            assert!(pace.disk_full());
            assert_eq!(pace.slice_bytes, slice_bytes * 1024);
        }
        assert!(!pace.disk_full(), "nothing goes through, however small");
        for slice_bytes in [4, 16, 64, 64] {
            pace.slice_done();
            pace.checkpointed();
            assert_eq!(pace.slice_bytes, slice_bytes * 1024);
        }
    }

    #[test]
    fn steps_shrink_while_their_state_is_ended_and_give_up_in_the_end() {
        let mut pace = Pace::new(64 * 1024);
        let kept = (0..ENDED_MAX).all(|_| pace.state_ended());
        assert!(kept && pace.groups == 1 && pace.slice_bytes == 1024);
        assert!(!pace.state_ended());
        pace.step_done();
        assert!(pace.state_ended());
    }
}
