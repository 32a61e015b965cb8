//! SQLite by rusqlite, its own copy compiled in: a log beside the file, or a rollback journal; one writer at
//! a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use crate::data::Key;
use crate::engine::{
    Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, Total, number_of, raised,
};

/// With a write-ahead log.
pub(super) const WAL: Entry = Entry {
    name: "sqlite",
    setting: "journal_mode=WAL, synchronous=FULL: NORMAL syncs only at checkpoints and gives durability up; \
              WITHOUT ROWID; 256 MiB of cache and 4 GiB of memory map a connection; BEGIN IMMEDIATE for writes; \
              a column of its own for the number, which SUM reads",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: true,
    open: |path, shape| open(path, shape, "WAL"),
};

/// With a rollback journal.
pub(super) const JOURNAL: Entry = Entry {
    name: "sqlite-journal",
    setting: "journal_mode=TRUNCATE, synchronous=FULL: of the rollback journals the one that spares the directory's \
              sync; otherwise as sqlite",
    unsafe_because: None,
    scope: Scope::Commits,
    is_tree: true,
    open: |path, shape| open(path, shape, "TRUNCATE"),
};

/// How long a connection waits for the writing one.
const BUSY_WAIT: Duration = Duration::from_secs(60);

struct Sqlite {
    path: PathBuf,
    journal: &'static str,
    /// Keeps the log's file until the end, as a program would.
    _first: std::sync::Mutex<Connection>,
}

struct Handle {
    connection: Connection,
    value: Vec<u8>,
}

fn open(path: &Path, shape: Shape, journal: &'static str) -> Result<Box<dyn Engine>> {
    let path = path.join("sqlite");
    let connection = connect(&path, journal)?;
    for collection in 0..shape.collections {
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS c{collection} (k BLOB PRIMARY KEY, n INTEGER NOT NULL, v BLOB NOT NULL) \
             WITHOUT ROWID"
        ))?;
    }
    Ok(Box::new(Sqlite { path, journal, _first: std::sync::Mutex::new(connection) }))
}

fn connect(path: &Path, journal: &str) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "journal_mode", journal)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -(256 << 10))?;
    connection.pragma_update(None, "mmap_size", 4_i64 << 30)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

impl Engine for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle { connection: connect(&self.path, self.journal)?, value: Vec::new() }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Handle {
    fn try_update(&mut self, places: &[Place; 3]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (index, place) in places.iter().enumerate() {
            let collection = place.collection;
            let mut get = transaction.prepare_cached(&format!("SELECT v FROM c{collection} WHERE k = ?1"))?;
            let value = &mut self.value;
            get.query_row([place.key.bytes()], |row| {
                raised(row.get_ref(0)?.as_blob()?, value);
                Ok(())
            })?;
            if index < 2 {
                let mut set = transaction
                    .prepare_cached(&format!("UPDATE c{collection} SET n = ?2, v = ?3 WHERE k = ?1"))?;
                set.execute(params![place.key.bytes(), number_of(value), &*value])?;
            }
        }
        transaction.commit()
    }
}

impl Session for Handle {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction
            .prepare_cached(&format!("INSERT INTO c{collection} (k, n, v) VALUES (?1, ?2, ?3)"))?;
        for row in rows {
            insert.execute(params![row.key, number_of(row.value), row.value])?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let mut refused = 0;
        loop {
            match self.try_update(places) {
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => refused += 1,
                done => return Ok(done.map(|()| refused)?),
            }
        }
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let transaction = self.connection.transaction()?;
        let mut get = transaction.prepare_cached("SELECT v FROM c0 WHERE k = ?1")?;
        for key in keys {
            let shown = get.query_row([key.bytes()], |row| {
                see(row.get_ref(0)?.as_blob()?);
                Ok(())
            });
            shown.optional()?;
        }
        drop(get);
        Ok(transaction.commit()?)
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let text = format!("SELECT k, v FROM c{collection} WHERE k >= ?1 ORDER BY k LIMIT ?2");
        let mut select = self.connection.prepare_cached(&text)?;
        let limit = i64::try_from(range.limit).unwrap_or(-1);
        let mut rows = select.query(params![range.from, limit])?;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_blob()?;
            if !range.reaches(key) {
                break;
            }
            see(key, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn total(&mut self, from: &[u8], to: &[u8]) -> Result<Total> {
        let text = "SELECT COUNT(*), COALESCE(SUM(n), 0) FROM c0 WHERE k >= ?1 AND k < ?2";
        let mut select = self.connection.prepare_cached(text)?;
        let (count, sum): (i64, i64) = select.query_row([from, to], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Total { count: u64::try_from(count)?, sum: i128::from(sum) })
    }
}
