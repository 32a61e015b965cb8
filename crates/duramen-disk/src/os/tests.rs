//! The loops around partial, interrupted and failing calls.
//!
//! They are driven by scripted calls, because no real disk fails on request. D7 rests on the correctness of
//! `may_be_partial`.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind};

#[cfg(target_os = "linux")]
use super::platform;
use super::{Unfinished, WriteSome, dsync_failure, is_untouched, write_loop};
use crate::{DurableWriteError, WriteError};

/// The next result of the fake call: bytes taken, or an error.
type Answer = Result<usize, ErrorKind>;

thread_local! {
    static ANSWERS: RefCell<VecDeque<Answer>> = const { RefCell::new(VecDeque::new()) };
    static CALLS: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
}

fn answer(_file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    CALLS.with_borrow_mut(|calls| calls.push((bytes.len(), offset)));
    ANSWERS.with_borrow_mut(|answers| answers.pop_front().unwrap()).map_err(io::Error::from)
}

/// Writes `bytes` at offset 1000 times `step` with these results. Returns the outcome and each call made.
fn run(bytes: usize, step: usize, answers: &[Answer]) -> (Result<(), WriteError>, Vec<(usize, u64)>) {
    ANSWERS.with_borrow_mut(|queue| *queue = answers.iter().copied().collect());
    CALLS.with_borrow_mut(Vec::clear);
    let file = tempfile::tempfile().unwrap();
    let call: WriteSome = answer;
    let result = write_loop(&file, call, &vec![0; bytes], 0, step);
    ANSWERS.with_borrow(|queue| assert!(queue.is_empty(), "all answers are used"));
    (result.map_err(|unfinished| unfinished.error), CALLS.take())
}

#[test]
fn partial_and_interrupted_writes_go_on_where_they_stopped() {
    let (result, calls) = run(10, 1, &[Ok(3), Err(ErrorKind::Interrupted), Ok(7)]);
    result.unwrap();
    assert_eq!(calls, [(10, 0), (7, 3), (7, 3)]);
    assert!(run(0, 1, &[]).0.is_ok());
}

#[test]
fn partial_direct_write_resumes_at_a_block() {
    let (result, calls) = run(12_288, 4096, &[Ok(5000), Ok(8192)]);
    result.unwrap();
    assert_eq!(calls, [(12_288, 0), (8192, 4096)]);
}

#[test]
fn failed_write_says_whether_bytes_may_have_been_taken() {
    let cases: [(usize, &[Answer], bool); 15] = [
        (1, &[Err(ErrorKind::StorageFull)], false),
        (1, &[Err(ErrorKind::QuotaExceeded)], false),
        (1, &[Err(ErrorKind::FileTooLarge)], false),
        (1, &[Ok(1), Err(ErrorKind::FileTooLarge)], true),
        // A file system that shuts down may notice so after the copy.
        (1, &[Err(ErrorKind::ReadOnlyFilesystem)], true),
        (1, &[Err(ErrorKind::PermissionDenied)], true),
        (1, &[Err(ErrorKind::InvalidInput)], true),
        (4096, &[Err(ErrorKind::QuotaExceeded)], true),
        (4096, &[Err(ErrorKind::FileTooLarge)], true),
        (1, &[Ok(1), Err(ErrorKind::StorageFull)], true),
        // An input/output error may come after some pages were taken.
        (1, &[Err(ErrorKind::Other)], true),
        (1, &[Ok(0)], false),
        (1, &[Ok(2), Ok(0)], true),
        // A write past the cache may find the disk full after some blocks were written.
        (4096, &[Err(ErrorKind::StorageFull)], true),
        (4096, &[Ok(100)], true),
    ];
    for (step, answers, partial) in cases {
        let error = run(8192, step, answers).0.unwrap_err();
        assert_eq!(error.may_be_partial, partial, "step {step}, {answers:?}");
    }
}

/// D6: after a failed call that writes and syncs, bytes may be in the cache whatever the error is. If it were
/// taken for a refusal, the log would stay where it was. A commit reported as failed could then be there
/// after a restart.
#[test]
fn a_failed_write_and_sync_is_in_doubt() {
    let failure = |kind, is_begun, has_worked| {
        // As a failed write reports it.
        let source = io::Error::from(kind);
        let error = WriteError { may_be_partial: is_begun || !is_untouched(&source, false), source };
        dsync_failure(Unfinished { error, is_begun }, has_worked)
    };
    let kinds = [
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::PermissionDenied,
        ErrorKind::InvalidInput,
        ErrorKind::FileTooLarge,
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::Interrupted,
        ErrorKind::Other,
    ];
    for kind in kinds {
        for (is_begun, has_worked) in [(false, false), (false, true), (true, true)] {
            let failed = failure(kind, is_begun, has_worked);
            assert!(matches!(failed, Some(DurableWriteError::Sync(_))), "{kind}: {failed:?}");
        }
    }
    assert!(failure(ErrorKind::Unsupported, false, false).is_none(), "done in two calls from then on");
    // Once it has worked, "not supported" is the device's error for the sync.
    for (is_begun, has_worked) in [(false, true), (true, false)] {
        let failed = failure(ErrorKind::Unsupported, is_begun, has_worked);
        assert!(matches!(failed, Some(DurableWriteError::Sync(_))), "{failed:?}");
    }
}

