//! Decodes some stored documents before a type writes.
//!
//! Owns the check of what the catalogue does not keep: the insides of fields, such as those of a struct in a
//! field. A type that cannot read them must not write beside them, and must not begin a migration. The check
//! reads a sample. It is no proof, but a change of a type affects most documents alike.

use std::iter;

use super::TypeDescriptor;
use crate::catalog::entries::Entry;
use crate::catalog::schema::{Field, Schema};
use crate::store::error::{Code, Error, Result};
use crate::store::{KeyRange, Source};

/// Documents that are decoded: the first, the last, and others at equal distances.
const DOCUMENTS: u64 = 64;

/// Bytes of documents after which no more are decoded.
const BYTES: usize = 4 * 1024 * 1024;

impl TypeDescriptor {
    /// Whether stored documents may have insides that the catalogue cannot compare with the type's.
    pub(crate) fn looks_inside(&self, stored: &Schema) -> bool {
        let own = self.own();
        let ancestors = if stored.is_migrating() || own.version() > stored.version() {
            (self.older)()
        } else {
            Vec::new()
        };
        let is_unknown =
            |schema: &Schema| schema.fields().is_empty() || !schema.fields().iter().all(Field::is_compared);
        stored.fields().is_empty() || is_unknown(&own) || ancestors.iter().any(is_unknown)
    }

    /// Decodes a sample of the stored documents. Costs at most 64 lookups.
    ///
    /// A type is refused if it reads less than half of the sample. One document that does not decode refuses
    /// no write: the program may be about to replace or delete it. Nor does a corrupt page.
    ///
    /// # Errors
    /// `InvalidArgument` with the key of the first document that does not decode as the type, the path of the
    /// field, and the change to make.
    pub(crate) fn read_sample(&self, source: &dyn Source, entry: &Entry) -> Result<()> {
        let count = source.count(entry.tree, &KeyRange { from: Vec::new(), to: None })?;
        let nth = |index| source.nth(entry.tree, index);
        self.judge_sample(count, nth, |key, stored| (self.decodes)(entry.schema.shapes(), key, stored))
    }

    /// As [`read_sample`](Self::read_sample), of documents of any source.
    pub(super) fn judge_sample(
        &self,
        count: u64,
        mut nth: impl FnMut(u64) -> Result<Option<(Vec<u8>, Vec<u8>)>>,
        decodes: impl Fn(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(last) = count.checked_sub(1) else { return Ok(()) };
        let taken = DOCUMENTS.min(count);
        let inner = (1..taken.saturating_sub(1)).map(|at| at * last / (taken - 1));
        let (mut bytes, mut decoded, mut failed) = (0, 0_u64, 0_u64);
        let mut first_failure = None;
        for index in iter::once(0).chain((last > 0).then_some(last)).chain(inner) {
            let (key, stored) = match nth(index) {
                Ok(Some(document)) => document,
                Ok(None) => continue,
                Err(error) if error.is_corruption() => continue,
                Err(error) => return Err(error),
            };
            match decodes(&key, &stored) {
                Ok(()) => decoded += 1,
                Err(error) if error.code() == Code::Unreadable => {
                    failed += 1;
                    first_failure.get_or_insert(error);
                }
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
            bytes += stored.len();
            if bytes > BYTES {
                break;
            }
        }
        match first_failure {
            Some(error) if failed > decoded => Err(self.unread(&error)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn unread(&self, error: &Error) -> Error {
        let (kind, name) = (self.short_name(), self.name);
        Error::invalid(format!(
            "the collection {name} in the database does not fit {kind}: {}",
            error.message()
        ))
        .with_hint(format!("{}; nothing was written", error.hint()))
    }
}
