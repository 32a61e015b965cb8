//! The crash search in its quick form, and the small cases it has found.

mod again;
mod found;

use duramen_sim::search::report::Report;
use duramen_sim::search::{QUICK, search};
use duramen_sim::seeds;

/// Distinct cuts that a test run must make, whatever else changes.
const DISTINCT_CUTS_MIN: u64 = 20_000;

/// Lives that every commit has for itself, besides those of all commits.
const FRESH_SEEDS: u64 = 6;

fn searched(range: std::ops::Range<u64>) -> Report {
    search(range, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// D1, D2, D3: the power is cut at every second operation of forty lives of a database; each time one state of
/// the history is there, whole, with everything promised, and the database goes on and survives another cut. Some
/// have their log on another disk, which keeps and loses what is pending by itself; all ways of syncing occur. Six of
/// the lives are other ones for every commit.
#[test]
fn no_cut_loses_what_was_promised_or_leaves_half_of_anything() {
    let fresh = seeds::of_this_commit("search", FRESH_SEEDS);
    println!("{fresh}");
    let mut report = searched(1..35);
    report.add(&searched(fresh.range.clone()));
    println!("{report}");
    assert_eq!(
        report.counts().unseen(),
        Vec::<&str>::new(),
        "no cut fell into these phases, or was of these kinds"
    );
    assert!(report.distinct() >= DISTINCT_CUTS_MIN, "{} distinct cuts; {fresh}", report.distinct());
}
