//! fjall: a log-structured merge tree; W2b by its optimistic transactions, all else by batches.

use std::path::Path;

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode,
    Readable,
};

use crate::data::Key;
use crate::engine::{Engine, Entry, Part, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "fjall",
    setting: "batches with PersistMode::SyncData, which calls fdatasync and suffices on Linux; SyncAll calls fsync and \
              is slower; 256 MiB of cache; LZ4 as by default; W2b by OptimisticTxDatabase",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: false,
    open,
};

const CACHE_BYTES: u64 = 256 << 20;
const DURABLE: Option<PersistMode> = Some(PersistMode::SyncData);

struct Fjall {
    database: Database,
    collections: Vec<Keyspace>,
    optimistic: Option<(OptimisticTxDatabase, Vec<OptimisticTxKeyspace>)>,
}

struct Handle<'a>(&'a Fjall);

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let names = (0..shape.collections).map(|collection| format!("c{collection}"));
    if let Some(bytes) = shape.memory_bytes {
        // Half is cache. Of the rest, each keyspace has one table in memory and one that is written.
        let bytes = bytes as u64;
        let table_bytes = bytes / 4 / shape.collections as u64;
        let database = Database::builder(path).cache_size(bytes / 2).open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(table_bytes);
        let open = |name: String| database.keyspace(&name, options);
        let collections = names.map(open).collect::<fjall::Result<_>>()?;
        return Ok(Box::new(Fjall { database, collections, optimistic: None }));
    }
    if shape.collections == 1 {
        let database = Database::builder(path).cache_size(CACHE_BYTES).open()?;
        let open = |name: String| database.keyspace(&name, KeyspaceCreateOptions::default);
        let collections = names.map(open).collect::<fjall::Result<_>>()?;
        return Ok(Box::new(Fjall { database, collections, optimistic: None }));
    }
    let optimistic = OptimisticTxDatabase::builder(path).cache_size(CACHE_BYTES).open()?;
    let open = |name: String| optimistic.keyspace(&name, KeyspaceCreateOptions::default);
    let keyspaces = names.map(open).collect::<fjall::Result<Vec<_>>>()?;
    let database = optimistic.inner().clone();
    let collections = keyspaces.iter().map(|keyspace| keyspace.inner().clone()).collect();
    Ok(Box::new(Fjall { database, collections, optimistic: Some((optimistic, keyspaces)) }))
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        self.put_parts(&[Part { collection, rows }])
    }

    fn put_parts(&mut self, parts: &[Part<'_>]) -> Result<()> {
        let mut batch = self.0.database.batch().durability(DURABLE);
        for part in parts {
            for row in part.rows {
                batch.insert(&self.0.collections[part.collection], row.key, row.value);
            }
        }
        Ok(batch.commit()?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let (database, keyspaces) = self.0.optimistic.as_ref().ok_or("opened for batches")?;
        let mut value = Vec::new();
        let mut conflicts = 0;
        loop {
            let mut write = database.write_tx()?.durability(DURABLE);
            for (index, place) in places.iter().enumerate() {
                let keyspace = &keyspaces[place.collection];
                let found = write.get(keyspace, place.key.bytes())?.ok_or("the record is gone")?;
                if index < 2 {
                    raised(&found, &mut value);
                    write.insert(keyspace, place.key.bytes(), value.as_slice());
                }
            }
            if write.commit()?.is_ok() {
                return Ok(conflicts);
            }
            conflicts += 1;
        }
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let snapshot = self.0.database.snapshot();
        for key in keys {
            if let Some(value) = snapshot.get(&self.0.collections[0], key.bytes())? {
                see(&value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let snapshot = self.0.database.snapshot();
        let rows = snapshot.range::<&[u8], _>(&self.0.collections[collection], range.from..);
        for row in rows.take(range.limit) {
            let (key, value) = row.into_inner()?;
            if !range.reaches(&key) {
                break;
            }
            see(&key, &value);
        }
        Ok(())
    }
}
