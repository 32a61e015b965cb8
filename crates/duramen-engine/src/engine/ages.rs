//! When commits were the newest, for reports of what holds space, and since when.

use std::time::Duration;

use crate::ids::CommitSeq;

/// Samples kept, about. The older they are, the farther they lie apart: an age needs few digits.
const SAMPLES_MAX: usize = 128;

/// The distance of two samples is at most this part of their age.
const DISTANCE_PART: u64 = 4;

/// Samples of the newest commit, oldest first, each with a time in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Ages(Vec<(CommitSeq, u64)>);

impl Ages {
    /// Notes that this commit is the newest now.
    pub(super) fn note(&mut self, newest: CommitSeq, now_ns: u64) {
        self.0.push((newest, now_ns));
        if self.0.len() > SAMPLES_MAX {
            self.thin_out(now_ns);
        }
    }

    fn thin_out(&mut self, now_ns: u64) {
        let mut kept: Vec<(CommitSeq, u64)> = Vec::with_capacity(SAMPLES_MAX);
        for (index, sample) in self.0.iter().enumerate() {
            let next = self.0.get(index + 1);
            let is_close = kept.last().zip(next).is_some_and(|((_, before), (_, after))| {
                after.saturating_sub(*before) < now_ns.saturating_sub(*after) / DISTANCE_PART
            });
            if !is_close {
                kept.push(*sample);
            }
        }
        // Clocks that jump may leave too many.
        let beyond = kept.len().saturating_sub(SAMPLES_MAX);
        self.0 = kept.split_off(beyond);
    }

    /// For how long a commit has not been the newest, at least.
    pub(super) fn of(&self, seq: CommitSeq, now_ns: u64) -> Option<Duration> {
        let (_, replaced_ns) = self.0.iter().find(|(newest, _)| *newest > seq)?;
        Some(Duration::from_nanos(now_ns.saturating_sub(*replaced_ns)))
    }
}

#[cfg(test)]
mod tests {
    //! An age may be too low by the distance of two samples, and is never too high.
    use super::*;

    #[test]
    fn ages_are_those_of_the_commit_that_came_next() {
        let mut ages = Ages::default();
        assert_eq!(ages.of(CommitSeq(1), 5), None);
        for seq in 1..=1000 {
            ages.note(CommitSeq(seq), seq * 10);
        }
        assert!(ages.0.len() <= SAMPLES_MAX);
        let check = |seq: u64| {
            let (age, exact) = (ages.of(CommitSeq(seq), 10_000).unwrap(), 10_000 - (seq + 1) * 10);
            assert!(age <= Duration::from_nanos(exact), "{seq}: {age:?}");
            assert!(age >= Duration::from_nanos(exact / 2), "{seq}: {age:?}, {exact} ns");
        };
        [1, 10, 500, 900, 990, 998].into_iter().for_each(check);
        assert_eq!(ages.of(CommitSeq(1000), 10_000), None, "the newest has no age");
    }
}
