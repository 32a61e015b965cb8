//! Lock files of the operating system.
//!
//! Owns the open file that holds the lock: `flock`, which belongs to the open file. A POSIX record lock would
//! be dropped by any close in the process (D8). The lock ends when all copies of the file's descriptor are
//! closed, or with an unlock of one of them. A child process has copies until it executes its program, so
//! closing would release the lock only then: the process that took the lock unlocks it. The text inside names
//! the last writer and decides nothing: that process may have ended, and readers write no text. So a refusal
//! names the processes that the kernel lists, where it does.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::process_id;
use crate::{Lock, LockError};

/// The most bytes of a holder's text that are shown to a refused process.
const HOLDER_BYTES_MAX: u64 = 1024;

/// The most lists of locks that are read to find a holder: one may be in a container that they do not show.
#[cfg(target_os = "linux")]
const LISTS_MAX: u32 = 4;

/// A lock held by an open file.
#[derive(Debug)]
struct OsLock {
    file: fs::File,
    /// The process that took the lock.
    process: u32,
}

/// Opens the file and takes its lock without waiting.
pub(super) fn take(options: &OpenOptions, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
    let file = options.open(path).map_err(LockError::Io)?;
    let taken = if exclusive { file.try_lock() } else { file.try_lock_shared() };
    match taken {
        Ok(()) => Ok(Box::new(OsLock { file, process: process_id() })),
        Err(TryLockError::WouldBlock) => Err(LockError::Held { holder: holder(&file) }),
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

/// Names the processes that hold the lock of a file.
fn holder(file: &fs::File) -> String {
    match listed_holders(file) {
        Some(holders) => named(&holders),
        None => last_writer(file),
    }
}

/// Words for these processes. None are listed if they are in another container, and on some file systems.
fn named(holders: &[u32]) -> String {
    let ids: Vec<String> = holders.iter().map(ToString::to_string).collect();
    match ids.as_slice() {
        [] => "another process".to_owned(),
        [id] => format!("process {id}"),
        ids => format!("processes {}", ids.join(", ")),
    }
}

/// The text of the last writer, for systems that list no locks.
fn last_writer(file: &fs::File) -> String {
    let mut text = Vec::new();
    // It is only informative, so a failure to read it is ignored.
    let _ = file.take(HOLDER_BYTES_MAX).read_to_end(&mut text);
    match String::from_utf8_lossy(&text).trim() {
        "" => "another process".to_owned(),
        last => format!("another process; the last that wrote was {last}"),
    }
}

/// The processes that hold a lock of this file. `None` if the system does not list them.
#[cfg(target_os = "linux")]
fn listed_holders(file: &fs::File) -> Option<Vec<u32>> {
    use std::os::unix::fs::MetadataExt;

    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let wanted = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let mut holders = Vec::new();
    // A list of several reads lacks a lock if one before it was released between two of them.
    for _ in 0..LISTS_MAX {
        holders = holders_in(&all_locks().ok()?, &wanted);
        if !holders.is_empty() {
            break;
        }
    }
    Some(holders)
}

/// The kernel's list of locks. A read gives at most a page of it and continues by the number of the line, so
/// the reads are few: those of `fs::read_to_string` begin with 32 bytes.
#[cfg(target_os = "linux")]
fn all_locks() -> io::Result<String> {
    let mut file = fs::File::open("/proc/locks")?;
    let (mut text, mut page) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut page)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            bytes => text.extend_from_slice(&page[..bytes]),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn listed_holders(_: &fs::File) -> Option<Vec<u32>> {
    None
}

/// The processes that hold a lock of a file, `MAJOR:MINOR:INODE`, in a text such as `/proc/locks`. Lines of
/// waiting processes have an arrow.
#[cfg(target_os = "linux")]
fn holders_in(locks: &str, file: &str) -> Vec<u32> {
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, locked, ..] = words[..] else { return None };
        process.parse().ok().filter(|_| locked == file)
    };
    let mut holders: Vec<u32> = locks.lines().filter_map(holder).collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

impl Lock for OsLock {
    fn set_holder(&self, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // A forked process has a copy of the handle, and does not end its parent's lock by dropping it.
        if self.process == process_id() {
            // If the unlock fails, closing the file releases the lock, unless a child has a copy.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    //! A refusal names processes that hold the lock, and no others. A child process with a copy of the lock's
    //! file neither keeps the lock nor ends it.
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn refused(path: &Path, exclusive: bool) -> String {
        match take(&options(), path, exclusive) {
            Err(LockError::Held { holder }) => holder,
            taken => panic!("the lock is held, and was {taken:?}"),
        }
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options
    }

    #[test]
    fn a_released_lock_is_free_though_a_child_has_a_copy_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let file = options().open(&path).unwrap();
        file.try_lock().unwrap();
        // As in a child between fork and exec: the same open file under another descriptor.
        let copy = file.try_clone().unwrap();
        drop(OsLock { file, process: process_id() });
        drop(take(&options(), &path, true).expect("the lock was released"));
        drop(copy);
    }

    #[test]
    #[allow(unsafe_code, reason = "a look between fork and exec")]
    fn a_forked_process_that_drops_its_copy_does_not_end_the_lock() {
        use std::os::unix::process::CommandExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut lock = Some(take(&options(), &path, true).unwrap());
        let mut command = std::process::Command::new("true");
        // SAFETY: the closure makes system calls and frees memory, which glibc and musl allow after a fork.
        unsafe {
            command.pre_exec(move || {
                drop(lock.take());
                Ok(())
            })
        };
        assert!(command.status().unwrap().success());
        assert_eq!(refused(&path, true), format!("process {}", std::process::id()));
        // With the command goes the closure, and with it this process's lock.
        drop(command);
        drop(take(&options(), &path, true).expect("the lock was released"));
    }

    #[test]
    fn a_reader_is_named_and_the_writer_before_it_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        take(&options(), &path, true).unwrap().set_holder("process 4194305").unwrap();
        let _reader = take(&options(), &path, false).unwrap();
        assert_eq!(refused(&path, true), format!("process {}", std::process::id()));
    }

    #[test]
    fn a_holder_is_named_while_other_locks_come_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let _held = take(&options(), &path, true).unwrap();
        let this = format!("process {}", std::process::id());
        let other = directory.path().join("other");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(take(&options(), &other, true).unwrap());
                }
            });
            let names: Vec<String> = (0..2_000).map(|_| refused(&path, true)).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(names.iter().all(|name| *name == this), "{names:?}");
        });
    }

    #[test]
    fn locks_of_other_files_other_kinds_and_waiting_processes_are_left_out() {
        let locks = "1: FLOCK  ADVISORY  READ 700 fe:00:12 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 701 fe:00:12 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 702 fe:00:12 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 703 fe:00:123 0 EOF\n\
                     4: POSIX  ADVISORY  WRITE 704 fe:00:12 0 EOF\n\
                     5: OFDLCK ADVISORY  WRITE -1 fe:00:12 0 EOF\n";
        assert_eq!(holders_in(locks, "fe:00:12"), [700, 702]);
        assert_eq!(named(&[700, 702]), "processes 700, 702");
        assert_eq!(named(&holders_in(locks, "fe:00:9")), "another process");
    }

    #[test]
    fn without_a_list_the_last_writer_is_called_that() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        fs::write(&path, "process 7\n").unwrap();
        let check = |text: &str| assert_eq!(last_writer(&fs::File::open(&path).unwrap()), text);
        check("another process; the last that wrote was process 7");
        fs::write(&path, "").unwrap();
        check("another process");
    }
}
