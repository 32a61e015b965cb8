//! Repair of corrupt databases (D2, D4): whatever is corrupt, the rest is repaired, and every loss is
//! reported.

use std::sync::Arc;

use duramen::Code;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_sim::contents::Dice;
use duramen_sim::corruption::files_of;
use duramen_sim::part::Part;
use duramen_sim::repair::{
    DATABASE, REPAIRED, Report, Specimen, Stored, blocks, closed, flips, killed, open, options, ranges,
};

const SEED: u64 = 35;

/// One byte of so many: the whole sweep is a long run (docs/testing.md).
const EVERY: u64 = 127;

/// Random corruptions of each database: a thousand and more are a long run.
const RANGES: u64 = 60;

fn check(specimen: &Specimen, report: &Report) {
    println!("{}: {report}", specimen.name);
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
    let counts = [report.whole_count, report.rows_lost_count, report.names_lost_count];
    assert!(counts.iter().all(|count| *count > 0), "the sweep met every outcome: {report}");
}

// Rows invented by a repair, or lost without a report, are noticed only when the corrupt database is long
// gone.
#[test]
fn a_closed_database_with_a_flipped_bit_is_repaired_but_for_what_is_named() {
    let specimen = closed(SEED);
    check(&specimen, &flips(&specimen, SEED, EVERY, Part::ALL, 1));
}

#[test]
fn a_killed_database_with_a_flipped_bit_is_repaired_but_for_what_is_named() {
    let specimen = killed(SEED);
    let report = flips(&specimen, SEED, EVERY, Part::ALL, 1);
    check(&specimen, &report);
    assert!(report.commits_lost_count > 0, "the log was corrupt before its end: {report}");
}

#[test]
fn zeroed_blocks_a_file_cut_short_and_reads_that_fail_cost_what_is_named() {
    for specimen in [closed(SEED), killed(SEED)] {
        let report = blocks(&specimen);
        check(&specimen, &report);
        assert!(report.found_row_count > 0, "current pages without pointers were found: {report}");
        assert!(report.set_back_count > 0, "some leaf lies where an older one lay: {report}");
    }
}

// A disk that dies takes whole ranges with it. What it leaves must be saved, and nothing else be taken
// for it.
#[test]
fn every_row_of_a_whole_page_outlives_cuts_zeroes_and_flips() {
    let mut total = Report::default();
    for specimen in [closed(SEED), killed(SEED)] {
        let report = ranges(&specimen, SEED, RANGES, Part::ALL, 1);
        check(&specimen, &report);
        total.add(report);
    }
    assert!(total.uncertain_row_count > 0, "pages were found without pointers to them: {total}");
}

/// A repair under power cuts: the trace is that of a complete one.
#[test]
fn a_repair_is_whole_or_does_not_open() {
    let specimen = killed(SEED);
    let disk = specimen.disk.deep_clone();
    disk.record();
    let told = options().repair_on(Arc::new(disk.clone()), DATABASE, REPAIRED, |_| Ok(())).unwrap();
    assert!(told.is_whole(), "{told:?}");
    let acknowledged = disk.recorded_len();
    let whole = Stored::of(&open(&disk, REPAIRED).unwrap()).unwrap();
    let (trace, mut dice) = (disk.trace(), Dice::new(SEED));
    let (mut there, mut not) = (0, 0);
    for at in (0..=acknowledged).filter(|at| *at < 60 || at % 11 == 0 || *at + 60 > acknowledged) {
        let random = if at < 60 { 6 } else { 1 };
        let random = (0..random).map(|_| CrashChoice::Random { seed: dice.below(u64::MAX) });
        for choice in [CrashChoice::None, CrashChoice::All].into_iter().chain(random.collect::<Vec<_>>()) {
            let after = trace.crash_image(at, &choice);
            match duramen::Db::options().create(false).open_on(Arc::new(after.clone()), REPAIRED) {
                Ok(new) => {
                    let found = Stored::of(&new).unwrap();
                    assert!(found == whole, "less passes for the repair after {at}, {choice:?}");
                    there += 1;
                }
                Err(error) => {
                    assert!(at < acknowledged, "acknowledged, and {error}");
                    let unborn = [Code::UnfinishedCopy, Code::NoSuchDatabase, Code::NotADatabase];
                    assert!(unborn.contains(&error.code()), "{at}, {choice:?}: {error}");
                    not += 1;
                }
            }
            let old = |disk: &MemDisk| {
                let mut files = files_of(disk);
                files.retain(|(path, _)| path.starts_with("/db/"));
                files
            };
            assert_eq!(old(&after), old(&specimen.disk), "what was repaired from is what it was");
        }
    }
    assert!(there > 0 && not > 0, "{there} there, {not} not");
}
