//! The search over requests in its quick form.

use duramen_sim::requests::{QUICK, Report, search};
use duramen_sim::seeds;

/// Distinct cuts that a test run must make in any case.
const DISTINCT_CUTS_MIN: u64 = 3_000;

/// Lives that are new for every commit of the repository, in addition to the fixed ones.
const FRESH_SEEDS: u64 = 6;

fn searched(range: std::ops::Range<u64>) -> Report {
    search(range, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// D1, D2: the power is cut while requests are tried, rest and are forgotten, and the clock jumps at each
/// opening. Each has had its effect once or never, and its outcome says which.
#[test]
fn no_cut_makes_a_request_run_twice_or_its_answer_untrue() {
    let fresh = seeds::of_this_commit("requests", FRESH_SEEDS);
    println!("{fresh}");
    let mut report = searched(1..61);
    report.add(&searched(fresh.range.clone()));
    println!("{report}");
    assert_eq!(report.counts().unseen(), Vec::<&str>::new(), "no request was told this");
    assert!(report.cuts >= DISTINCT_CUTS_MIN, "{} distinct cuts; {fresh}", report.cuts);
}
