//! The database of a command: opened by the command, or served by another process.
//!
//! A command opens the database in its argument. If another process has it open, the command asks that one,
//! by the files that its server has put into the directory. With `--at` it asks the server there. Commands
//! that only work on files refuse both.

pub(crate) mod figures;
mod queries;
mod rows;
mod schemas;
mod served;
mod users;

use std::path::Path;

use duramen::tuple::Element;
use duramen::view::ViewReduction;
use duramen::{
    Code, CopyProgress, Direction, Document, Durability, Followed, LentDocument, LocalReads, Observer, Rows,
    Schema, Snapshot, Span, Value, ViewSpec,
};
use duramen_client::{Address, Client, Freshness, Remote};
use duramen_proto::discovery::{self, Serving};
use rustix::io::Errno;

use crate::args::DatabaseArgs;
use crate::database::{self, Opened};
use crate::failure::{FAILED, Failure, Result};
use crate::read::exact;
use crate::view;
pub(crate) use queries::{Found, Planned};
pub(crate) use rows::{RowsToStore, StoredRowBatch};
pub(crate) use served::{Served, unexpected};
pub(crate) use users::KnownUser;

/// A database to read: one state of it, or a server.
pub(crate) enum Reading {
    /// The lock is held as long as `db` lives.
    Local {
        db: Opened,
        snapshot: Snapshot,
    },
    Served(Served),
}

/// A database to write.
pub(crate) enum Writing {
    Local(Opened),
    Served(Served),
}

/// Count and sums of a range.
pub(crate) struct Reduced {
    pub(crate) count: u64,
    pub(crate) sums: Vec<(String, duramen::sums::FieldSum)>,
}

/// A group of rows of a view.
pub(crate) struct Group {
    pub(crate) key: Vec<Element>,
    pub(crate) count: u64,
    pub(crate) parts: Vec<GroupPart>,
}

/// One reduction of a group.
pub(crate) struct GroupPart {
    pub(crate) reduce: String,
    pub(crate) value_index: usize,
    pub(crate) field: Option<String>,
    pub(crate) seen: u64,
    pub(crate) value: Value,
}

/// What a put has done.
pub(crate) struct Stored {
    pub(crate) before: Option<Document>,
    pub(crate) seq: u64,
}

/// What a delete has done.
pub(crate) struct Removed {
    pub(crate) rows: u64,
    pub(crate) followed: Followed,
    pub(crate) seq: u64,
}

/// Stored documents, one at a time.
pub(crate) enum StoredRows {
    Local(Rows),
    Served(served::Scanned),
}

/// A document with its key, valid until the next one is read.
pub(crate) struct LentRow<'r> {
    pub(crate) key: &'r [u8],
    pub(crate) document: &'r Document,
    /// As [`LentDocument::has_same_fields`].
    pub(crate) has_same_fields: bool,
}

impl StoredRows {
    /// The next document, valid until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        Ok(self.next_with_key()?.map(|(_, stored)| stored))
    }

    /// The next document with its key, which a server does not tell: it is empty then.
    pub(crate) fn next_with_key(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match self {
            StoredRows::Local(rows) => Ok(rows.next()?),
            StoredRows::Served(scanned) => Ok(scanned.next()?.map(|stored| (&[][..], stored))),
        }
    }

    /// The latest document that a server sent, as it is stored; `None` if it is none of a server's.
    pub(crate) fn latest_of_server(&self) -> Option<&[u8]> {
        match self {
            StoredRows::Local(_) => None,
            StoredRows::Served(scanned) => Some(scanned.latest()),
        }
    }

    /// As [`StoredRows::next_with_key`], not as it is stored.
    pub(crate) fn next_document(&mut self) -> Result<Option<LentRow<'_>>> {
        match self {
            StoredRows::Local(rows) => {
                let Some(LentDocument { key, document, has_same_fields, .. }) = rows.next_document()? else {
                    return Ok(None);
                };
                Ok(Some(LentRow { key, document, has_same_fields }))
            }
            StoredRows::Served(scanned) => {
                let next = scanned.next_document()?;
                Ok(next.map(|(document, has_same_fields)| LentRow { key: &[], document, has_same_fields }))
            }
        }
    }
}

