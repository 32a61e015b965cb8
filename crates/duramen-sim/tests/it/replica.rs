//! The search over a node of a cluster in its quick form.

use duramen_sim::replica::{QUICK, Report, search};
use duramen_sim::seeds;

/// Distinct cuts that a test run must make in any case.
const DISTINCT_CUTS_MIN: u64 = 5_000;

/// Lives that are new for every commit of the repository, in addition to the fixed ones.
const FRESH_SEEDS: u64 = 6;

fn searched(range: std::ops::Range<u64>) -> Report {
    search(range, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// R1, R2, D1, D2: the power is cut while a majority decides, refuses, cuts and changes terms. The database
/// is what was decided, all of it and nothing else, and no waiting call is told another fate than its own.
#[test]
fn no_cut_makes_a_node_forget_or_invent_what_was_decided() {
    let fresh = seeds::of_this_commit("replica", FRESH_SEEDS);
    println!("{fresh}");
    let mut report = searched(1..55);
    report.add(&searched(fresh.range.clone()));
    println!("{report}");
    assert_eq!(report.counts().unseen(), Vec::<&str>::new(), "no life met this");
    assert!(report.cuts >= DISTINCT_CUTS_MIN, "{} distinct cuts; {fresh}", report.cuts);
}
