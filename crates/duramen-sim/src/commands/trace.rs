//! `trace`: the disk operations of one life.

use clap::Args;
use duramen_sim::search::record;

/// Lists what the life of a seed does to its disk, with the oldest and newest commit that a cut there may
/// leave
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// The life
    #[arg(long)]
    seed: u64,
}

impl Trace {
    pub(crate) fn run(&self) -> Result<(), String> {
        let recorded = record(self.seed).map_err(|failure| failure.to_string())?;
        for op in 0..recorded.trace.len() {
            let (floor, ceiling) = (recorded.history.floor(op), recorded.history.ceiling(op));
            println!("{op:>5} {floor:>3}..{ceiling:<3} {}", recorded.trace.describe(op));
        }
        Ok(())
    }
}
