//! The crash search in its quick form, and the small cases it has found.

mod again;
mod found;

use duramen_sim::search::report::Report;
use duramen_sim::search::{QUICK, search};
use duramen_sim::seeds;

/// Distinct cuts that a test run must make in any case.
const DISTINCT_CUTS_MIN: u64 = 20_000;

/// Lives that are new for every commit of the repository, in addition to the fixed ones.
const FRESH_SEEDS: u64 = 6;

fn searched(range: std::ops::Range<u64>) -> Report {
    search(range, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// D1, D2, D3: the power is cut at every second operation of forty lives of a database.
///
/// Each time one whole state of the history is there, with everything promised. The database works on and
/// survives another cut. Some lives have their log on another disk, which keeps and loses pending changes
/// separately. All sync methods occur. Six of the lives are new for every commit of the repository.
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
