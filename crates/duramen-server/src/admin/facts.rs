//! What a database consists of, and how durable it is, as a document.

use std::path::Path;

use duramen::error::Result;
use duramen::{Db, Document, KeyRange, LocalReads as _, Snapshot, Span, doc};

/// Path, sizes, collections and views with their counts.
///
/// # Errors
/// Those of a [read](duramen::Error#reads).
pub fn facts(db: &Db) -> Result<Document> {
    of(db, &db.snapshot()?)
}

fn of(db: &Db, snapshot: &Snapshot) -> Result<Document> {
    let (stats, status) = (db.stats(), db.durability_status());
    let (mut collections, mut views) = (Document::new(), Document::new());
    for schema in snapshot.collections()? {
        let documents = snapshot.documents(schema.name());
        collections.set(schema.name(), documents.count(Span::all())?);
        let mut rows = Document::new();
        for state in documents.views()? {
            let name = state.view.name();
            let count = if state.is_ready() { Some(documents.view(name).count()?) } else { None };
            rows.set(name, count);
        }
        if !rows.is_empty() {
            views.set(schema.name(), rows);
        }
    }
    let mut byte_trees = Document::new();
    for name in snapshot.byte_trees()? {
        let keys = snapshot.count_bytes(&name, &KeyRange::all())?;
        byte_trees.set(name, keys);
    }
    let geometry = &status.geometry;
    Ok(doc! {
        "path": status.path.display().to_string(),
        "database": status.database.to_string(),
        "seq": status.published.0,
        "file_system": status.file_system,
        "data": doc! {
            "file_bytes": file_bytes(&status.path.join("data")),
            "used_bytes": stats.space.used_blocks * stats.block_bytes,
            "block_bytes": stats.block_bytes,
        },
        "log": doc! {
            "path": status.wal_dir.display().to_string(),
            "bytes": directory_bytes(&status.wal_dir),
            "sync_call": status.sync_call,
            "sync_reason": status.sync_reason.as_str(),
        },
        "recovery": doc! {
            "records": stats.recovery.record_count,
            "unmarked_groups": stats.recovery.unmarked_group_count,
            "torn": stats.recovery.torn,
        },
        "geometry": doc! {
            "leaf_bytes_max": geometry.leaf_bytes_max as u64,
            "inner_bytes_max": geometry.inner_bytes_max as u64,
            "big_value_bytes": geometry.big_value_bytes as u64,
            "segment_bytes_max": geometry.segment_bytes_max,
        },
        "collections": collections,
        "views": views,
        "byte_trees": byte_trees,
    })
}

fn file_bytes(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|metadata| metadata.len())
}

fn directory_bytes(path: &Path) -> Option<u64> {
    let entries = path.read_dir().ok()?;
    Some(entries.flatten().filter_map(|entry| file_bytes(&entry.path())).sum())
}
