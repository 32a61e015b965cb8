//! How a query is answered: which trees are read, in which order, and for how many rows.
//!
//! Owns texts and numbers. The numbers are the trees' own counts, exact and found in O(log n). The only
//! estimate is the result of a merge, of which just an upper bound is known beforehand.

use std::fmt;

use crate::store::KeyRange;
use crate::value::tuple::show;

/// How a query is answered. The text is for users; the fields are for tests and tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explain {
    /// The collection.
    pub collection: String,
    /// What the query returns, in which order.
    pub gives: String,
    /// The trees that are read, the smallest first where several are merged.
    pub parts: Vec<Part>,
    /// Upper bound of the rows or documents returned.
    pub rows_max: u64,
    /// Whether even a count has to scan.
    pub walks: bool,
    /// The cost, as text.
    pub cost: &'static str,
    /// What the query took, if it was run.
    pub ran: Option<Ran>,
}

/// A tree that is read, or how the parts below it are combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which tree, and for which keys.
    pub what: String,
    /// How many rows it has there.
    pub rows: u64,
    /// Depth in the expression.
    pub depth: usize,
}

/// What running the query took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Documents that were found.
    pub documents: u64,
    /// Rows of views that were read.
    pub rows: u64,
    /// Descents of a tree: each reads at most as many pages as the tree is high.
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

/// A range of keys in readable form.
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

/// The end of a range: a key, the end of a prefix, or directly after a key.
fn shown_end(to: &[u8]) -> String {
    match to {
        [key @ .., 0xff] => format!("the end of {}", show(key)),
        key => show(key),
    }
}
