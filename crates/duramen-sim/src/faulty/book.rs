//! What must, may and must not be there while calls fail: each possible state of the database, from when to
//! when.
//!
//! Owns the model of one boot, from a power cut to the next, and nothing of the engine. D1, D2, D6 and D7 are
//! judged by it: an acknowledged commit stays, one in doubt may be there or not, a refused one never is.

use duramen_engine::Durability;

use crate::search::model::{Effect, State};

/// The state after one commit, and the cuts at which it can be found.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its place in the order.
    pub seq: u64,
    /// What the database then holds.
    pub state: State,
    /// The level acknowledged; none for a commit in progress or in doubt.
    pub level: Option<Durability>,
    began_at: usize,
    ended_at: Option<usize>,
}

/// All versions, and the promises.
#[derive(Debug, Default, Clone)]
pub struct Book {
    versions: Vec<Version>,
    /// Each operation of the disk from which a commit survives.
    promises: Vec<(usize, u64)>,
}

impl Book {
    /// Begins with an empty database.
    #[must_use]
    pub fn new() -> Book {
        let level = Some(Durability::Disk);
        let empty = Version { seq: 0, state: State::default(), level, began_at: 0, ended_at: None };
        Book { versions: vec![empty], promises: vec![(0, 0)] }
    }

    /// The states that can be found after a power cut after `op` operations.
    #[must_use]
    pub fn after_cut(&self, op: usize) -> Book {
        let floor = self.floor(op);
        let mut versions: Vec<Version> = self.alive(op).cloned().collect();
        for version in &mut versions {
            (version.began_at, version.ended_at) = (0, None);
            version.level = (version.seq <= floor).then_some(Durability::Disk);
        }
        Book { versions, promises: vec![(0, floor)] }
    }

    fn alive(&self, op: usize) -> impl Iterator<Item = &Version> {
        let is_alive = move |version: &&Version| {
            version.began_at <= op && version.ended_at.is_none_or(|ended_at| op < ended_at)
        };
        self.versions.iter().filter(is_alive)
    }

    /// The newest state that was not taken back.
    #[must_use]
    pub fn latest(&self) -> &Version {
        let alive = self.versions.iter().rev().find(|version| version.ended_at.is_none());
        alive.expect("the first state is never taken back")
    }

    /// The state of a commit that can be found after `op` operations.
    #[must_use]
    pub fn at(&self, op: usize, seq: u64) -> Option<&State> {
        self.alive(op).find(|version| version.seq == seq).map(|version| &version.state)
    }

    /// The first commit that may be there or not after `op` operations, if there is one.
    #[must_use]
    pub fn doubt(&self, op: usize) -> Option<u64> {
        self.alive(op).find(|version| version.level.is_none()).map(|version| version.seq)
    }

    /// The newest commit that must survive a power cut after `op` operations.
    #[must_use]
    pub fn floor(&self, op: usize) -> u64 {
        let known = self.promises.partition_point(|(at, _)| *at <= op);
        self.promises[..known].last().map_or(0, |(_, seq)| *seq)
    }

    /// The newest commit that survives the end of the process, if no sync has failed.
    #[must_use]
    pub fn written(&self) -> u64 {
        let is_written = |version: &&Version| {
            version.ended_at.is_none() && version.level.is_some_and(|level| level >= Durability::Process)
        };
        self.versions.iter().rev().find(is_written).map_or(0, |version| version.seq)
    }

    /// Begins a commit after the newest one. Returns the sequence that it must get.
    pub fn begin(&mut self, effects: &[Effect], op: usize) -> u64 {
        let mut state = self.latest().state.clone();
        state.apply(effects);
        let seq = self.latest().seq + 1;
        self.versions.push(Version { seq, state, level: None, began_at: op, ended_at: None });
        seq
    }

    /// Notes that a commit was acknowledged.
    pub fn acknowledged(&mut self, seq: u64, level: Durability) {
        let version = self.versions.iter_mut().rev().find(|version| version.seq == seq);
        let version = version.expect("a commit that is acknowledged has begun");
        version.level = Some(level);
    }

    /// Notes that a commit was refused, or taken back: it and all commits built on it are never found from
    /// here on.
    ///
    /// Returns the strongest level at which one of them was acknowledged.
    pub fn refused(&mut self, seq: u64, op: usize) -> Option<Durability> {
        let mut strongest = None;
        let gone = |version: &&mut Version| version.ended_at.is_none() && version.seq >= seq;
        for version in self.versions.iter_mut().filter(gone) {
            version.ended_at = Some(op);
            strongest = strongest.max(version.level);
        }
        strongest
    }

    /// Notes that commit `seq` survives a power cut from operation `op` on.
    pub fn promise(&mut self, op: usize, seq: u64) {
        if self.promises.last().is_none_or(|(_, known)| *known < seq) {
            self.promises.push((op, seq));
        }
    }

    /// Notes that an open found this commit and returned: it is durable, and nothing after it ever comes
    /// back.
    pub fn found(&mut self, seq: u64, op: usize) {
        self.refused(seq + 1, op);
        self.promise(op, seq);
        self.acknowledged(seq, Durability::Disk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that allows too much finds nothing: each outcome of a commit, and where it can be found.
    #[test]
    fn what_was_refused_is_never_found_and_what_is_in_doubt_may_be() {
        let mut book = Book::new();
        assert_eq!(book.begin(&[], 10), 1);
        book.acknowledged(1, Durability::Disk);
        book.promise(12, 1);
        assert_eq!(book.begin(&[], 20), 2);
        book.acknowledged(2, Durability::Memory);
        assert_eq!(book.begin(&[], 30), 3);
        let found = |book: &Book, op| (0..5).filter(|seq| book.at(op, *seq).is_some()).collect::<Vec<_>>();
        assert_eq!((found(&book, 9), found(&book, 15)), (vec![0], vec![0, 1]));
        assert_eq!(found(&book, 35), [0, 1, 2, 3], "the third is under way");
        assert_eq!(book.refused(2, 40), Some(Durability::Memory));
        assert_eq!((found(&book, 39), found(&book, 40)), (vec![0, 1, 2, 3], vec![0, 1]));
        assert_eq!((book.floor(11), book.floor(40)), (0, 1));
        assert_eq!(book.begin(&[], 50), 2, "the place is given again");
        let mut next = book.after_cut(55);
        assert_eq!((found(&next, 0), next.floor(0)), (vec![0, 1, 2], 1));
        next.found(1, 7);
        assert_eq!((found(&next, 6), found(&next, 7)), (vec![0, 1, 2], vec![0, 1]));
    }
}