impl Reading {
    /// Opens a database, or connects to the process that serves it.
    pub(crate) fn open(args: &DatabaseArgs) -> Result<Reading> {
        if let Some(served) = named(args)? {
            return Ok(Reading::Served(served));
        }
        match database::open_to_read(args) {
            Ok(db) => {
                let snapshot = db.snapshot()?;
                Ok(Reading::Local { db, snapshot })
            }
            Err(failure) => holder(args, failure).map(Reading::Served),
        }
    }

    /// The command reads each page once from now on: it gains nothing by keeping them.
    pub(crate) fn keep_few_pages(&self) -> Result<()> {
        match self {
            Reading::Local { db, .. } => Ok(db.keep_few_pages()?),
            Reading::Served(_) => Ok(()),
        }
    }

    /// Copies the state into a new directory.
    pub(crate) fn backup(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(&CopyProgress) -> duramen::Result<()>,
    ) -> duramen::Result<CopyProgress> {
        match self {
            Reading::Local { db, .. } => db.backup_with(path, progress),
            Reading::Served(served) => {
                Remote::from(Client::clone(&served.client)).backup_with(path, progress)
            }
        }
    }

    /// The state, of a database that this command has open.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Reading::Local { snapshot, .. } => Some(snapshot),
            Reading::Served(_) => None,
        }
    }

    /// A collection.
    pub(crate) fn schema(&self, name: &str) -> Result<Schema> {
        match self {
            Reading::Local { snapshot, .. } => database::schema(snapshot, name),
            Reading::Served(served) => served.schema(name),
        }
    }

    /// A view of a collection.
    pub(crate) fn view(&self, schema: &Schema, name: &str) -> Result<ViewSpec> {
        view::check_name(schema, name)?;
        match self {
            Reading::Local { snapshot, .. } => Ok(snapshot.documents(schema.name()).view(name).spec()?),
            Reading::Served(_) => {
                let found = schema.views().iter().find(|view| view.name() == name);
                Ok(found.expect("its name was looked up").clone())
            }
        }
    }

    /// All collections, and how many documents each has.
    pub(crate) fn collections(&self) -> Result<Vec<(Schema, u64)>> {
        match self {
            Reading::Local { snapshot, .. } => {
                let schemas = snapshot.collections()?.into_iter();
                let counted = |schema: Schema| {
                    let count = snapshot.documents(schema.name()).count(Span::all())?;
                    Ok((schema, count))
                };
                schemas.map(counted).collect()
            }
            Reading::Served(served) => served.collections(),
        }
    }

    /// The document under a key.
    pub(crate) fn get(&self, collection: &str, key: &[Element]) -> Result<Option<Document>> {
        match self {
            Reading::Local { snapshot, .. } => Ok(snapshot.documents(collection).get(key)?),
            Reading::Served(served) => served.get(collection, key),
        }
    }

    /// The documents of a range, at most `limit`.
    pub(crate) fn rows(
        &self,
        collection: &str,
        span: Span,
        direction: Direction,
        limit: u64,
    ) -> Result<StoredRows> {
        match self {
            Reading::Local { snapshot, .. } => {
                Ok(StoredRows::Local(snapshot.documents(collection).rows(span, direction)?))
            }
            Reading::Served(served) => {
                Ok(StoredRows::Served(served.rows(collection, span, direction, limit)?))
            }
        }
    }

    /// How many documents a range has, or how many rows one of a view.
    pub(crate) fn count(&self, collection: &str, view: Option<&str>, span: Span) -> Result<u64> {
        match (self, view) {
            (Reading::Local { snapshot, .. }, None) => Ok(snapshot.documents(collection).count(span)?),
            (Reading::Local { snapshot, .. }, Some(view)) => {
                Ok(snapshot.documents(collection).view(view).range(span).count()?)
            }
            (Reading::Served(served), view) => served.count(collection, view, span),
        }
    }

    /// Counts of one state, in their order: see [`Reading::count`].
    pub(crate) fn counts(&self, collection: &str, of: Vec<(Option<&str>, Span)>) -> Result<Vec<u64>> {
        match self {
            Reading::Local { .. } => {
                of.into_iter().map(|(view, span)| self.count(collection, view, span)).collect()
            }
            Reading::Served(served) => served.counts(collection, of),
        }
    }

    /// Count and sums of a range.
    pub(crate) fn reduce(&self, collection: &str, span: Span) -> Result<Reduced> {
        match self {
            Reading::Local { snapshot, .. } => {
                let reduction = snapshot.documents(collection).reduce(span)?;
                let sums = reduction.sums().map(|(field, sum)| (field.to_owned(), sum));
                Ok(Reduced { count: reduction.count(), sums: sums.collect() })
            }
            Reading::Served(served) => served.reduce(collection, span),
        }
    }

    /// The reductions of rows of a view: of groups with the same leading elements, or of all rows.
    pub(crate) fn groups(
        &self,
        collection: &str,
        view: &str,
        span: Span,
        elements: Option<usize>,
    ) -> Result<Vec<Group>> {
        match self {
            Reading::Local { snapshot, .. } => {
                let documents = snapshot.documents(collection);
                let rows = documents.view(view).range(span);
                let groups = match elements {
                    Some(elements) => rows.group_by(elements)?,
                    None => vec![(Vec::new(), rows.reduce()?)],
                };
                Ok(groups.into_iter().map(|(key, reduction)| Group::of(key, reduction)).collect())
            }
            Reading::Served(served) => served.groups(collection, view, span, elements),
        }
    }
}

