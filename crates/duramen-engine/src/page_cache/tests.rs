//! The accounting of memory: what is given back was taken, or the alarm is raised.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::alarm::cause_of;

/// What is done must break an invariant whose message contains `what`.
fn raises(what: &str, done: impl FnOnce()) {
    let cause = cause_of(done);
    assert!(cause.contains(what), "{cause}");
}

#[test]
fn clean_bytes_were_dirty_before() {
    let meter = Arc::new(Meter::new(4 << 20));
    let charge = Charge::new(&meter, 100, Dirty::Leaf(4096));
    meter.dirty_bytes.store(1000, Ordering::Relaxed);
    raises("4096 clean bytes are among 1000 dirty ones", || charge.clean());
    meter.dirty_bytes.store(0, Ordering::Relaxed);
    drop(charge);
    assert_eq!(meter.resident_bytes(), 0);
}

#[test]
fn buffered_bytes_are_given_back_once() {
    let meter = Arc::new(Meter::new(4 << 20));
    let mut buffered = Buffered::new(&meter);
    buffered.queue(500);
    raises("queued once", || buffered.queue(600));
    assert_eq!(meter.buffered_bytes(), 500);
    meter.queued_bytes.store(400, Ordering::Relaxed);
    raises("500 bytes given back are among 400 buffered", || buffered.set(0));
    meter.queued_bytes.store(500, Ordering::Relaxed);
    drop(buffered);
    assert_eq!(meter.buffered_bytes(), 0);
}

#[test]
fn the_meter_counts_what_leaves_and_stays() {
    let meter = Arc::new(Meter::new(4 << 20));
    let charge = Charge::new(&meter, 100, Dirty::No);
    charge.leave();
    assert_eq!((meter.resident_bytes(), meter.waiting_bytes()), (0, 100));
    charge.stay();
    assert_eq!((meter.resident_bytes(), meter.waiting_bytes()), (100, 0));
    charge.leave();
    drop(charge);
    assert_eq!((meter.resident_bytes(), meter.waiting_bytes()), (0, 0));
}

/// An eviction that found too little is not repeated until there is something new to evict.
#[test]
fn nothing_is_evicted_in_vain_again() {
    let meter = Arc::new(Meter::new(4 << 20));
    let dirty = Charge::new(&meter, 4 << 20, Dirty::Leaf(4 << 20));
    meter.evict_again();
    assert!(meter.eviction_due());
    meter.evicted(false);
    meter.evict_again();
    assert!(!meter.eviction_due(), "all is dirty");
    drop(Charge::new(&meter, 4 << 20, Dirty::Leaf(4 << 20)));
    assert!(!meter.eviction_due(), "what was dropped is not there to be evicted");
    dirty.clean();
    assert!(meter.eviction_due(), "something has become clean");
    meter.evicted(false);
    (0..CALLS_WITHOUT_EVICTION + 2).for_each(|_| meter.evict_again());
    assert!(meter.eviction_due(), "time has passed");
}

/// At every size of memory some of it stays clean beside patches, and commits wait last.
#[test]
fn bounds_of_what_is_dirty_are_in_order() {
    for memory_mib in [4, 16, 64, 256, 1024, 65536] {
        let nodes = nodes_bytes_max(memory_mib << 20);
        for patch_percent in 0..=100 {
            let DirtyBounds { checkpoint_from, delay_from, wait_at } = DirtyBounds::new(nodes, patch_percent);
            assert!(
                checkpoint_from < delay_from && delay_from < wait_at,
                "{memory_mib} MiB, {patch_percent} %"
            );
            let clean = nodes - checkpoint_from;
            assert!(clean >= nodes / 100 * CLEAN_BESIDE_PATCHES_PERCENT * patch_percent / 100);
            assert!(clean <= nodes / 100 * CLEAN_PERCENT_MAX);
        }
    }
}
