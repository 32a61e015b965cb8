//! Which sync method a database uses: measured once, when it is created, among methods that are proven.
//!
//! It owns the calibration and the choice. Every candidate is proven to be durable on the log's file system
//! (D1), so a wrong measurement costs time and never data. `sync_file_range` is not a candidate. The proof is
//! checked again at every open, because the stored choice moves with the files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::sync_choice::{Typical, is_proven, preferred};
use duramen_disk::{Access, Disk, DurableWriteError, File, OpenMode, SyncMethod, write_zeroes};

use super::directory::LOCK;
use crate::data_file::{Measured, SyncChoice};
use crate::error::{Code, Error, Result};
use crate::options::{Background, Durability, Options};

/// The candidates. The first is kept unless another is clearly better.
const METHODS: [SyncMethod; 3] = [SyncMethod::Fdatasync, SyncMethod::Dsync, SyncMethod::DirectDsync];

const PREFIX: &str = "calibration-";

/// A calibration ends after this long, files included, or after this many writes.
const CALIBRATION_MS_MAX: u64 = 150;
const WRITES_MAX: usize = 64;
const WRITES_MIN: usize = 8;

const RECORD_BYTES: usize = 4096;
const FILE_RECORDS: u64 = 32;

const _: () = assert!(WRITES_MIN <= WRITES_MAX, "a calibration that ends can be judged");

/// One candidate's file, and the nanoseconds of each write.
struct Candidate {
    method: SyncMethod,
    file: Option<Arc<dyn File>>,
    samples: Vec<u64>,
}

/// Measures in the log's directory and chooses. `None` if the options or the file system leave no choice, or
/// too little could be measured.
///
/// # Errors
/// The error of a failed sync: a disk that fails here is unusable.
pub(super) fn choose(disk: &dyn Disk, wal_dir: &Path, options: &Options) -> Result<Option<SyncChoice>> {
    let is_simulated = options.background == Background::Stepped;
    if options.sync.is_some() || options.durability != Durability::Disk || is_simulated {
        return Ok(None);
    }
    let file_system = name_of(disk, wal_dir)?;
    if METHODS.iter().filter(|method| is_proven(**method, &file_system)).count() < 2 {
        return Ok(None);
    }
    if !is_ours_alone(disk, wal_dir)? || disk.why_syncs_are_worthless(wal_dir).is_some() {
        return Ok(None);
    }
    // A unique name, so that only files made here are removed.
    let prefix = wal_dir.join(format!("{PREFIX}{:016x}", disk.random()));
    let measured = measure(disk, &prefix, options.geometry.block_bytes);
    for method in METHODS {
        // If it cannot be removed, a small unused file remains.
        drop(disk.remove(&path_of(&prefix, method)));
    }
    Ok(decide(&measured?))
}

fn name_of(disk: &dyn Disk, wal_dir: &Path) -> Result<String> {
    let system = disk.file_system(wal_dir).map_err(|e| Error::io("look at", wal_dir, &e))?;
    Ok(system.name)
}

/// Whether the directory holds only the lock and calibration files. Anything else may be another log, which
/// `Log::create` must refuse untouched.
fn is_ours_alone(disk: &dyn Disk, wal_dir: &Path) -> Result<bool> {
    let names = disk.list(wal_dir).map_err(|e| Error::io("list", wal_dir, &e))?;
    let is_ours = |name: &OsStr| name == LOCK || is_calibration(name);
    Ok(names.iter().all(|path| path.file_name().is_some_and(is_ours)))
}

fn path_of(prefix: &Path, method: SyncMethod) -> PathBuf {
    prefix.with_extension(format!("{}", method as u8))
}

/// Whether a file in a log's directory was left by the calibration of a creation that was cut short.
pub(super) fn is_calibration(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

fn measure(disk: &dyn Disk, prefix: &Path, block_bytes: usize) -> Result<Vec<Candidate>> {
    let begun = disk.monotonic_ns();
    let is_over = || disk.monotonic_ns().saturating_sub(begun) > CALIBRATION_MS_MAX * 1_000_000;
    let mut candidates = Vec::new();
    for method in METHODS {
        let is_fit = method != SyncMethod::DirectDsync || block_bytes.is_multiple_of(RECORD_BYTES);
        let path = path_of(prefix, method);
        let file = if is_fit && !is_over() { prepare(disk, &path, method)? } else { None };
        candidates.push(Candidate { method, file, samples: Vec::new() });
    }
    let record = [0x5a; RECORD_BYTES];
    for round in 0..WRITES_MAX {
        let offset = round as u64 % FILE_RECORDS * RECORD_BYTES as u64;
        for index in 0..candidates.len() {
            let candidate = &mut candidates[(round + index) % METHODS.len()];
            let Some(file) = &candidate.file else { continue };
            if is_over() {
                return Ok(candidates);
            }
            let before = disk.monotonic_ns();
            file.write_durable_at(&record, offset).map_err(|error| {
                let error = match error {
                    DurableWriteError::Write(error) => error.source,
                    DurableWriteError::Sync(error) => error,
                };
                Error::io("write durably to", &path_of(prefix, candidate.method), &error)
            })?;
            candidate.samples.push(disk.monotonic_ns() - before);
        }
    }
    Ok(candidates)
}

/// Creates a file of written zeroes. `None` if the file system does not offer the method.
fn prepare(disk: &dyn Disk, path: &Path, method: SyncMethod) -> Result<Option<Arc<dyn File>>> {
    let failed = |doing: &str, error: &std::io::Error| Error::io(doing, path, error);
    let file = disk.open(path, Access::CREATE).map_err(|e| failed("create", &e))?;
    write_zeroes(&*file, 0, FILE_RECORDS * RECORD_BYTES as u64).map_err(|e| failed("write", &e.source))?;
    file.sync_data().map_err(|e| failed("sync", &e))?;
    match disk.open(path, Access { mode: OpenMode::Write, sync: method }) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(failed("open", &error)),
    }
}

