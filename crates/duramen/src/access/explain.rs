//! How a question is answered: which trees are asked, in which order, and for how many rows.
//!
//! Owns words and numbers. The numbers are the trees' own counts, exact and found in O(log n); nothing here is an estimate
//! but what comes of a merge, of which only the bound is known before it is done.

use std::fmt;

use crate::store::KeyRange;
use crate::value::tuple::show;

/// How a query is answered. Its text is for people; the fields are for tests and tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explain {
    /// The collection that is asked.
    pub collection: String,
    /// What comes out, in which order.
    pub gives: String,
    /// The trees that are asked, the smallest first where several are merged.
    pub parts: Vec<Part>,
    /// At most so many rows or documents come out.
    pub rows_max: u64,
    /// Whether even a count has to walk.
    pub walks: bool,
    /// What it costs, in words.
    pub cost: &'static str,
    /// What it took, if it was run.
    pub ran: Option<Ran>,
}

/// A tree that is asked, or how those behind it are put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which, and for which keys.
    pub what: String,
    /// How many rows it has there.
    pub rows: u64,
    /// How deep it lies in what is put together.
    pub depth: usize,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Documents that were found.
    pub documents: u64,
    /// Rows of views that were read.
    pub rows: u64,
    /// Ways down a tree: each reads its height in pages at most.
    pub seeks: u64,
}

impl Explain {
    pub(crate) fn of(collection: &str, gives: &str) -> Explain {
        Explain {
            collection: collection.to_owned(),
            gives: gives.to_owned(),
            parts: Vec::new(),
            rows_max: 0,
            walks: false,
            cost: "",
            ran: None,
        }
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.collection, self.gives)?;
        for part in &self.parts {
            writeln!(f, "{:indent$}{}: {} row(s)", "", part.what, part.rows, indent = 2 + 2 * part.depth)?;
        }
        write!(f, "  gives at most {}; {}", self.rows_max, self.cost)?;
        match &self.ran {
            Some(Ran { documents, rows, seeks }) => {
                write!(f, "\n  found {documents}, having read {rows} row(s) in {seeks} descent(s)")
            }
            None => Ok(()),
        }
    }
}

/// A range of keys as a person reads it.
pub(crate) fn show_range(KeyRange { from, to }: &KeyRange) -> String {
    match (from.as_slice(), to) {
        ([], None) => "all keys".to_owned(),
        (from, Some(to)) if to.strip_prefix(from) == Some(&[0xff]) => {
            format!("keys that begin with {}", show(from))
        }
        ([], Some(to)) => format!("keys before {}", shown_end(to)),
        (from, None) => format!("keys from {} on", show(from)),
        (from, Some(to)) => format!("keys from {} on and before {}", show(from), shown_end(to)),
    }
}

/// An end is a key, or lies behind all keys that begin with one, or just behind one.
fn shown_end(to: &[u8]) -> String {
    match to {
        [key @ .., 0xff] => format!("the end of {}", show(key)),
        key => show(key),
    }
}
