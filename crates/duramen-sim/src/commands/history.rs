//! `history`: random transactions of real threads, and the check that they could have run one after another.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use duramen_disk::MemDisk;
use duramen_engine::{Background, Engine, Geometry, Hooks, Options};
use duramen_sim::history::{Manner, Run, check, run};
use duramen_sim::search::shapes::GEOMETRY;

/// Steps of one database's threads. Its history is then checked as a whole.
const STEPS_A_RUN: usize = 6_000;

/// Runs random transactions that rest between calls in real threads, and checks their answers for an order
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Transactions that rest
    #[arg(long, default_value_t = 1_000)]
    transactions: u64,
    /// The first seed; each database takes the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that share the transactions
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

impl History {
    pub(crate) fn run(&self) -> Result<(), String> {
        let (mut rested, mut conflicts, mut violations) = (0, 0, 0);
        let mut seed = self.seed;
        while rested < self.transactions {
            let thread_count = usize::from(self.threads);
            let key_count = [12, 40, 400][usize::try_from(seed % 3).expect("below three")];
            let transaction_count = STEPS_A_RUN / thread_count;
            let plan = Run { seed, thread_count, transaction_count, key_count, manner: Manner::Resting };
            let verdict = check(&run(&open(seed)?, plan).map_err(|error| error.to_string())?);
            println!("seed {seed}, {key_count} keys: {verdict}");
            verdict.violations.iter().for_each(|violation| println!("again: {violation}"));
            rested += verdict.rested_count;
            conflicts += verdict.conflict_count;
            violations += verdict.violation_count;
            seed += 1;
        }
        println!("figures: rested={rested} conflicts={conflicts} violations={violations} next_seed={seed}");
        if violations == 0 { Ok(()) } else { Err(format!("{violations} violations")) }
    }
}

fn open(seed: u64) -> Result<Engine, String> {
    let options = Options {
        geometry: Geometry { segment_bytes_min: 64 * 1024, segment_bytes_max: 256 * 1024, ..GEOMETRY },
        memory_bytes: 4 * 1024 * 1024,
        background: Background::Threads,
        ..Options::default()
    };
    let disk = Arc::new(MemDisk::new(seed));
    Engine::open(disk, Path::new("/db"), options, Hooks::default()).map_err(|error| error.to_string())
}