/// The first call shows that the system has no call that writes and syncs. Two calls are made from then on.
#[test]
fn a_system_without_a_write_that_syncs_is_served_by_two_calls() {
    ANSWERS.with_borrow_mut(|queue| *queue = [Err(ErrorKind::Unsupported)].into());
    let call: WriteSome = answer;
    let refused = write_loop(&tempfile::tempfile().unwrap(), call, &[0; 10], 0, 1).unwrap_err();
    assert!(dsync_failure(refused, false).is_none());
    ANSWERS.with_borrow_mut(|queue| *queue = [Ok(4), Err(ErrorKind::Unsupported)].into());
    let begun = write_loop(&tempfile::tempfile().unwrap(), call, &[0; 10], 0, 1).unwrap_err();
    assert!(matches!(dsync_failure(begun, false), Some(DurableWriteError::Sync(_))));
}

/// D6: the device reports the loss of pages once, when they are written out. `EINVAL` and `EPERM` are also
/// the errors of a system without that call. Taken for that, the loss would reach no caller, and the next
/// sync would return `Ok`.
#[cfg(target_os = "linux")]
#[test]
fn a_page_that_could_not_be_written_out_is_told_whatever_the_error_is() {
    for errno in [libc::ENOSYS, libc::EINVAL, libc::ESPIPE, libc::EPERM] {
        let error = || Err(io::Error::from_raw_os_error(errno));
        let told = platform::write_out_by(&|flags| if flags == 0 { Ok(()) } else { error() });
        assert_eq!(told.unwrap_err().raw_os_error(), Some(errno), "of the pages");
        platform::write_out_by(&|_| error()).expect("no such call, or not allowed");
    }
    for errno in [libc::EIO, libc::EOPNOTSUPP] {
        let told = platform::write_out_by(&|_| Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(told.unwrap_err().raw_os_error(), Some(errno));
    }
}

/// A file opened for reading refuses a durable write as a whole. So does a file past the cache with an
/// unaligned write.
#[cfg(target_os = "linux")]
#[test]
fn what_is_refused_before_a_byte_is_taken_is_no_doubt() {
    use crate::{Access, Disk, OpenMode, OsDisk, SyncMethod};
    let dir = tempfile::tempdir_in(".").unwrap();
    let path = dir.path().join("file");
    fs::write(&path, [0; 8192]).unwrap();
    for (mode, sync, bytes) in
        [(OpenMode::Read, SyncMethod::Dsync, 4096), (OpenMode::Write, SyncMethod::DirectDsync, 100)]
    {
        let opened = OsDisk::new().open(&path, Access { mode, sync });
        // Not every file system lets its cache be bypassed.
        let Ok(file) = opened else { continue };
        match file.write_durable_at(&vec![1; bytes], 0) {
            Err(DurableWriteError::Write(error)) => assert!(!error.may_be_partial, "{sync:?}"),
            other => panic!("{sync:?}: {other:?}"),
        }
    }
    assert_eq!(fs::read(&path).unwrap(), [0; 8192]);
}

#[test]
fn aligned_memory_is_aligned_and_reused() {
    use super::aligned::{ALIGN_BYTES, AlignedPool, is_aligned};
    let pool = AlignedPool::default();
    let first = pool.with(10_000, |bytes| {
        assert_eq!((bytes.len(), is_aligned(bytes)), (10_000, true));
        bytes.as_ptr()
    });
    assert_eq!(pool.with(ALIGN_BYTES, |bytes| bytes.as_ptr()), first);
    // A nested call gets memory of its own.
    pool.with(1, |_| pool.with(1, |bytes| assert!(is_aligned(bytes))));
    pool.with(10 << 20, |bytes| assert!(is_aligned(bytes)));
}

#[cfg(target_os = "linux")]
#[test]
fn file_systems_are_known_by_number() {
    use super::platform::name_of;
    let check = |magic, name, network| {
        let known = name_of(magic).unwrap();
        assert_eq!((known.name, known.network), (name, network));
    };
    check(0xef53, "ext4", false);
    check(0x5846_5342, "xfs", false);
    check(0x0102_1994, "tmpfs", false);
    check(0x794c_7630, "overlay", false);
    check(0x6969, "nfs", true);
    check(0x0102_1997, "9p", true);
    check(0x6573_5546, "fuse", true);
    check(0xff53_4d42, "cifs", true);
    assert_eq!(name_of(1), None);
}

/// A system that does not name file system types must not look like a network: no database would open there.
#[cfg(target_os = "linux")]
#[test]
fn other_systems_do_not_call_every_file_system_a_network() {
    let directory = tempfile::tempdir().unwrap();
    let found = super::portable::file_system(directory.path()).unwrap();
    assert_eq!((found.name.as_str(), found.network), ("unknown (this system does not say)", None));
    assert!(!found.read_only);
    assert!(found.free_bytes <= found.total_bytes);
    let missing = super::portable::file_system(&directory.path().join("none"));
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
}

/// D1 on other systems: a durable write is a write and a sync, because no call does both.
#[cfg(target_os = "linux")]
#[test]
fn other_systems_write_and_sync_with_the_standard_library() {
    use super::portable;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    let mut options = fs::OpenOptions::new();
    portable::private_file(options.read(true).write(true).create_new(true));
    let file = options.open(&path).unwrap();
    let refused = portable::write_dsync_at(&file, b"abc", 5);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(portable::write_at(&file, b"abc", 5).unwrap(), 3);
    portable::sync_data(&file).unwrap();
    portable::sync_dir(directory.path()).unwrap();
    assert_eq!(portable::sync_dir(&path).unwrap_err().kind(), ErrorKind::NotADirectory);
    let mut bytes = [9; 4];
    assert_eq!(portable::read_at(&file, &mut bytes, 4).unwrap(), 4);
    assert_eq!(&bytes, b"\0abc");
    assert_eq!(portable::set_direct(&file).unwrap_err().kind(), ErrorKind::Unsupported);
}
