//! Hostile bytes for everything that decodes: whole databases with valid checksums, log records, rows of the
//! catalogue, schemas, MessagePack, CSV, NDJSON, keys.
//!
//! An entry point takes any bytes and panics on a violation: a panic of the library, an answer that
//! contradicts itself, or, for a database, an error of a kind that bytes cannot cause (`database`). `cargo
//! fuzz` (folder `fuzz/`) and [`search`] call the same entry points. Nothing here decides what a decoder
//! accepts.

mod database;
mod mutate;
mod reseal;
mod rows;
mod stored;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duramen_disk::memory::Random;

use mutate::mutated;

/// Longest input that the search makes; longer ones find no more than these.
const INPUT_BYTES_MAX: usize = 4096;

/// A run that takes longer is a violation: a decoder trusted some count or length.
const RUN_SECONDS_MAX: u64 = 20;

/// What decodes the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Edits of the files of a database, with checksums corrected: opened, read, checked, observed, repaired.
    Database,
    /// The payload of a record at the end of the log.
    Record,
    /// A row of the engine's catalogue.
    Catalogue,
    /// An entry of the catalogue of collections: schemas and views.
    Schema,
    /// A stored document.
    MessagePack,
    /// A CSV file.
    Csv,
    /// Lines of JSON.
    Ndjson,
    /// The bytes of a key.
    Key,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 8] = [
        Target::Database,
        Target::Record,
        Target::Catalogue,
        Target::Schema,
        Target::MessagePack,
        Target::Csv,
        Target::Ndjson,
        Target::Key,
    ];

    /// The name of its corpus, also used on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Target::Database => "database",
            Target::Record => "record",
            Target::Catalogue => "catalogue",
            Target::Schema => "schema",
            Target::MessagePack => "messagepack",
            Target::Csv => "csv",
            Target::Ndjson => "ndjson",
            Target::Key => "key",
        }
    }

    /// Runs one input.
    ///
    /// # Panics
    /// On a violation.
    pub fn run(self, input: &[u8]) {
        match self {
            Target::Database => database::run(input),
            Target::Record => stored::record(input),
            Target::Catalogue => stored::catalogue(input),
            Target::Schema => stored::schema(input),
            Target::MessagePack => stored::message_pack(input),
            Target::Csv => rows::csv(input),
            Target::Ndjson => rows::ndjson(input),
            Target::Key => rows::key(input),
        }
    }

    /// The inputs kept in the repository, by file name: valid ones to begin from, and past failures.
    ///
    /// # Panics
    /// Without the repository.
    #[must_use]
    pub fn corpus(self) -> Vec<Vec<u8>> {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(self.name());
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a folder of the repository").path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).expect("a file of the repository")).collect()
    }
}

/// Runs a target on its corpus, then on inputs made from it and the seed, until the time is over. Returns how
/// many.
///
/// Each input is in the file `under_way` while it runs, so that it remains after an abort, too. `begins` is
/// called with the number of each before it runs.
///
/// # Errors
/// What was wrong with the input in `under_way`, or that the file could not be written.
pub fn search(
    target: Target,
    seed: u64,
    time: Duration,
    under_way: &Path,
    begins: &dyn Fn(u64),
) -> Result<u64, String> {
    let (started, corpus) = (Instant::now(), target.corpus());
    let mut count = 0;
    while count < corpus.len() as u64 || started.elapsed() < time {
        let kept = usize::try_from(count).ok().and_then(|index| corpus.get(index));
        let input = kept.cloned().unwrap_or_else(|| input_of(&corpus, seed, count));
        std::fs::write(under_way, &input).map_err(|error| format!("{}: {error}", under_way.display()))?;
        begins(count);
        survives(target, &input)?;
        count += 1;
    }
    Ok(count)
}

/// The input of a seed and a number: each one can be reproduced without those before it.
fn input_of(corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    mutated(corpus, INPUT_BYTES_MAX, &mut random)
}

fn survives(target: Target, input: &[u8]) -> Result<(), String> {
    let started = Instant::now();
    let survived = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    if let Err(panic) = survived {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        return Err(format!("{}: {}", target.name(), text.unwrap_or_default()));
    }
    let seconds = started.elapsed().as_secs();
    if seconds > RUN_SECONDS_MAX {
        return Err(format!("{}: {seconds} s for {} bytes", target.name(), input.len()));
    }
    Ok(())
}
