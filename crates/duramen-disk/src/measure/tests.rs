//! Figures of known samples, and every strategy on the file system of the tests.
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn figures_of_known_samples() {
    let samples: Vec<u64> = (1..=1000).rev().collect();
    let summary = Summary::of(&samples).unwrap();
    assert_eq!((summary.count, summary.min, summary.max), (1000, 1, 1000));
    assert_eq!((summary.p50, summary.p90, summary.p99), (500, 900, 990));
    assert_eq!((summary.p999, summary.p9999), (999, 1000));
    assert!((summary.avg - 500.5).abs() < 1e-9 && (summary.stddev - 288.675).abs() < 0.001);
    assert_eq!(summary.outliers, 0);
    assert_eq!(Summary::of(&[]), None);

    let mut steady = vec![100; 999];
    steady.push(10_000);
    let summary = Summary::of(&steady).unwrap();
    assert_eq!((summary.outliers, summary.p99, summary.p9999), (1, 100, 10_000));
    assert_eq!(Summary::of(&[7]).unwrap().p9999, 7);
}

#[test]
fn the_rounds_agree_as_far_as_their_medians() {
    let rounds = vec![vec![10, 20, 30], vec![12, 40, 80], vec![9, 9, 1000]];
    let series: Series<()> =
        Series { strategy: Strategy::NoSync, refused: None, rounds, counters: Vec::new() };
    assert_eq!(series.spread(), Some((9, 40)));
    assert_eq!(series.samples().len(), 9);
}

#[test]
fn every_strategy_writes_in_turns_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let plan =
        Plan { record_bytes: 4096, rounds: 3, turn: std::time::Duration::from_secs(60), turn_records_max: 5 };
    let mut asked = 0;
    let mut turns = Vec::new();
    let mut counters = || {
        asked += 1;
        asked
    };
    let mut told = |round, strategy| {
        turns.push((round, strategy));
        true
    };
    let all = run(directory.path(), &Strategy::ALL, &plan, &mut counters, &mut told).unwrap();
    assert_eq!(all.len(), Strategy::ALL.len());
    let offered: Vec<_> = all.iter().filter(|series| series.refused.is_none()).collect();
    for series in &offered {
        assert_eq!(
            series.rounds.iter().map(Vec::len).collect::<Vec<_>>(),
            [5, 5, 5],
            "{:?}",
            series.strategy
        );
        assert!(series.counters.iter().all(|(before, after)| *after == before + 1));
    }
    for strategy in [Strategy::AppendFdatasync, Strategy::ExtendedFdatasync, Strategy::ZeroedFdatasync] {
        assert!(
            offered.iter().any(|series| series.strategy == strategy),
            "{strategy:?} is offered everywhere"
        );
    }
    let firsts: Vec<_> = (0..3).map(|round| turns.iter().find(|turn| turn.0 == round).unwrap().1).collect();
    assert_eq!(turns.len(), 3 * offered.len());
    assert!(firsts[0] != firsts[1] && firsts[1] != firsts[2], "each round begins with another: {firsts:?}");
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
}

#[test]
fn a_measurement_that_is_ended_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let plan =
        Plan { record_bytes: 4096, rounds: 3, turn: std::time::Duration::from_secs(60), turn_records_max: 5 };
    let all =
        run(directory.path(), &[Strategy::NoSync], &plan, &mut || (), &mut |round, _| round < 1).unwrap();
    assert_eq!(all[0].rounds.len(), 1);
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
    let missing = run(&directory.path().join("no"), &[Strategy::NoSync], &plan, &mut || (), &mut |_, _| true);
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

/// Records are written round and round where the file ends, growing files too.
#[test]
fn a_lane_goes_round_where_its_file_ends() {
    let directory = tempfile::tempdir().unwrap();
    for strategy in [Strategy::AppendFdatasync, Strategy::ZeroedFdatasync] {
        let mut lane = Lane::prepare(directory.path(), strategy, 512, 3).unwrap();
        for written in 1..=7u64 {
            lane.write().unwrap();
            let len = OsDisk::new().open(lane.path(), crate::Access::READ).unwrap().len().unwrap();
            let grown = (written - 1) % 3 + 1;
            assert_eq!(len, if strategy == Strategy::AppendFdatasync { grown * 512 } else { 3 * 512 });
        }
    }
}
