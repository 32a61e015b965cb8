//! The built-in writer of the published experiment, and its check.
//!
//! Owns the numbered record, the ways to create its file and the calls that claim to make it durable. A
//! record is acknowledged on standard output after its call returned, never before.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;
use nix::libc;

use crate::linux::args::{CheckRecordsArgs, WriteRecordsArgs};
use crate::linux::failure::{DATA_LOST, ENVIRONMENT};
use crate::linux::platform;
use crate::linux::report;

const RECORD_BYTES: usize = 4096;

/// How the file comes to its length before records are written over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Init {
    /// Zeroes are written and synced: every block is allocated and initialised
    Zeroes,
    /// Only the length is set and synced: the file is a hole
    SetLen,
}

/// What is called after each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncCall {
    Fdatasync,
    /// The file is opened with `O_DSYNC`
    Dsync,
    SyncFileRange,
    None,
}

impl Init {
    pub(crate) const ALL: [Init; 2] = [Init::Zeroes, Init::SetLen];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Init::Zeroes => "zeroes",
            Init::SetLen => "set-len",
        }
    }
}

impl SyncCall {
    pub(crate) const ALL: [SyncCall; 4] =
        [SyncCall::Fdatasync, SyncCall::Dsync, SyncCall::SyncFileRange, SyncCall::None];

    pub(crate) fn name(self) -> &'static str {
        match self {
            SyncCall::Fdatasync => "fdatasync",
            SyncCall::Dsync => "dsync",
            SyncCall::SyncFileRange => "sync-file-range",
            SyncCall::None => "none",
        }
    }
}

/// The bytes of a record: its number, then bytes unique to it.
fn record(number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let mut state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.as_chunks_mut::<8>().0 {
        state = state.rotate_left(23).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (state >> 32);
        *word = state.to_le_bytes();
    }
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn place(number: u64) -> u64 {
    number * RECORD_BYTES as u64
}

pub(crate) fn write(args: &WriteRecordsArgs) -> ExitCode {
    let done = if args.prepare { prepare(args) } else { write_all(args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::note(&format!("cannot write {}: {error}", args.file.display()));
            ExitCode::from(ENVIRONMENT)
        }
    }
}

/// Creates the file, and makes its existence durable.
fn prepare(args: &WriteRecordsArgs) -> io::Result<()> {
    let file = File::create(&args.file)?;
    match args.init {
        Init::SetLen => file.set_len(place(args.count))?,
        Init::Zeroes => {
            let zeroes = vec![0; 1 << 20];
            let mut at = 0;
            while at < place(args.count) {
                let left = usize::try_from(place(args.count) - at).map_err(io::Error::other)?;
                let count = left.min(zeroes.len());
                file.write_all_at(&zeroes[..count], at)?;
                at += count as u64;
            }
        }
    }
    file.sync_all()?;
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_all(args: &WriteRecordsArgs) -> io::Result<()> {
    if std::fs::metadata(&args.file).map(|found| found.len()).ok() != Some(place(args.count)) {
        prepare(args)?;
    }
    let flags = if args.sync == SyncCall::Dsync { libc::O_DSYNC } else { 0 };
    let file = OpenOptions::new().write(true).custom_flags(flags).open(&args.file)?;
    let mut acknowledgements = io::stdout().lock();
    for number in 0..args.count {
        file.write_all_at(&record(number), place(number))?;
        match args.sync {
            SyncCall::Fdatasync => file.sync_data()?,
            SyncCall::SyncFileRange => platform::sync_file_range(&file, place(number), RECORD_BYTES as u64)?,
            SyncCall::Dsync | SyncCall::None => {}
        }
        acknowledgements.write_all(format!("ack {number}\n").as_bytes())?;
        acknowledgements.flush()?;
    }
    Ok(())
}

pub(crate) fn check(args: &CheckRecordsArgs) -> ExitCode {
    match lost(args) {
        Ok((acknowledged, lost)) if lost.is_empty() => {
            report::line(&format!("{acknowledged} acknowledged, all there"));
            ExitCode::SUCCESS
        }
        Ok((acknowledged, lost)) => {
            let first = lost.first().copied().unwrap_or_default();
            report::line(&format!("{acknowledged} acknowledged, {} lost, the first is {first}", lost.len()));
            ExitCode::from(DATA_LOST)
        }
        Err(error) => {
            report::line(&format!("cannot read {}: {error}", args.file.display()));
            ExitCode::from(DATA_LOST)
        }
    }
}

/// The number of acknowledged records, and the missing ones.
fn lost(args: &CheckRecordsArgs) -> io::Result<(u64, Vec<u64>)> {
    let text = std::fs::read_to_string(&args.ack)?;
    // An incomplete line of a killed writer acknowledges nothing.
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let acknowledged = whole.filter_map(|line| line.strip_prefix("ack ")?.parse::<u64>().ok()).max();
    let Some(last) = acknowledged else { return Ok((0, Vec::new())) };
    let file = File::open(&args.file)?;
    let mut lost = Vec::new();
    for number in 0..=last {
        let mut found = [0; RECORD_BYTES];
        let read = file.read_exact_at(&mut found, place(number));
        if read.is_err() || found != record(number) {
            lost.push(number);
        }
    }
    Ok((last + 1, lost))
}
