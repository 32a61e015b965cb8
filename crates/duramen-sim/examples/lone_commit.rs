//! One thread commits rows of 1 KiB durably, one at a time, over many segment changes and some checkpoints.
//!
//! Run it under `strace` to see what a lone commit costs (docs/testing.md has the command).
//!
//! `cargo run --release -p duramen-sim --example lone_commit -- DIR [COMMITS]`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::path::PathBuf;
use std::sync::Arc;

use duramen_disk::OsDisk;
use duramen_engine::{Durability, Engine, Hooks, Options, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    let commits: u64 = args.next().map_or(8000, |n| n.parse().expect("a number of commits"));
    let options = Options { checkpoint_log_bytes: Some(8 << 20), ..Options::default() };
    let engine = Engine::open(Arc::new(OsDisk::new()), &dir, options, Hooks::default())?;
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None))?;
    // Marks the first commit, as a second such call marks the last: a call that stands out in a trace.
    drop(std::fs::metadata("/begin-of-commits"));
    for id in 0..commits {
        let mut tx = engine.begin()?;
        tx.put(tree, &id.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &[7; 1024])?;
        tx.commit(Durability::Disk)?;
    }
    drop(std::fs::metadata("/end-of-commits"));
    let stats = engine.stats();
    println!("{commits} commits, {} checkpoints, {:?}", stats.checkpoints, stats.log);
    engine.close()
}
