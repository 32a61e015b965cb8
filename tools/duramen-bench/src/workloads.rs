//! The table of workloads, and the dispatch of jobs.

mod beyond;
pub(crate) mod commits;
mod gets;
mod growth;
mod load;
mod peak;
mod reopen;
mod scans;
mod stall;
mod update;

use crate::bound::{self, BOUNDS};
use crate::commerce;
use crate::engine::Result;
use crate::engines;
use crate::job::{Job, Outcome, Step};

/// Rows of W3, and so of W4 to W6.
pub(crate) const LOAD_ROWS: u64 = 1_000_000;
/// Records of each of the five collections of W2b.
pub(crate) const UPDATE_ROWS: u64 = 100_000;
/// Threads of W9.
pub(crate) const BIG_VALUE_THREADS: usize = 8;
/// Threads of W2b.
pub(crate) const UPDATE_THREADS: usize = 16;
/// Seed of keys, values and order, unless another is given.
pub(crate) const SEED: u64 = 20_261_121;

/// One line of the table.
pub(crate) struct Definition {
    /// Its name in commands.
    pub name: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// Rows that exist, or are written.
    pub rows: &'static str,
    /// Bytes of a key and of a value.
    pub bytes: &'static str,
    /// The distribution of keys.
    pub distribution: &'static str,
    /// How many operations share a state.
    pub snapshot: &'static str,
    /// What happens before measurements count.
    pub warm_up: &'static str,
    /// How answers are checked.
    pub check: &'static str,
}

/// All workloads. Defined before any tuning.
pub(crate) const DEFINITIONS: [Definition; 10] = [
    Definition {
        name: "W1",
        operation: "1 thread: a durable transaction that writes one new record",
        rows: "as many as the time allows",
        bytes: "16-24 / 1,024",
        distribution: "new random keys",
        snapshot: "-",
        warm_up: "0.3 s of the same",
        check: "reopened; hash of all records",
    },
    Definition {
        name: "W2",
        operation: "the same by 2, 4, 8, 16, 32, 64 threads into one collection (--quick: 16 and 64)",
        rows: "as many as the time allows",
        bytes: "16-24 / 1,024",
        distribution: "new random keys",
        snapshot: "-",
        warm_up: "0.3 s of the same",
        check: "reopened; hash of all records",
    },
    Definition {
        name: "W2b",
        operation: "16 threads: a durable serialisable transaction that reads 3 records and updates 2 of them",
        rows: "5 collections of 100,000",
        bytes: "16-24 / 1,024",
        distribution: "uniform over all records",
        snapshot: "1 transaction",
        warm_up: "full scan, 0.3 s of the same",
        check: "sum of all counters = committed updates",
    },
    Definition {
        name: "W3",
        operation: "1 thread: a durable transaction that writes 1,000 new rows",
        rows: "1,000,000",
        bytes: "16-24 / 100",
        distribution: "random order of keys",
        snapshot: "-",
        warm_up: "none: empty database",
        check: "reopened; hash of all rows in order",
    },
    Definition {
        name: "W4",
        operation: "1 and 2 threads: get",
        rows: "those of W3",
        bytes: "16-24 / 100",
        distribution: "uniform over all rows",
        snapshot: "1 get; and 100 gets",
        warm_up: "full scan, 0.1 s of the same",
        check: "hash of 1,000 values; sum of the numbers in all",
    },
    Definition {
        name: "W5",
        operation: "1 thread: full scan; 100 rows from a random key on; every value hashed",
        rows: "those of W3",
        bytes: "16-24 / 100",
        distribution: "uniform starts",
        snapshot: "1 scan",
        warm_up: "full scan",
        check: "hash of all rows in order; of the first 200 ranges",
    },
    Definition {
        name: "W6",
        operation: "1 thread: count and sum over a random tenth of the keys",
        rows: "those of W3",
        bytes: "16-24 / 100",
        distribution: "uniform starts",
        snapshot: "1 query",
        warm_up: "full scan",
        check: "hash of the first 5 totals",
    },
    Definition {
        name: "W7",
        operation: "kill -9 in the middle of W3; a fresh process opens, gets, reads a range, sums a tenth",
        rows: "a third to a half of W3's",
        bytes: "16-24 / 100",
        distribution: "the newest row; uniform starts",
        snapshot: "1 query",
        warm_up: "the kernel's cache is warm",
        check: "all three answers, and the hash of all acknowledged rows",
    },
    Definition {
        name: "W8",
        operation: "W1 before and while a checkpoint of 256 MiB of dirty pages runs; the raw loop while as much is written to another file",
        rows: "as many as the time allows",
        bytes: "16-24 / 1,024",
        distribution: "new random keys",
        snapshot: "-",
        warm_up: "filled by transactions of 1,000 records",
        check: "reopened; hash of all records",
    },
    Definition {
        name: "W9",
        operation: "8 threads: a durable transaction that writes one new record",
        rows: "as many as the time allows",
        bytes: "16-24 / 262,144",
        distribution: "new random keys",
        snapshot: "-",
        warm_up: "0.3 s of the same",
        check: "reopened; hash of all records",
    },
];

/// Runs a job.
///
/// # Errors
/// Errors of the engine or the system.
pub(crate) fn run(job: &Job) -> Result<Outcome> {
    for (name, strategy, method) in BOUNDS {
        match (job.engine.split_once('-'), job.step) {
            (Some(("raw", of)), Step::Raw) if of == name => return bound::raw(job, strategy),
            (Some(("raw", of)), Step::Stall) if of == name => return stall::raw(job, strategy),
            (Some(("log", of)), Step::Commits) if of == name => return bound::log(job, method),
            _ => {}
        }
    }
    if let Step::Commerce(setting) = job.step {
        return commerce::turn(job, setting);
    }
    let entry = engines::find(&job.engine).ok_or_else(|| format!("this build has no {}", job.engine))?;
    match job.step {
        Step::Raw | Step::Commerce(_) => Err(format!("{} is no raw loop", job.engine).into()),
        Step::Commits => commits::run(&entry, job, commits::VALUE_BYTES),
        Step::BigValues => commits::run(&entry, job, commits::BIG_VALUE_BYTES),
        Step::Fill => update::fill(&entry, job),
        Step::Update => update::run(&entry, job),
        Step::Load => load::run(&entry, job),
        Step::Gets => gets::run(&entry, job),
        Step::Scans => scans::run(&entry, job),
        Step::Sums => scans::sums(&entry, job),
        Step::Doomed => load::doomed(&entry, job),
        Step::Reopen => reopen::run(&entry, job),
        Step::Beyond(bound) => beyond::run(&entry, job, bound),
        Step::Grow(limits) => growth::run(&entry, job, limits),
        Step::Stall => stall::run(&entry, job),
    }
}
