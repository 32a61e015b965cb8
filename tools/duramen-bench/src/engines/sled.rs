//! sled: measured, but left out of every verdict, because its flush is not durable.

use std::path::Path;

use sled::transaction::{ConflictableTransactionError, TransactionError, Transactional};
use sled::{Db, Tree};

use crate::data::Key;
use crate::engine::{Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub const ENTRY: Entry = Entry {
    name: "sled",
    setting: "a batch, then flush(); W2b in a transaction that flushes; 1 GiB of cache, its default",
    unsafe_because: Some("flush() calls sync_file_range, which asks no device to empty its cache"),
    scope: Scope::All,
    is_tree: true,
    open,
};

struct Sled {
    database: Db,
    collections: Vec<Tree>,
}

struct Handle<'a>(&'a Sled);

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let database = sled::open(path.join("sled"))?;
    let open = |collection: usize| database.open_tree(collection.to_string());
    let collections = (0..shape.collections).map(open).collect::<sled::Result<_>>()?;
    Ok(Box::new(Sled { database, collections }))
}

impl Engine for Sled {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.flush()?;
        Ok(())
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let mut batch = sled::Batch::default();
        rows.iter().for_each(|row| batch.insert(row.key, row.value));
        self.0.collections[collection].apply_batch(batch)?;
        self.0.database.flush()?;
        Ok(())
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let runs = std::cell::Cell::new(0_u64);
        let body = |trees: &Vec<sled::transaction::TransactionalTree>| {
            runs.set(runs.get() + 1);
            let mut value = Vec::new();
            for (index, place) in places.iter().enumerate() {
                let tree = &trees[place.collection];
                let found = tree.get(place.key.bytes())?.unwrap_or_default();
                if index < 2 {
                    raised(&found, &mut value);
                    tree.insert(place.key.bytes(), value.as_slice())?;
                }
            }
            trees[0].flush();
            Ok::<(), ConflictableTransactionError<()>>(())
        };
        match self.0.collections[..].transaction(body) {
            Ok(()) => Ok(runs.get() - 1),
            Err(TransactionError::Storage(error)) => Err(error.into()),
            Err(TransactionError::Abort(())) => Err("nobody aborts".into()),
        }
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        // It has no snapshots: each get sees the newest state.
        for key in keys {
            if let Some(value) = self.0.collections[0].get(key.bytes())? {
                see(&value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        for row in self.0.collections[collection].range(range.from..).take(range.limit) {
            let (key, value) = row?;
            if !range.reaches(&key) {
                break;
            }
            see(&key, &value);
        }
        Ok(())
    }
}