impl Writing {
    /// Opens a database to write, or connects to the process that serves it.
    pub(crate) fn open(args: &DatabaseArgs, level: Durability) -> Result<Writing> {
        Writing::opened(args, level, database::open_to_write)
    }

    /// As [`Writing::open`]; a database that does not exist is created.
    pub(crate) fn open_or_create(args: &DatabaseArgs, level: Durability) -> Result<Writing> {
        Writing::opened(args, level, database::open_or_create)
    }

    fn opened(
        args: &DatabaseArgs,
        level: Durability,
        open: impl FnOnce(&DatabaseArgs, Durability) -> Result<Opened>,
    ) -> Result<Writing> {
        let served = match named(args)? {
            Some(served) => served,
            None => match open(args, level) {
                Ok(db) => return Ok(Writing::Local(db)),
                Err(failure) => holder(args, failure)?,
            },
        };
        served::check_level(level)?;
        // What a command writes depends on what it reads before.
        served.client.set_freshness(Freshness::Newest);
        Ok(Writing::Served(served))
    }

    /// A collection.
    pub(crate) fn schema(&self, name: &str) -> Result<Schema> {
        match self {
            Writing::Local(db) => database::schema(&db.snapshot()?, name),
            Writing::Served(served) => served.schema(name),
        }
    }

    /// The last document in the order of keys.
    pub(crate) fn last(&self, collection: &str) -> Result<Option<Document>> {
        let (span, direction) = (Span::all(), Direction::Reverse);
        let mut rows = match self {
            Writing::Local(db) => {
                StoredRows::Local(db.snapshot()?.documents(collection).rows(span, direction)?)
            }
            Writing::Served(served) => StoredRows::Served(served.rows(collection, span, direction, 1)?),
        };
        Ok(rows.next()?.map(Document::from_bytes).transpose()?)
    }

    /// How many documents a range has.
    pub(crate) fn count(&self, collection: &str, span: Span) -> Result<u64> {
        match self {
            Writing::Local(db) => Ok(db.snapshot()?.documents(collection).count(span)?),
            Writing::Served(served) => served.count(collection, None, span),
        }
    }

