//! LMDB by heed: a copy-on-write B+tree in a memory map; one writer at a time.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, WithoutTls};

use crate::data::Key;
use crate::engine::{Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "lmdb",
    setting: "no flags: MDB_NOSYNC, MDB_NOMETASYNC and MDB_MAPASYNC give durability up; a map of 64 GiB; no thread-local \
              readers; W2b reads inside the one write transaction there can be",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: true,
    open,
};

/// Address space, not memory, so it costs nothing.
const MAP_BYTES: usize = 64 << 30;

struct Lmdb {
    env: Env<WithoutTls>,
    collections: Vec<Database<'static, Bytes, Bytes>>,
}

struct Handle<'a>(&'a Lmdb);

#[allow(unsafe_code, reason = "heed calls the opening of a memory map unsafe")]
fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_dbs(8).max_readers(256);
    // SAFETY: the directory belongs to this run alone, so no other program changes the mapped file.
    let env = unsafe { options.open(path)? };
    let mut collections = Vec::new();
    for collection in 0..shape.collections {
        let created = env.create_databases_and_commit(env.write_txn()?, |opener, write| {
            let name = collection.to_string();
            opener.create_database(write, Some(&name)).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        collections.push(created.commit().ok_or("nothing was aborted")?);
    }
    Ok(Box::new(Lmdb { env, collections }))
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let mut write = self.0.env.write_txn()?;
        for row in rows {
            self.0.collections[collection].put(&mut write, row.key, row.value)?;
        }
        Ok(write.commit()?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let mut write = self.0.env.write_txn()?;
        let mut value = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let collection = self.0.collections[place.collection];
            if let Some(found) = collection.get(&write, place.key.bytes())? {
                raised(found, &mut value);
            }
            if index < 2 {
                collection.put(&mut write, place.key.bytes(), &value)?;
            }
        }
        write.commit()?;
        Ok(0)
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let read = self.0.env.read_txn()?;
        for key in keys {
            if let Some(value) = self.0.collections[0].get(&read, key.bytes())? {
                see(value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let read = self.0.env.read_txn()?;
        // A key of LMDB has at least one byte.
        let from = if range.from.is_empty() { &[0] } else { range.from };
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        for row in self.0.collections[collection].range(&read, &bounds)?.take(range.limit) {
            let (key, value) = row?;
            if !range.reaches(key) {
                break;
            }
            see(key, value);
        }
        Ok(())
    }
}
