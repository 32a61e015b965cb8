//! Registered roots and what was freed: a broken order raises the alarm (D3, I1).
#![allow(clippy::unwrap_used)]

use std::path::Path;

use duramen_disk::{Access, Disk, MemDisk};

use super::*;
use crate::alarm::cause_of;
use crate::catalog::TreeTable;
use crate::data_file::DataFile;
use crate::ids::DatabaseId;

fn registry() -> Arc<Registry> {
    let file = MemDisk::new(1).open(Path::new("/data"), Access::CREATE).unwrap();
    Registry::new(Pages::new(DataFile::new(file, Path::new("/data"), DatabaseId(7), 512), 4 << 20))
}

fn root(seq: u64, rollback_epoch: u64) -> Arc<Root> {
    let (trees, position) = (TreeTable::default(), OnceLock::new());
    Arc::new(Root { seq: CommitSeq(seq), rollback_epoch, time_ns: 0, trees, position })
}

/// D3: pages that only roots before a commit have were freed. None of those roots is registered afterwards.
#[test]
fn no_root_from_before_what_was_freed_is_registered() {
    let registry = registry();
    let early = registry.register(&Newest::new(root(4, 0)));
    assert_eq!(
        registry.held_before_freeing(CommitSeq(5)),
        [CommitSeq(4)],
        "it is listed, and keeps its pages"
    );
    let copy = early.clone();
    drop(registry.register(&Newest::new(root(5, 0))));
    let why = cause_of(|| drop(registry.register(&Newest::new(root(4, 0)))));
    assert!(why.contains("the root of commit 4 has the pages that 5 has"), "{why}");
    drop((early, copy));
    assert!(registry.held().is_empty());
}

#[test]
fn the_newest_root_gives_way_to_a_newer_one_only() {
    for (seq, epoch) in [(9, 0), (3, 1)] {
        let newest = Newest::new(root(4, 0));
        // Without forgotten trees, then after dropped commits.
        [(4, 0), (5, 0), (4, 1)].into_iter().for_each(|(seq, epoch)| newest.set(root(seq, epoch)));
        let why = cause_of(|| newest.set(root(seq, epoch)));
        assert!(why.contains(&format!("({epoch}, {seq}) follows (1, 4)")), "{why}");
        assert_eq!(newest.get().seq, CommitSeq(4), "the newer one stays");
    }
}

fn set_users(registration: &Registration, users: usize) {
    locked(registration.shard().entries.lock()).iter_mut().for_each(|entry| entry.users = users);
}

#[test]
fn a_registration_is_counted_until_it_ends() {
    let registration = registry().register(&Newest::new(root(4, 0)));
    set_users(&registration, 0);
    assert!(cause_of(|| drop(registration.clone())).contains("the root of commit 4 has a reader"));
    set_users(&registration, 1);
    drop(registration);
    let registration = registry().register(&Newest::new(root(4, 0)));
    set_users(&registration, 0);
    assert!(cause_of(|| drop(registration)).contains("has a reader that leaves"));
}
