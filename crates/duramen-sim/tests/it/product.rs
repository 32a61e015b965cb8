//! The product search in its quick form.

use duramen_sim::product::report::Report;
use duramen_sim::product::{QUICK, search};
use duramen_sim::seeds;

/// Distinct cuts that a test run must make in any case.
const DISTINCT_CUTS_MIN: u64 = 3_000;

/// Lives that are new for every commit of the repository, in addition to the fixed ones.
const FRESH_SEEDS: u64 = 4;

fn searched(range: std::ops::Range<u64>) -> Report {
    search(range, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// D1, D2: the power is cut in lives of databases with everything that a program can store.
///
/// Each time one whole state of the history is there, with everything promised. The database works on and
/// survives another cut.
#[test]
fn no_cut_loses_or_halves_anything_that_a_program_stored() {
    let fresh = seeds::of_this_commit("product", FRESH_SEEDS);
    println!("{fresh}");
    let mut report = searched(1..17);
    report.add(&searched(fresh.range.clone()));
    println!("{report}");
    assert_eq!(
        report.counts().unseen(),
        Vec::<&str>::new(),
        "no cut fell into these events, or was of these kinds"
    );
    assert!(report.distinct() >= DISTINCT_CUTS_MIN, "{} distinct cuts; {fresh}", report.distinct());
}
