//! `duramen inspect --space`: what takes space, and what keeps it.

use duramen::{Db, Document, Value, doc};

use crate::args::DatabaseArgs;
use crate::database;
use crate::describe::{directory_bytes, file_bytes, show};
use crate::failure::Result;
use crate::output::Output;

/// Data, log, the change feed and its consumers.
pub(crate) fn inspect(args: &DatabaseArgs, out: Output) -> Result<()> {
    let db = database::open_to_read(args)?;
    let mut facts = facts(&db)?;
    let consumers = db.consumers()?.into_iter().map(|consumer| {
        let state = doc! {
            "name": consumer.name.as_str(),
            "position": consumer.position.0,
            "lag_commits": consumer.lag_commits,
            "refuses_writers": consumer.refuses_writers,
            "has_gap": consumer.has_gap,
        };
        (consumer.name, state)
    });
    if out.is_json() {
        facts.set("consumers", Value::List(consumers.map(|(_, state)| Value::Map(state)).collect()));
        return out.object("space", facts);
    }
    let mut by_name = Document::new();
    for (name, mut state) in consumers {
        state.remove("name");
        by_name.set(name, Value::Map(state));
    }
    facts.set("consumers", Value::Map(by_name));
    show(&facts, [], out)
}

fn facts(db: &Db) -> Result<Document> {
    let (stats, status) = (db.stats(), db.durability_status());
    Ok(doc! {
        "data": doc! {
            "file_bytes": file_bytes(&status.path.join("data")),
            "used_bytes": stats.space.used_blocks * stats.block_bytes,
            "waiting_bytes": stats.space.waiting_blocks * stats.block_bytes,
        },
        "log": doc! { "bytes": directory_bytes(&status.wal_dir) },
        "feed": doc! {
            "files": stats.feed.file_count,
            "bytes": stats.feed.file_bytes,
            "oldest": stats.feed.oldest.0,
            "in_files_until": stats.feed.log_from.0,
            "newest": stats.feed.newest.0,
        },
    })
}
