//! The shapes that the documents of one collection have: which one a document gets.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use super::layout::Layout;
use super::{FIELDS_MAX, NAMES_BYTES_MAX};
use crate::store::error::Result;
use crate::value::msgpack::{Reader, Token};

/// No shape, where a number is expected.
const NO_SHAPE: u32 = u32::MAX;

/// The shape that the last document of a collection got. It is a hint: a document is compared with it.
#[derive(Debug)]
pub(crate) struct LastShape(AtomicU32);

impl Default for LastShape {
    fn default() -> Self {
        LastShape(AtomicU32::new(NO_SHAPE))
    }
}

impl LastShape {
    pub(super) fn number(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, number: u32) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// What the shapes of a collection depend on.
pub(crate) struct CollectionShapes<'e> {
    pub(crate) collection: &'e str,
    /// The fields that it sums. Their values are the first of every shape: a reducer knows no shapes.
    pub(crate) sums: &'e [String],
    pub(crate) last: &'e LastShape,
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

    /// The names of documents of a layout; `None` if these keep them.
    pub(super) fn of_layout(layout: &'d Layout) -> Option<Names<'d>> {
        let shown: Vec<&str> = layout.shown_names().collect();
        let bytes: usize = shown.iter().map(|name| name.len()).sum();
        ((1..=FIELDS_MAX).contains(&shown.len()) && bytes <= NAMES_BYTES_MAX).then_some(Names(shown))
    }

    /// Whether these are the names.
    pub(super) fn are<'n>(&self, names: impl Iterator<Item = &'n str>) -> bool {
        self.0.iter().copied().eq(names)
    }

    /// What they take in memory.
    pub(super) fn bytes(&self) -> usize {
        super::bytes_of(self.0.iter().copied())
    }

    pub(super) fn hash(&self) -> u64 {
        hash_of(self.0.iter().copied())
    }

    /// The layout of such documents, in a collection that sums these fields.
    ///
    /// `None` for a document that keeps its names: one without a field that is summed, or with one twice.
    pub(super) fn layout(&self, sums: &[String]) -> Option<Layout> {
        Layout::of(&self.0, sums)
    }
}

/// A hash of the names of a document, in the order shown.
pub(super) fn hash_of<'n>(names: impl Iterator<Item = &'n str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.for_each(|name| name.hash(&mut hasher));
    hasher.finish()
}
