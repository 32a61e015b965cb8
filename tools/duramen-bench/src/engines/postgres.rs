//! PostgreSQL: a server per measurement, in a private directory, over a Unix socket.
//!
//! `scripts/bench-postgres` starts and stops it, not as root. Its memory and its writes are not those of this
//! process, so it runs only W1, W2 and W2b.

use std::path::{Path, PathBuf};

use postgres::error::SqlState;
use postgres::{Client, Config, IsolationLevel, NoTls};

use crate::data::Key;
use crate::engine::{
    Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, number_of, raised,
};
use crate::postgres_script;

/// The entry in the list of engines.
pub const ENTRY: Entry = Entry {
    name: "postgres",
    setting: "fsync and synchronous_commit on, wal_sync_method fdatasync, full_page_writes on, as by default; 256 MiB of \
              shared buffers, max_wal_size 4 GiB; prepared statements, a connection a thread; W2b at SERIALIZABLE",
    unsafe_because: None,
    scope: Scope::Updates,
    is_tree: true,
    open,
};

struct Postgres {
    dir: PathBuf,
}

struct Handle {
    client: Client,
    insert: Vec<postgres::Statement>,
    select: Vec<postgres::Statement>,
    update: Vec<postgres::Statement>,
}

/// Starts or stops the server with its files below a directory.
///
/// # Errors
/// That the script failed.
pub fn script(word: &str, dir: &Path) -> Result<()> {
    postgres_script::run(&[word.as_ref(), dir.as_os_str()])
}

/// A connection to the server of a directory.
///
/// # Errors
/// Errors of the server.
pub fn connect(dir: &Path) -> Result<Client> {
    let mut config = Config::new();
    config.host_path(dir.join("socket")).user("postgres").dbname("postgres");
    Ok(config.connect(NoTls)?)
}

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    script("start", path)?;
    let engine = Postgres { dir: path.to_owned() };
    let mut client = connect(path)?;
    for collection in 0..shape.collections {
        client.batch_execute(&format!(
            "CREATE TABLE IF NOT EXISTS c{collection} (k bytea PRIMARY KEY, n bigint NOT NULL, v bytea NOT NULL)"
        ))?;
    }
    for collection in shape.collections..5 {
        client.batch_execute(&format!("DROP TABLE IF EXISTS c{collection}"))?;
    }
    Ok(Box::new(engine))
}

impl Engine for Postgres {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut client = connect(&self.dir)?;
        let tables: i64 = client
            .query_one("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^c[0-4]$'", &[])?
            .get(0);
        let mut prepare = |text: &str| {
            (0..tables)
                .map(|c| client.prepare(&text.replace("{c}", &c.to_string())))
                .collect::<std::result::Result<Vec<_>, _>>()
        };
        let insert = prepare("INSERT INTO c{c} (k, n, v) VALUES ($1, $2, $3)")?;
        let select = prepare("SELECT v FROM c{c} WHERE k = $1")?;
        let update = prepare("UPDATE c{c} SET n = $2, v = $3 WHERE k = $1")?;
        Ok(Box::new(Handle { client, insert, select, update }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        script("stop", &self.dir)
    }
}

impl Handle {
    fn try_update(&mut self, places: &[Place; 3]) -> std::result::Result<(), postgres::Error> {
        let level = IsolationLevel::Serializable;
        let mut write = self.client.build_transaction().isolation_level(level).start()?;
        let mut value = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let found = write.query_one(&self.select[place.collection], &[&place.key.bytes()])?;
            if index < 2 {
                raised(found.get(0), &mut value);
                let number = number_of(&value);
                let update = &self.update[place.collection];
                write.execute(update, &[&place.key.bytes(), &number, &value])?;
            }
        }
        write.commit()
    }
}

impl Session for Handle {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let insert = &self.insert[collection];
        if let [row] = rows {
            self.client.execute(insert, &[&row.key, &number_of(row.value), &row.value])?;
            return Ok(());
        }
        let mut write = self.client.transaction()?;
        for row in rows {
            write.execute(insert, &[&row.key, &number_of(row.value), &row.value])?;
        }
        Ok(write.commit()?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let retried = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        let mut conflicts = 0;
        loop {
            match self.try_update(places) {
                Err(error) if error.code().is_some_and(|code| retried.contains(code)) => conflicts += 1,
                done => return Ok(done.map(|()| conflicts)?),
            }
        }
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        for key in keys {
            if let Some(row) = self.client.query_opt(&self.select[0], &[&key.bytes()])? {
                see(row.get(0));
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let text = format!("SELECT k, v FROM c{collection} WHERE k >= $1 ORDER BY k LIMIT $2");
        let limit = i64::try_from(range.limit).ok();
        for row in self.client.query(&text, &[&range.from, &limit])? {
            let key: &[u8] = row.get(0);
            if !range.reaches(key) {
                break;
            }
            see(key, row.get(1));
        }
        Ok(())
    }
}
