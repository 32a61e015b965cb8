//! The crash search on a disk whose calls fail, in its quick form.

mod found;

use std::ops::Range;

use duramen_sim::faulty::report::Report;
use duramen_sim::faulty::{QUICK, search};
use duramen_sim::seeds;

/// Distinct cuts that a test run must make in any case.
const DISTINCT_CUTS_MIN: u64 = 2_000;

/// Kinds of faults, consequences and choices that these few lives may miss. The rarest, lies of the medium,
/// come once in some twenty lives. No kind may be missed by all slices of `scripts/prove` together.
const UNSEEN_MAX: usize = 3;

/// Lives that are new for every commit of the repository, in addition to the fixed ones.
const FRESH_SEEDS: u64 = 4;

fn searched(range: Range<u64>) -> Report {
    search(range, &QUICK, 2, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// D1, D2, D4, D6, D7: seeded lives on a disk whose calls fail, once or for good, and on media that lie.
///
/// Disks are full, failed syncs lose what they covered, wholly or in part, and pages read as old ones
/// afterwards. The power is cut, and recoveries meet faults, too. Acknowledged commits are there, refused
/// ones are not, and a lie is reported or does no harm.
#[test]
fn no_fault_loses_what_was_promised_and_no_lie_is_served() {
    let fresh = seeds::of_this_commit("faulty", FRESH_SEEDS);
    println!("{fresh}");
    let mut report = searched(1..17);
    report.add(&searched(fresh.range.clone()));
    println!("{report}");
    assert!(report.distinct() >= DISTINCT_CUTS_MIN, "{} distinct cuts; {fresh}", report.distinct());
    let counts = report.counts();
    let unseen = counts.unseen();
    assert!(unseen.len() <= UNSEEN_MAX, "no cut fell into: {unseen:?}; {fresh}");
}
