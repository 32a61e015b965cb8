//! A parent's job for one child process, and the child's outcome: one line of JSON each way.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::commerce::Setting;

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// One record after the other into a zero-filled file, each synced.
    Raw,
    /// W1 and W2: one new record a transaction.
    Commits,
    /// W9: one new record of 256 KiB a transaction.
    BigValues,
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
    /// W7: opens the database that `Doomed` left.
    Reopen,
    /// A turn of `commerce`: `rows` plans by `threads` agents.
    Commerce(Setting),
    /// W8.
    Stall,
    /// A point of `growth`.
    Grow(Limits),
    /// A turn of `beyond`.
    Beyond(Bound),
}

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The engine.
    pub engine: String,
    /// The step.
    pub step: Step,
    /// The directory of the database.
    pub dir: PathBuf,
    /// The seed of keys, values and order.
    pub seed: u64,
    /// How long a timed loop lasts.
    pub seconds: f64,
    /// Threads.
    pub threads: usize,
    /// Rows to write, or that exist.
    pub rows: u64,
}

/// How a point of `growth` is loaded, and the limits of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Whether in key order; else in random order.
    pub in_key_order: bool,
    /// The maximum duration.
    pub seconds: u64,
    /// The maximum size of its files.
    pub bytes: u64,
}

/// A turn of `beyond`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    /// The memory that the engine may take.
    pub memory_bytes: usize,
    /// Collections beside that of the rows, with a row of another random key for each row.
    pub views: usize,
    /// Rows that are written over after the load.
    pub replaced: u64,
}

/// The outcome of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Named figures; the names carry the unit.
    pub figures: BTreeMap<String, f64>,
    /// The hash of the engine's answers.
    pub answer: u64,
    /// The hash of the right answers, derived from the seed alone.
    pub expected: u64,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Adds a figure.
    pub(crate) fn with(mut self, name: &str, figure: f64) -> Outcome {
        self.figures.insert(name.to_owned(), figure);
        self
    }

    /// Adds figures.
    pub(crate) fn with_all(mut self, figures: impl IntoIterator<Item = (String, f64)>) -> Outcome {
        self.figures.extend(figures);
        self
    }

    /// Sets the hash of the answers, and that of the right ones.
    pub(crate) fn answering(mut self, answer: u64, expected: u64) -> Outcome {
        (self.answer, self.expected) = (answer, expected);
        self
    }

    /// Adds a remark.
    pub(crate) fn noting(mut self, note: impl Into<Option<String>>) -> Outcome {
        self.notes.extend(note.into());
        self
    }

    /// Whether every answer was right.
    pub(crate) fn is_right(&self) -> bool {
        self.answer == self.expected
    }
}
