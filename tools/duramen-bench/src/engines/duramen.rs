//! Duramen, by its engine's public interface: trees of bytes, level `Disk`, every option at its default.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen_disk::OsDisk;
use duramen_engine as engine;
use duramen_engine::limits::SEGMENT_BYTES_MAX;
use duramen_engine::{Builtin, Direction, Durability, Event, EventHook, Hooks, KeyRange, Options, TreeId};

use crate::data::Key;
use crate::engine::{
    Checkpoints, Engine, Entry, Part, Place, Range, Result, Row, Scope, See, Session, Shape, Total, raised,
};

/// The entry in the list of engines.
pub(crate) const ENTRY: Entry = Entry {
    name: "duramen",
    setting: "Options::default(), level Disk; raw trees; for W3 to W7 and growth with the reducer sum-i64, which W3 pays for",
    unsafe_because: None,
    scope: Scope::All,
    is_tree: true,
    open,
};

/// An open database.
pub(crate) struct Duramen {
    /// The engine, with trees of bytes.
    pub engine: engine::Engine,
    trees: Vec<TreeId>,
    told: Arc<Told>,
}

/// Checkpoints that the engine has reported.
#[derive(Default)]
struct Told {
    begun: AtomicU64,
    ended: AtomicU64,
    written_bytes: AtomicU64,
}

struct Handle<'a>(&'a Duramen);

fn open(path: &Path, shape: Shape) -> Result<Box<dyn Engine>> {
    let mut options = Options::default();
    options.memory_bytes = shape.memory_bytes.unwrap_or(options.memory_bytes);
    Ok(Box::new(open_with(path, shape, options)?))
}

/// Opens with options other than the measured defaults.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn open_with(path: &Path, shape: Shape, options: Options) -> Result<Duramen> {
    let told = Arc::new(Told::default());
    let heard = Arc::clone(&told);
    let on_event: EventHook = Arc::new(move |event: &Event| match event {
        Event::CheckpointBegins => drop(heard.begun.fetch_add(1, Ordering::SeqCst)),
        Event::Checkpoint { written_bytes, .. } => {
            heard.written_bytes.fetch_add(*written_bytes, Ordering::SeqCst);
            heard.ended.fetch_add(1, Ordering::SeqCst);
        }
        _ => {}
    });
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    let engine = engine::Engine::open(Arc::new(OsDisk::new()), path, options, hooks)?;
    let reducer = shape.summed.then(|| Builtin::Sum.spec());
    let (trees, _) = engine.transact(Durability::Disk, |tx| {
        let mut trees = Vec::new();
        for collection in 0..shape.collections {
            let name = format!("collection {collection}");
            trees.push(match tx.tree(&name)? {
                Some(tree) => tree,
                None => tx.create_tree(&name, reducer.clone())?,
            });
        }
        Ok(trees)
    })?;
    Ok(Duramen { engine, trees, told })
}

impl Duramen {
    /// Bytes that checkpoints have written since opening.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        self.told.written_bytes.load(Ordering::SeqCst)
    }
}

impl Engine for Duramen {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    #[allow(clippy::cast_precision_loss, reason = "counters of one run are far below 2^53")]
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let stats = self.engine.stats();
        vec![
            ("syncs of the log", stats.log.sync_count as f64),
            ("bytes of the log", stats.log.written_bytes as f64),
            ("log segments", (stats.log.written_bytes / SEGMENT_BYTES_MAX) as f64),
            ("checkpoints", stats.checkpoints as f64),
            ("pages read", stats.pages_read as f64),
            ("resident MB", stats.resident_bytes as f64 / 1e6),
            ("held up ms", stats.delayed_us as f64 / 1e3),
        ]
    }

    fn checkpoints(&self) -> Option<Checkpoints> {
        // The end is read before the begin: a checkpoint may seem to run slightly longer, but never to end
        // before it began.
        let ended = self.told.ended.load(Ordering::SeqCst);
        Some(Checkpoints { begun: self.told.begun.load(Ordering::SeqCst), ended })
    }

    fn note(&self) -> Option<String> {
        let status = self.engine.durability_status();
        Some(format!("a commit waits for {}: {}", status.sync_call, status.sync_reason))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.engine.close()?)
    }
}

fn key_range(range: &Range<'_>) -> KeyRange {
    KeyRange { from: range.from.to_vec(), to: range.to.map(<[u8]>::to_vec) }
}

impl Session for Handle<'_> {
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()> {
        self.put_parts(&[Part { collection, rows }])
    }

    fn put_parts(&mut self, parts: &[Part<'_>]) -> Result<()> {
        self.0.engine.transact(Durability::Disk, |tx| {
            parts.iter().try_for_each(|part| {
                let tree = self.0.trees[part.collection];
                part.rows.iter().try_for_each(|row| tx.put(tree, row.key, row.value))
            })
        })?;
        Ok(())
    }

    fn update(&mut self, places: &[Place; 3]) -> Result<u64> {
        let mut runs = 0;
        let mut value = Vec::new();
        self.0.engine.transact(Durability::Disk, |tx| {
            runs += 1;
            for (index, place) in places.iter().enumerate() {
                let tree = self.0.trees[place.collection];
                let found = tx.get(tree, place.key.bytes())?.unwrap_or_default();
                if index < 2 {
                    raised(&found, &mut value);
                    tx.put(tree, place.key.bytes(), &value)?;
                }
            }
            Ok(())
        })?;
        Ok(runs - 1)
    }

    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let tree = self.0.trees[0];
        let snapshot = self.0.engine.snapshot()?;
        for key in keys {
            snapshot.get_with(tree, key.bytes(), &mut *see)?;
        }
        Ok(())
    }

    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()> {
        let snapshot = self.0.engine.snapshot()?;
        let mut rows = snapshot.rows(self.0.trees[collection], key_range(&range), Direction::Forward)?;
        let mut seen = 0;
        while seen < range.limit {
            let Some(row) = rows.next()? else { break };
            see(row.key(), &row.value()?);
            seen += 1;
        }
        Ok(())
    }

    fn scan_otherwise(&mut self, range: Range<'_>, see: &mut See<'_>) -> Result<bool> {
        let snapshot = self.0.engine.snapshot()?;
        let rows = snapshot.rows(self.0.trees[0], key_range(&range), Direction::Forward)?;
        for row in rows.into_iter().take(range.limit) {
            let (key, value) = row?;
            see(&key, &value);
        }
        Ok(true)
    }

    fn total(&mut self, from: &[u8], to: &[u8]) -> Result<Total> {
        let snapshot = self.0.engine.snapshot()?;
        let tree = self.0.trees[0];
        let range = KeyRange::between(from, to);
        let reduced = snapshot.reduce(tree, &range)?;
        let sum = reduced.value.and_then(|bytes| Some(i128::from_le_bytes(bytes.try_into().ok()?)));
        Ok(Total { count: reduced.count, sum: sum.unwrap_or_default() })
    }
}
