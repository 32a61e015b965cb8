//! The corruption sweep over whole databases (D3, D4, D5): each flipped bit, each old or foreign part, is an
//! error that names it, or has no effect.

use duramen_sim::corruption::{Bits, Report, Specimen, closed, flips, killed, rearrangements};
use duramen_sim::part::Part;

const SEED: u64 = 35;

fn check(specimen: &Specimen, report: &Report) {
    println!("{}: {report}", specimen.name);
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
    let counts = [report.right_count, report.went_on_count, report.refused_count];
    assert!(counts.iter().all(|count| *count > 0), "the sweep met every outcome: {report}");
}

#[test]
fn every_flipped_byte_of_a_closed_database_is_named_or_harmless() {
    let specimen = closed(SEED);
    let report = flips(&specimen, SEED, Bits::OnePerByte, Part::ALL, 1);
    check(&specimen, &report);
    assert!(report.partly_refused_count > 0, "pages were corrupt: {report}");
}

#[test]
fn every_flipped_byte_of_a_killed_database_is_named_or_harmless() {
    let specimen = killed(SEED);
    let report = flips(&specimen, SEED, Bits::OnePerByte, Part::ALL, 1);
    check(&specimen, &report);
    assert!(report.older_count > 0, "groups after the newest durable watermark were corrupted: {report}");
}

#[test]
fn parts_that_are_old_swapped_cut_or_of_a_stranger_are_named_or_harmless() {
    for specimen in [closed(SEED), killed(SEED)] {
        let report = rearrangements(&specimen, SEED);
        check(&specimen, &report);
    }
}