/// Chooses by the rule of `measure::preferred`. Keeps the medians of candidates measured often enough.
fn decide(candidates: &[Candidate]) -> Option<SyncChoice> {
    let mut measured = Measured::default();
    let mut all = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.samples.len() >= WRITES_MIN) {
        let mut sorted = candidate.samples.clone();
        sorted.sort_unstable();
        let at = |percent: usize| sorted[sorted.len() * percent / 100];
        let us = at(50).div_ceil(1000);
        *measured.of_mut(candidate.method) = u32::try_from(us).unwrap_or(u32::MAX);
        all.push(Typical { method: candidate.method, p50: at(50), p90: at(90) });
    }
    Some(SyncChoice { method: preferred(&all)?, measured })
}

/// The method to use now, and the reason in words.
///
/// An explicit option is obeyed even where it is not proven: the program vouches for its file system, as with
/// `allow_network_fs`. The reason names what is not proven.
pub(super) fn in_use(
    disk: &dyn Disk,
    wal_dir: &Path,
    options: &Options,
    chosen: Option<&SyncChoice>,
) -> Result<(SyncMethod, String)> {
    let file_system = name_of(disk, wal_dir)?;
    if let Some(asked) = options.sync {
        let why = "the options ask for it";
        let is_proven = is_proven(asked, &file_system);
        let doubt =
            if is_proven { String::new() } else { format!(", though it is not proven on {file_system}") };
        return Ok((asked, format!("{why}{doubt}")));
    }
    let Some(chosen) = chosen else {
        return Ok((SyncMethod::Fdatasync, "the default: nothing was measured at creation".to_owned()));
    };
    if !is_proven(chosen.method, &file_system) {
        let why = format!("the one chosen at creation is not proven on {file_system}, where the log is now");
        return Ok((SyncMethod::Fdatasync, why));
    }
    // A read-only open reports what a writer would use. It opens nothing for writing.
    if !options.read_only && !is_offered(disk, wal_dir, chosen.method)? {
        let why = "the one chosen at creation is not offered where the log is now";
        return Ok((SyncMethod::Fdatasync, why.to_owned()));
    }
    Ok((chosen.method, format!("measured at creation, medians: {}", chosen.measured)))
}

/// Whether the log's file system offers a method. The log may have been moved since its creation.
fn is_offered(disk: &dyn Disk, wal_dir: &Path, method: SyncMethod) -> Result<bool> {
    if method != SyncMethod::DirectDsync {
        return Ok(true);
    }
    let names = disk.list(wal_dir).map_err(|e| Error::io("list", wal_dir, &e))?;
    let Some(name) = names.iter().find(|name| name.extension().is_some_and(|ending| ending == "wal")) else {
        return Err(Error::new(Code::LogMissing, format!("{} holds no log", wal_dir.display())));
    };
    let path = wal_dir.join(name);
    match disk.open(&path, Access { mode: OpenMode::Write, sync: method }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(Error::io("open", &path, &error)),
    }
}

#[cfg(test)]
mod tests {
    //! The choice for given measurements.
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn candidate(method: SyncMethod, us: &[u64]) -> Candidate {
        Candidate { method, file: None, samples: us.iter().map(|us| us * 1000).collect() }
    }

    #[test]
    fn another_method_must_be_clearly_better() {
        let choice = |dsync: &[u64], direct: &[u64]| {
            let candidates = [
                candidate(SyncMethod::Fdatasync, &[100; 10]),
                candidate(SyncMethod::Dsync, dsync),
                candidate(SyncMethod::DirectDsync, direct),
            ];
            decide(&candidates).unwrap()
        };
        assert_eq!(choice(&[95; 10], &[85; 10]).method, SyncMethod::Fdatasync, "little is noise");
        assert_eq!(choice(&[95; 10], &[70; 10]).method, SyncMethod::DirectDsync);
        assert_eq!(choice(&[60; 10], &[70; 10]).method, SyncMethod::Dsync);
        assert_eq!(choice(&[], &[70; 7]).method, SyncMethod::Fdatasync, "too few samples");
        let slow_at_times = [50, 50, 50, 50, 50, 50, 50, 50, 500, 500];
        assert_eq!(choice(&slow_at_times, &[]).method, SyncMethod::Fdatasync);
        let told = choice(&[95; 10], &[70; 10]).measured;
        assert_eq!(told.to_string(), "fdatasync 100 µs, RWF_DSYNC 95 µs, O_DIRECT with RWF_DSYNC 70 µs");
        let few = [candidate(SyncMethod::Fdatasync, &[100; 3])];
        assert_eq!(decide(&few), None);
    }
}
