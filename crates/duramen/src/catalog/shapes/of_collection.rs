//! The shapes that the documents of one collection have: which one a document gets.
//!
//! Owns what a collection's writers remember of its shapes. All of it is a hint: a document is compared with
//! the names of a shape before it gets it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{FIELDS_MAX, NAMES_BYTES_MAX, POISON};
use crate::store::error::Result;
use crate::value::msgpack::{Reader, Token};

/// No shape, where a number is expected.
const NO_SHAPE: u32 = u32::MAX;

/// The most names of fields that are remembered with their shape.
const REMEMBERED_MAX: usize = 1_024;

/// What is remembered of the shapes of a collection.
#[derive(Debug)]
pub(crate) struct RecentShapes {
    /// The shape of the last document.
    last: AtomicU32,
    /// Shapes by a hash of the names; `None` for documents that keep their names.
    by_names: RwLock<HashMap<u64, Option<u32>>>,
}

impl Default for RecentShapes {
    fn default() -> Self {
        RecentShapes { last: AtomicU32::new(NO_SHAPE), by_names: RwLock::default() }
    }
}

impl RecentShapes {
    pub(super) fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    /// What is remembered of these names: a shape, or that documents keep them.
    pub(super) fn of(&self, hash: u64) -> Option<Option<u32>> {
        self.by_names.read().expect(POISON).get(&hash).copied()
    }

    pub(super) fn used(&self, number: u32) {
        self.last.store(number, Ordering::Relaxed);
    }

    pub(super) fn remember(&self, hash: u64, number: Option<u32>) {
        let mut by_names = self.by_names.write().expect(POISON);
        if by_names.len() < REMEMBERED_MAX {
            by_names.insert(hash, number);
        }
    }
}

/// What the shapes of a collection depend on.
pub(crate) struct CollectionShapes<'e> {
    pub(crate) collection: &'e str,
    /// The fields that it sums. Their values are the first of every shape: a reducer knows no shapes.
    pub(crate) sums: &'e [String],
    pub(crate) recent: &'e RecentShapes,
}

/// The names of a document's fields, in the order shown.
pub(super) struct Names<'d>(Vec<&'d str>);

impl<'d> Names<'d> {
    /// The names of a document's fields; `None` for one that keeps them whatever its collection.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(super) fn of(named: &'d [u8]) -> Result<Option<Names<'d>>> {
        let mut reader = Reader::new(named);
        let Token::Map(count) = reader.next()? else { return Ok(None) };
        if count == 0 || count > FIELDS_MAX {
            return Ok(None);
        }
        let (mut shown, mut bytes) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            // Maps of types may have names of other kinds.
            let Token::Text(name) = reader.next()? else { return Ok(None) };
            bytes += name.len();
            shown.push(name);
            reader.skip()?;
        }
        Ok((bytes <= NAMES_BYTES_MAX).then_some(Names(shown)))
    }

    pub(super) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// The names in the order to store them, and their positions in the order shown.
    ///
    /// `None` for a document that keeps its names: one without a field that is summed, or with one twice.
    pub(super) fn ordered(&self, sums: &[String]) -> Option<(Vec<String>, Vec<usize>)> {
        let shown = &self.0;
        let is_summed = |name: &str| sums.iter().any(|sum| sum == name);
        let others = shown.iter().copied().filter(|name| !is_summed(name));
        let names: Vec<&str> = sums.iter().map(String::as_str).chain(others).collect();
        let mut positions: HashMap<&str, usize> = names.iter().copied().zip(0..).collect();
        if names.len() != shown.len() || positions.len() != names.len() {
            return None;
        }
        // Taken out, so that a name that comes twice is not found again.
        let shown = shown.iter().map(|name| positions.remove(name)).collect::<Option<Vec<usize>>>()?;
        let is_stored_order = shown.iter().copied().eq(0..shown.len());
        let names = names.into_iter().map(str::to_owned).collect();
        Some((names, if is_stored_order { Vec::new() } else { shown }))
    }
}
