//! What the memory disk keeps and loses. An engine tested only on a disk that loses less than a real one
//! would lose data on a real one (D1).
#![allow(clippy::disallowed_methods, reason = "a sync in flight needs a thread of its own")]

mod crash;
mod faults;
mod replay;

use std::path::Path;
use std::sync::Arc;

use super::{CrashChoice, MemDisk};
use crate::{Access, Disk, File, SyncMethod};

const NONE: CrashChoice = CrashChoice::None;
const ALL: CrashChoice = CrashChoice::All;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn create(disk: &MemDisk, at: &str) -> Arc<dyn File> {
    disk.open(path(at), Access::CREATE).unwrap()
}

/// A disk with one durable file `/f` of these bytes, opened for writing.
fn with_file(bytes: &[u8], sync: SyncMethod) -> (MemDisk, Arc<dyn File>) {
    let disk = MemDisk::new(1);
    disk.write_file("/f", bytes).unwrap();
    let file = disk.open(path("/f"), Access { sync, ..Access::WRITE }).unwrap();
    (disk, file)
}

/// What a crash leaves of `/f`; `None` if the file is gone.
fn left(disk: &MemDisk, choice: CrashChoice) -> Option<Vec<u8>> {
    disk.crash(&choice).read_file("/f").ok()
}
