//! One put of a document on the disk in memory: `scripts/files-of-a-put` lists the source files that it runs
//! through.
//!
//! `cargo run --release -p duramen-sim --example one_put`
#![allow(clippy::disallowed_methods, reason = "a program that is told what to do")]

use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Db, MemDisk};
use duramen_engine::Background;

fn main() -> Result<()> {
    let options = Db::options().engine(|options| options.background = Background::Stepped);
    let db = options.open_on(Arc::new(MemDisk::new(7)), "/db")?;
    let documents = db.ensure(&Schema::new("orders").key(["id"]))?;
    for id in 0..1000 {
        documents.put(order(id))?;
    }
    the_put(&documents)
}

/// The function whose calls are counted.
#[inline(never)]
fn the_put(documents: &duramen::Documents) -> Result<()> {
    documents.put(order(500)).map(drop)
}

fn order(id: i64) -> duramen::Document {
    doc! { "id": id, "city": "Oslo", "cents": 4_200 }
}
