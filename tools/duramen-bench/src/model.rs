//! `model`: what checkpoints would write for a load larger than the memory, by designs that may be built.
//!
//! No engine runs: a tree of sizes is filled in a real order of keys. The first design is that of the engine
//! today, so that its figures can be compared with measured ones (decision 0037).

mod orders;
mod tree;

use std::path::PathBuf;

use clap::Args;

use crate::engine::Result;
use crate::output;
use crate::tables::Grid;
use tree::{Design, Tree};

/// What to model.
#[derive(Debug, Args)]
pub(crate) struct Model {
    /// The directory of the flights.
    #[arg(long, default_value = "data/nycflights", value_name = "DIR")]
    pub data: PathBuf,
}

/// Bytes of a row that a user gives, and of its entry in a leaf.
const ROW_BYTES: usize = 116;
const ENTRY_BYTES: usize = 130;

const DESIGNS: [Design; 4] =
    [Design::Leaves, Design::PatchesInMemory, Design::PatchesInParents, Design::PatchesInRuns(8)];

/// Prints a table of all loads and designs.
///
/// # Errors
/// Flights that cannot be read.
pub(crate) fn run(words: &Model) -> Result<()> {
    let mut rows = Vec::new();
    let three = orders::random(3_000_000);
    rows.push(modelled("3,000,000 random rows, 64 MiB", &three, 64 << 20, 0));
    rows.push(modelled("then as many replaced at random", &three, 64 << 20, 3_000_000));
    drop(three);
    rows.push(modelled("10,000,000 random rows, 256 MiB", &orders::random(10_000_000), 256 << 20, 0));
    for (name, columns) in orders::FLIGHTS {
        let keys = orders::flights(&words.data.join("flights.csv.gz"), columns)?;
        // Rows of the same size, of which memory holds a fifth.
        let memory_bytes = keys.len() * ENTRY_BYTES / 5;
        rows.push(modelled(&format!("flights by {name}, a fifth of them"), &keys, memory_bytes, 0));
    }
    let head = ["bytes written for a byte: rows, memory"].map(str::to_owned).into_iter();
    let head = head.chain(DESIGNS.iter().map(|design| design.name().to_owned())).collect();
    output::table(&Grid { head, rows }.table());
    Ok(())
}

/// A row of the table: what is written for each byte of a user, with the log.
fn modelled(name: &str, keys: &[u32], memory_bytes: usize, replaced: u64) -> Vec<String> {
    let figures = DESIGNS.map(|design| {
        let mut tree = Tree::new(design, ENTRY_BYTES, room(design, memory_bytes));
        keys.iter().for_each(|key| tree.put(*key));
        let loaded = tree.written;
        let mut at = 7;
        for number in 0..replaced {
            at = orders::mixed(at ^ number);
            tree.put(u32::try_from(at % keys.len() as u64).expect("a rank"));
        }
        tree.checkpoint();
        let (before, rows) = if replaced > 0 { (loaded.bytes(), replaced) } else { (0, keys.len() as u64) };
        let user_bytes = rows * ROW_BYTES as u64;
        let log_bytes = rows * ENTRY_BYTES as u64;
        let written = tree.written;
        #[allow(clippy::cast_precision_loss, reason = "a figure of three digits")]
        let each = (written.bytes() - before + log_bytes) as f64 / user_bytes as f64;
        format!("{each:.1} ({} MB, {} checkpoints)", written.changes_max >> 20, written.checkpoints)
    });
    std::iter::once(name.to_owned()).chain(figures).collect()
}

/// Bytes of memory for changes: what the engine gives to changed leaves today, or more where leaves need not
/// stay in memory.
fn room(design: Design, memory_bytes: usize) -> usize {
    let percent = memory_bytes / 100;
    let nodes = memory_bytes.saturating_sub(29 << 20).clamp(percent * 55, percent * 80);
    match design {
        Design::Leaves | Design::PatchesInMemory => nodes - (20 << 20).max(nodes / 16).min(nodes / 100 * 55),
        Design::PatchesInParents | Design::PatchesInRuns(_) => nodes / 100 * 80,
    }
}
