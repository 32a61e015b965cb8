//! The fault sweep over whole databases: every storage call fails (D1, D2, D6), and the disk fills up (D7).

use duramen_disk::SyncMethod;
use duramen_disk::memory::CallKind;
use duramen_sim::faults::{FullReport, Report, full_disk, sweep};

const SEED: u64 = 6;

fn check(report: &Report, kinds: &[CallKind]) {
    println!("seed {SEED}: {report}");
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
    for kind in kinds {
        assert!(report.failed_calls[*kind as usize] > 0, "no {kind:?} failed: {report}");
    }
    assert!(report.poisoned_count > 0, "syncs failed: {report}");
    assert!(report.in_doubt_kept_count > 0, "a commit in doubt was there: {report}");
    assert!(report.in_doubt_kept_count < report.in_doubt_count, "another was not: {report}");
    assert!(report.full_count > 0, "the disk was full: {report}");
}

#[test]
fn any_failed_call_loses_nothing_acknowledged_and_a_failed_sync_ends_all_acknowledgement() {
    let kinds = [
        CallKind::Open,
        CallKind::Create,
        CallKind::CreateDir,
        CallKind::SyncDir,
        CallKind::Rename,
        CallKind::Kind,
        CallKind::Lock,
        CallKind::Read,
        CallKind::Write,
        CallKind::Sync,
        CallKind::Len,
        CallKind::SetLen,
        CallKind::Reserve,
    ];
    check(&sweep(SEED, SyncMethod::Fdatasync, 1), &kinds);
}

#[test]
fn any_failed_durable_write_loses_nothing_acknowledged() {
    check(&sweep(SEED, SyncMethod::Dsync, 3), &[CallKind::Write, CallKind::Sync]);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing_deletes_and_checkpoints_and_works_again_with_room() {
    for seed in 1..=4u64 {
        for room_bytes in [0, 32 * 1024, 100 * 1024, 300 * 1024, 1024 * 1024] {
            let report = full_disk(seed, SyncMethod::Fdatasync, room_bytes + seed * 4096);
            let FullReport { refused_count, commit_count, resumed_count, violations } = &report;
            println!("seed {seed}, room {room_bytes}: {commit_count} commits, {refused_count} refused");
            assert!(violations.is_empty(), "seed {seed}, room {room_bytes}: {}", violations.join("\n"));
            assert!(*refused_count > 0, "the disk was full");
            assert!(*resumed_count > 0, "commits work again");
        }
    }
}
