//! canopydb: a B+tree in memory and on disk, with a log.

use std::path::Path;

use canopydb::{Database, DbOptions, EnvOptions, Error};

use crate::data::Key;
use crate::engine::{Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "canopydb",
    setting: "log on, commit_with(sync = true): Database::sync() can return while another thread's sync is pending; \
              exclusive write transactions for W1 to W3, concurrent ones for W2b, which are optimistic, faster, and isolate snapshots only; \
              its cache of 1 GiB; no checksums of pages, as by default",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: true,
    open,
};

const NAMES: [&[u8]; 5] = [b"0", b"1", b"2", b"3", b"4"];

struct Canopy(Database);

struct Handle<'a>(&'a Database);

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let mut options = DbOptions::default();
    options.default_commit_sync = true;
    let database = Database::with_options(EnvOptions::new(path), options)?;
    let write = database.begin_write()?;
    for name in &NAMES[..shape.collections] {
        drop(write.get_or_create_tree(name)?);
    }
    write.commit_with(true)?;
    Ok(Box::new(Canopy(database)))
}

impl Engine for Canopy {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(&self.0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        // The next opening would otherwise replay the log; a program that ends in order can do this.
        Ok(self.0.checkpoint()?)
    }
}

impl Handle<'_> {
    fn try_update(&self, places: &[Place; 3]) -> std::result::Result<(), Error> {
        let write = self.0.begin_write_concurrent()?;
        let mut value = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let mut tree = write.get_or_create_tree(NAMES[place.collection])?;
            let found = tree.get(place.key.bytes())?.map(|found| raised(&found, &mut value));
            if index < 2 && found.is_some() {
                tree.insert(place.key.bytes(), &value)?;
            }
        }
        write.commit_with(true).map(|_| ())
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let write = self.0.begin_write()?;
        let mut tree = write.get_or_create_tree(NAMES[collection])?;
        for row in rows {
            tree.insert(row.key, row.value)?;
        }
        drop(tree);
        write.commit_with(true)?;
        Ok(())
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let mut conflicts = 0;
        loop {
            match self.try_update(places) {
                Err(Error::WriteConflict) => conflicts += 1,
                done => return Ok(done.map(|()| conflicts)?),
            }
        }
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let read = self.0.begin_read()?;
        let tree = read.get_tree(NAMES[0])?.ok_or("the tree is gone")?;
        for key in keys {
            if let Some(value) = tree.get(key.bytes())? {
                see(&value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let read = self.0.begin_read()?;
        let tree = read.get_tree(NAMES[collection])?.ok_or("the tree is gone")?;
        for row in tree.range(range.from..)?.take(range.limit) {
            let (key, value) = row?;
            if !range.reaches(&key) {
                break;
            }
            see(&key, &value);
        }
        Ok(())
    }
}
