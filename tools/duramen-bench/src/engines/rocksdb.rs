//! RocksDB from Debian, by its C interface: a log-structured merge tree whose commits share syncs.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, Direction, ErrorKind, IteratorMode,
    OptimisticTransactionDB, OptimisticTransactionOptions, Options, SingleThreaded, WriteBatch,
    WriteBatchWithTransaction, WriteOptions,
};

use crate::data::Key;
use crate::engine::{Engine, Entry, Part, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub const ENTRY: Entry = Entry {
    name: "rocksdb",
    setting: "WriteOptions sync = true; pipelined writes, which were faster with many threads; 256 MiB of block cache; \
              two background jobs; W2b by OptimisticTransactionDB, which has no pipelined writes",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: false,
    open,
};

const CACHE_BYTES: usize = 256 << 20;
const NAMES: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];

fn options(shape: Shape) -> Result<Options> {
    let mut table = BlockBasedOptions::default();
    let mut options = Options::default();
    let cache_bytes = match shape.memory_bytes {
        None => CACHE_BYTES,
        Some(bytes) => {
            // Half is cache, with the indexes of files. Of the rest, each family has one table in memory and
            // one that is written.
            table.set_cache_index_and_filter_blocks(true);
            options.set_write_buffer_size(bytes / 4 / shape.collections);
            bytes / 2
        }
    };
    table.set_block_cache(&Cache::new_lru_cache(cache_bytes)?);
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&table);
    options.set_max_background_jobs(2);
    Ok(options)
}

fn durable() -> WriteOptions {
    let mut write = WriteOptions::default();
    write.set_sync(true);
    write
}

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let mut options = options(shape)?;
    let names = &NAMES[..shape.collections];
    if shape == Shape::FIVE {
        return Ok(Box::new(Optimistic(OptimisticTransactionDB::open_cf(&options, path, names)?)));
    }
    options.set_enable_pipelined_write(true);
    let families = names.iter().map(|name| ColumnFamilyDescriptor::new(*name, options.clone()));
    Ok(Box::new(Plain(DB::open_cf_descriptors(&options, path, families)?)))
}

/// Collections without transactions.
struct Plain(DB);

struct PlainHandle<'a>(&'a DB, WriteOptions);

impl PlainHandle<'_> {
    fn family(&self, collection: usize) -> Result<&ColumnFamily> {
        Ok(self.0.cf_handle(NAMES[collection]).ok_or("the column family is gone")?)
    }
}

impl Engine for Plain {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(PlainHandle(&self.0, durable())))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for PlainHandle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        self.put_parts(&[Part { collection, rows }])
    }

    fn put_parts(&mut self, parts: &[Part<'_>]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for part in parts {
            let family = self.family(part.collection)?;
            part.rows.iter().for_each(|row| batch.put_cf(family, row.key, row.value));
        }
        Ok(self.0.write_opt(batch, &self.1)?)
    }

    fn update(&mut self, _places: &[Place; 3]) -> Result<u64> {
        Err("opened without transactions".into())
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let snapshot = self.0.snapshot();
        let family = self.family(0)?;
        for key in keys {
            if let Some(value) = snapshot.get_pinned_cf(family, key.bytes())? {
                see(&value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let snapshot = self.0.snapshot();
        let mut rows = snapshot.raw_iterator_cf(self.family(collection)?);
        rows.seek(range.from);
        let mut seen = 0;
        while let Some((key, value)) = rows.item().filter(|(key, _)| range.reaches(key)) {
            if seen == range.limit {
                break;
            }
            see(key, value);
            seen += 1;
            rows.next();
        }
        Ok(rows.status()?)
    }
}

/// The five collections of W2b.
struct Optimistic(OptimisticTransactionDB<SingleThreaded>);

struct OptimisticHandle<'a>(&'a OptimisticTransactionDB<SingleThreaded>, WriteOptions);

impl Engine for Optimistic {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(OptimisticHandle(&self.0, durable())))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl OptimisticHandle<'_> {
    fn family(&self, collection: usize) -> Result<&ColumnFamily> {
        Ok(self.0.cf_handle(NAMES[collection]).ok_or("the column family is gone")?)
    }
}

impl Session for OptimisticHandle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::<true>::default();
        let family = self.family(collection)?;
        rows.iter().for_each(|row| batch.put_cf(family, row.key, row.value));
        Ok(self.0.write_opt(batch, &self.1)?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let mut begin = OptimisticTransactionOptions::default();
        begin.set_snapshot(true);
        let mut value = Vec::new();
        let mut conflicts = 0;
        loop {
            let write = self.0.transaction_opt(&self.1, &begin);
            for (index, place) in places.iter().enumerate() {
                let family = self.family(place.collection)?;
                let found = write.get_pinned_for_update_cf(family, place.key.bytes(), true)?;
                if index < 2 {
                    raised(&found.ok_or("the record is gone")?, &mut value);
                    write.put_cf(family, place.key.bytes(), &value)?;
                }
            }
            match write.commit() {
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                    conflicts += 1;
                }
                done => return Ok(done.map(|()| conflicts)?),
            }
        }
    }

    fn gets(&mut self, _keys: &[Key], _see: &mut dyn FnMut(&[u8])) -> Result<()> {
        Err("opened for updates".into())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let mode = IteratorMode::From(range.from, Direction::Forward);
        for row in self.0.iterator_cf(self.family(collection)?, mode).take(range.limit) {
            let (key, value) = row?;
            if !range.reaches(&key) {
                break;
            }
            see(&key, &value);
        }
        Ok(())
    }
}
