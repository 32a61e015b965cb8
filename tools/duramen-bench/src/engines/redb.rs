//! redb: a copy-on-write B+tree in one file; one writer at a time.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::data::Key;
use crate::engine::{Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "redb",
    setting: "Durability::Immediate with one-phase commit, its default and fastest durable one; its cache of 1 GiB; \
              W2b reads inside the one write transaction there can be",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: true,
    open,
};

type Table<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

const NAMES: [&str; 5] = ["0", "1", "2", "3", "4"];

struct Redb(Database);

struct Handle<'a>(&'a Database);

fn table(collection: usize) -> Table<'static> {
    TableDefinition::new(NAMES[collection])
}

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let database = Database::create(path.join("redb"))?;
    let write = database.begin_write()?;
    for collection in 0..shape.collections {
        write.open_table(table(collection))?;
    }
    write.commit()?;
    Ok(Box::new(Redb(database)))
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(&self.0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let write = self.0.begin_write()?;
        let mut open = write.open_table(table(collection))?;
        for row in rows {
            open.insert(row.key, row.value)?;
        }
        drop(open);
        Ok(write.commit()?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let write = self.0.begin_write()?;
        let mut value = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let mut open = write.open_table(table(place.collection))?;
            let found = open.get(place.key.bytes())?.map(|found| raised(found.value(), &mut value));
            if index < 2 && found.is_some() {
                open.insert(place.key.bytes(), value.as_slice())?;
            }
        }
        write.commit()?;
        Ok(0)
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let read = self.0.begin_read()?;
        let open = read.open_table(table(0))?;
        for key in keys {
            if let Some(value) = open.get(key.bytes())? {
                see(value.value());
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let read = self.0.begin_read()?;
        let open = read.open_table(table(collection))?;
        for row in open.range(range.from..)?.take(range.limit) {
            let (key, value) = row?;
            if !range.reaches(key.value()) {
                break;
            }
            see(key.value(), value.value());
        }
        Ok(())
    }
}
