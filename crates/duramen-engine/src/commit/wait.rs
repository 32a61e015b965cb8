//! Waiting for a group: one parked thread per member, woken one by one.

use std::sync::Arc;

use crate::error::Result;
use crate::sync::{Condvar, Mutex};

const POISON: &str = "nothing panics while a waiter is locked";

/// A committing thread that waits.
#[derive(Debug, Default)]
pub struct Waiter {
    word: Mutex<Option<Word>>,
    said: Condvar,
}

/// What a waiter is told.
#[derive(Debug, Clone)]
pub enum Word {
    /// Lead: write the forming group.
    Lead,
    /// The group is done.
    Done(Arc<GroupOutcome>, usize),
}

/// How a group ended, and whom to tell.
#[derive(Debug)]
pub struct GroupOutcome {
    /// What every member is told.
    pub result: Result<()>,
    /// The members that wait.
    pub waiters: Vec<Arc<Waiter>>,
}

impl Waiter {
    /// Tells it.
    pub fn tell(&self, word: Word) {
        *self.word.lock().expect(POISON) = Some(word);
        self.said.notify_one();
    }

    /// Waits to be told.
    pub fn wait(&self) -> Word {
        let mut word = self.word.lock().expect(POISON);
        loop {
            if let Some(word) = word.take() {
                return word;
            }
            word = self.said.wait(word).expect(POISON);
        }
    }
}

impl GroupOutcome {
    /// Wakes the first waiter, who wakes two more, and so on: no thread wakes them all.
    pub fn announce(self: &Arc<GroupOutcome>) {
        self.tell(0);
    }

    /// A woken member passes the word on.
    pub fn pass_on(self: &Arc<GroupOutcome>, index: usize) {
        self.tell(2 * index + 1);
        self.tell(2 * index + 2);
    }

    fn tell(self: &Arc<GroupOutcome>, index: usize) {
        if let Some(waiter) = self.waiters.get(index) {
            waiter.tell(Word::Done(Arc::clone(self), index));
        }
    }
}
