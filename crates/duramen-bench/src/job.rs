//! What a parent asks of one child process, and what the child hands back: one line of JSON each way.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::commerce::Setting;

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// One record after the other into a zero-filled file, each synced.
    Raw,
    /// W1 and W2: one new record a transaction.
    Commits,
    /// Fills the five collections of W2b.
    Fill,
    /// W2b.
    Update,
    /// W3.
    Load,
    /// W4.
    Gets,
    /// W5.
    Scans,
    /// W6.
    Sums,
    /// The load of W7, which ends by `kill -9`.
    Doomed,
    /// W7: opens what `Doomed` left.
    Reopen,
    /// A turn of `commerce`: `rows` plans by `threads` agents.
    Commerce(Setting),
    /// W8.
    Stall,
    /// A point of `growth`.
    Grow(Limits),
}

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Who.
    pub engine: String,
    /// What.
    pub step: Step,
    /// Where the database lies.
    pub dir: PathBuf,
    /// What keys, values and order are drawn from.
    pub seed: u64,
    /// How long a timed loop lasts.
    pub seconds: f64,
    /// Threads.
    pub threads: usize,
    /// Rows to write, or that are there.
    pub rows: u64,
}

/// How a point of `growth` is loaded, and when that is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// In the order of keys, or in random order.
    pub in_key_order: bool,
    /// A load lasts no longer.
    pub seconds: u64,
    /// Its files take no more.
    pub bytes: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Named figures; the names carry the unit.
    pub figures: BTreeMap<String, f64>,
    /// Hash of what the engine answered.
    pub answer: u64,
    /// Hash of what it had to answer, known from the seed alone.
    pub expected: u64,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Adds a figure.
    pub fn with(mut self, name: &str, figure: f64) -> Outcome {
        self.figures.insert(name.to_owned(), figure);
        self
    }

    /// Adds figures.
    pub fn with_all(mut self, figures: impl IntoIterator<Item = (String, f64)>) -> Outcome {
        self.figures.extend(figures);
        self
    }

    /// Says what was answered, and what is right.
    pub fn answering(mut self, answer: u64, expected: u64) -> Outcome {
        (self.answer, self.expected) = (answer, expected);
        self
    }

    /// Adds a sentence.
    pub fn noting(mut self, note: impl Into<Option<String>>) -> Outcome {
        self.notes.extend(note.into());
        self
    }

    /// Whether every answer was right.
    pub fn is_right(&self) -> bool {
        self.answer == self.expected
    }
}
