//! What `view` and `reference` do alike: they change definitions that the catalogue of a collection holds.

use duramen::{Code, Document, Durability, Schema};

use crate::args::{DatabaseArgs, Target};
use crate::backend::{Reading, Writing};
use crate::database::{self, Opened, candidates};
use crate::failure::{FAILED, Failure, Result};
use crate::output::{Output, printable};

/// A database that is open to change the definitions of a collection.
pub(crate) struct Change {
    pub(crate) db: Writing,
    pub(crate) schema: Schema,
    pub(crate) level: Durability,
}

impl Change {
    pub(crate) fn open(target: &Target, level: Durability) -> Result<Change> {
        let db = Writing::open(&target.database, level)?;
        let schema = db.schema(&target.collection)?;
        Ok(Change { db, schema, level })
    }

    /// As [`Change::open`], for what works only on a database that this command has open.
    pub(crate) fn open_local(target: &Target, level: Durability) -> Result<Change> {
        let db = Writing::Local(database::open_to_write(&target.database, level)?);
        let schema = db.schema(&target.collection)?;
        Ok(Change { db, schema, level })
    }

    /// The database of [`Change::open_local`].
    pub(crate) fn opened(&self) -> &Opened {
        self.db.local().expect("this command has it open")
    }

    /// Reports a change: with JSON `fields`, else the sentence.
    pub(crate) fn done(
        &self,
        kind: &str,
        sentence: &str,
        mut fields: Document,
        seq: u64,
        out: Output,
    ) -> Result<()> {
        let level = self.level.name();
        if out.is_json() {
            fields.set("seq", seq);
            fields.set("durability", level);
            return out.object(kind, fields);
        }
        out.line(&printable(&format!("{sentence}, seq {seq}, durability {level}")))
    }
}

/// A database that is open to list the definitions of one or all collections.
pub(crate) struct Listing {
    pub(crate) db: Reading,
    pub(crate) schemas: Vec<Schema>,
}

impl Listing {
    pub(crate) fn open(args: &DatabaseArgs, collection: Option<&str>) -> Result<Listing> {
        let db = Reading::open(args)?;
        let schemas = db.schemas(collection)?;
        Ok(Listing { db, schemas })
    }
}

/// The error for a name that no definition of the collection has: `thing` is a view or a reference. `adding`
/// is the rest of the command that adds one.
pub(crate) fn missing(
    schema: &Schema,
    (thing, said): (&str, &str),
    name: &str,
    names: &[String],
    (code, adding): (Code, &str),
) -> Failure {
    let collection = schema.name();
    let hint = match names {
        [] => format!("it has none: `duramen {thing} add DB -c {collection} {adding}` adds one"),
        names => candidates(&format!("{thing}s"), name, names),
    };
    Failure::said(FAILED, code, format!("{collection} has no {said} {name}"), hint)
}

/// How far a definition is, and why it goes no further.
pub(crate) fn phase_and_failure(phase: String, failed: Option<&String>) -> String {
    match failed {
        Some(why) => format!("{phase}: {why}"),
        None => phase,
    }
}
