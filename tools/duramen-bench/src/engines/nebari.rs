//! nebari: the store under BonsaiDb, append-only, a file per tree. For W1, W2 and W2b.

use std::path::Path;

use nebari::io::fs::StdFile;
use nebari::tree::{Root, ScanEvaluation, Unversioned};
use nebari::{AbortError, Config, Roots, Tree};

use crate::data::Key;
use crate::engine::{Engine, Entry, Place, Range, Result, Row, Scope, See, Session, Shape, raised};

/// The entry in the list of engines.
pub const ENTRY: Entry = Entry {
    name: "nebari",
    setting: "its default: every commit syncs each file it wrote to, then its transaction log; a writer holds its trees",
    unsafe_because: None,
    scope: Scope::Updates,
    is_tree: true,
    open,
};

struct Nebari {
    roots: Roots<StdFile>,
    collections: Vec<Tree<Unversioned, StdFile>>,
}

struct Handle<'a>(&'a Nebari);

fn name_of(collection: usize) -> String {
    format!("collection-{collection}")
}

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let roots = Config::default_for(path.join("nebari")).open()?;
    let open = |collection| roots.tree(Unversioned::tree(name_of(collection)));
    let collections = (0..shape.collections).map(open).collect::<std::result::Result<_, _>>()?;
    Ok(Box::new(Nebari { roots, collections }))
}

impl Engine for Nebari {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        let transaction = self.0.roots.transaction(&[Unversioned::tree(name_of(collection))])?;
        {
            let mut tree = transaction.tree::<Unversioned>(0).ok_or("the tree that was asked for")?;
            for row in rows {
                tree.set(row.key.to_vec(), row.value.to_vec())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        // Trees are locked in the order in which they are named: a single order prevents deadlocks.
        let mut collections: Vec<usize> = places.iter().map(|place| place.collection).collect();
        collections.sort_unstable();
        collections.dedup();
        let trees: Vec<_> = collections.iter().map(|c| Unversioned::tree(name_of(*c))).collect();
        let transaction = self.0.roots.transaction(&trees)?;
        let mut value = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let at = collections.iter().position(|c| *c == place.collection).unwrap_or_default();
            let mut tree = transaction.tree::<Unversioned>(at).ok_or("the tree that was asked for")?;
            let found = tree.get(place.key.bytes())?.unwrap_or_default();
            if index < 2 {
                raised(&found, &mut value);
                tree.set(place.key.bytes().to_vec(), value.clone())?;
            }
        }
        transaction.commit()?;
        Ok(0)
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        for key in keys {
            if let Some(value) = self.0.collections[0].get(key.bytes())? {
                see(&value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let mut left = range.limit;
        let scanned = self.0.collections[collection].scan::<std::convert::Infallible, _, _, _, _>(
            &(range.from..),
            true,
            |_, _, _| ScanEvaluation::ReadData,
            |key, _| {
                if left == 0 || !range.reaches(key) {
                    return ScanEvaluation::Stop;
                }
                left -= 1;
                ScanEvaluation::ReadData
            },
            |key, _, value| {
                see(&key, &value);
                Ok(())
            },
        );
        scanned.map_err(|error| match error {
            AbortError::Other(never) => match never {},
            AbortError::Nebari(error) => error.into(),
        })
    }
}
