//! The crash search in its quick form, and the small cases it has found.

mod found;

use std::collections::BTreeSet;

use duramen_sim::search::{QUICK, record, search, trace_hash};

/// Distinct cuts that a test run must make, whatever else changes.
const DISTINCT_CUTS_MIN: u64 = 20_000;

/// D1, D2, D3: the power is cut at every second operation of some fifty lives of a database; each time one state of
/// the history is there, whole, with everything promised, and the database goes on and survives another cut.
#[test]
fn no_cut_loses_what_was_promised_or_leaves_half_of_anything() {
    let report = search(1..49, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert_eq!(report.unseen(), Vec::<&str>::new(), "no cut fell into these phases");
    assert!(report.distinct() >= DISTINCT_CUTS_MIN, "{} distinct cuts", report.distinct());
}

/// A failure that cannot be made again is of no use: the same seed does the same to its disk, another seed does not.
#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| trace_hash(&record(seed).unwrap_or_else(|failure| panic!("{failure}")).trace);
    let hashes: BTreeSet<u64> = (1..6).map(hash).collect();
    assert_eq!(hashes.len(), 5);
    for seed in 1..6 {
        assert!(hashes.contains(&hash(seed)), "seed {seed} gave two different runs");
    }
}