    /// Stores a document, and returns the one that it replaces. `key` is its key, if it has one.
    pub(crate) fn put(
        &self,
        collection: &str,
        key: Option<&[Element]>,
        document: &Document,
        level: Durability,
    ) -> Result<Stored> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.put(collection, document, level),
        };
        let (before, receipt) = db.transact_with_receipt(|tx| {
            let documents = tx.documents(collection);
            let before = key.map(|key| documents.get(key)).transpose()?.flatten();
            documents.put(document.clone()).map(|()| before)
        })?;
        Ok(Stored { before, seq: receipt.seq().0 })
    }

    /// Deletes the document under a key.
    pub(crate) fn delete(&self, collection: &str, key: &[Element], level: Durability) -> Result<Removed> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.delete(collection, key, level),
        };
        let ((found, followed), receipt) = db.transact_with_receipt(|tx| {
            let found = tx.documents(collection).delete(key)?;
            Ok((found, tx.followed()))
        })?;
        Ok(Removed { rows: u64::from(found), followed, seq: receipt.seq().0 })
    }

    /// Deletes the first documents of a range.
    pub(crate) fn delete_first(
        &self,
        collection: &str,
        span: &Span,
        rows_max: u64,
        level: Durability,
    ) -> Result<Removed> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => {
                return served.delete_first(collection, span.clone(), rows_max, level);
            }
        };
        let ((rows, followed), receipt) = db.transact_with_receipt(|tx| {
            let rows = tx.documents(collection).delete_first(span.clone(), rows_max)?;
            Ok((rows, tx.followed()))
        })?;
        Ok(Removed { rows, followed, seq: receipt.seq().0 })
    }

    /// The database, if this command has it open.
    pub(crate) fn local(&self) -> Option<&Opened> {
        match self {
            Writing::Local(db) => Some(db),
            Writing::Served(_) => None,
        }
    }

    /// Closes a database that this command has opened.
    pub(crate) fn close(&self) -> Result<()> {
        match self {
            Writing::Local(db) => Ok(db.close()?),
            Writing::Served(_) => Ok(()),
        }
    }
}

impl Group {
    fn of(key: Vec<Element>, reduction: ViewReduction) -> Group {
        let part = |part: duramen::view::ReducedPart| GroupPart {
            reduce: part.reduce.name().to_owned(),
            value_index: part.reduce.value(),
            field: part.field,
            seen: part.seen,
            value: part.value,
        };
        Group { key, count: reduction.count, parts: reduction.parts.into_iter().map(part).collect() }
    }
}

impl GroupPart {
    /// The value, as JSON has it.
    pub(crate) fn exact(&self) -> Value {
        match &self.value {
            Value::Int(sum) => exact(*sum),
            other => other.clone(),
        }
    }
}

/// The server that `--at` names.
fn named(args: &DatabaseArgs) -> Result<Option<Served>> {
    let Some(address) = &args.at else { return Ok(None) };
    if args.wal.is_some() {
        return Err(Failure::usage(
            "--wal is of a database in a directory, and --at of one that is served",
            "leave one of them out",
        ));
    }
    let client = Client::connect(address)?;
    if let Address::Directory(path) = address {
        check_identity(path, &client)?;
    }
    client.set_freshness(args.freshness);
    Ok(Some(Served::new(client)))
}

/// The server of the process that has the database open, if that is why it could not be opened.
fn holder(args: &DatabaseArgs, failure: Failure) -> Result<Served> {
    if failure.code() != Some(Code::DatabaseLocked) {
        return Err(failure);
    }
    let client = match Client::connect(&Address::Directory(args.db.clone())) {
        Ok(client) => client,
        Err(error) if error.code() == Code::Unreachable && !is_served(&args.db) => {
            return Err(failure.when_locked(
                "a program lets commands in while it has the database open by `let _server = duramen_server::local(&db)?;`",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    check_identity(&args.db, &client)?;
    client.set_freshness(args.freshness);
    Ok(Served::new(client))
}

/// Whether a process that runs says that it serves the database.
fn is_served(path: &Path) -> bool {
    let serving = std::fs::read_to_string(path.join(discovery::FILE)).ok();
    let process = serving
        .and_then(|text| Serving::parse(&text))
        .and_then(|serving| rustix::process::Pid::from_raw(serving.pid.cast_signed()));
    // A process of another user may not be signalled, and runs.
    process.is_some_and(|process| rustix::process::test_kill_process(process) != Err(Errno::SRCH))
}

/// Refuses a server of another database: its files may have been copied here.
fn check_identity(path: &Path, client: &Client) -> Result<()> {
    if client.hello().files_id.as_ref() == Observer::identify(path)?.0.to_be_bytes() {
        return Ok(());
    }
    Err(Failure::said(
        FAILED,
        Code::Unreachable,
        format!("the server that the files in {} name serves another database", path.display()),
        "start a server of this one, or remove serve.json and serve.sock there",
    ))
}
