//! Statistics of known samples, and every strategy on the file system of the tests.
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

fn small_plan() -> Plan {
    Plan {
        record_bytes: 4096,
        rounds: 3,
        turn: std::time::Duration::from_secs(60),
        turn_records_max: 5,
        lane_bytes_max: LANE_BYTES_MAX,
        spare_bytes: SPARE_BYTES,
    }
}

#[test]
fn every_strategy_writes_in_turns_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let plan = small_plan();
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
    let plan = small_plan();
    let all =
        run(directory.path(), &[Strategy::NoSync], &plan, &mut || (), &mut |round, _| round < 1).unwrap();
    assert_eq!(all[0].rounds.len(), 1);
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
    let missing = run(&directory.path().join("no"), &[Strategy::NoSync], &plan, &mut || (), &mut |_, _| true);
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

/// Records start again at the beginning when the file ends, in growing files too.
#[test]
fn a_lane_goes_round_where_its_file_ends() {
    let directory = tempfile::tempdir().unwrap();
    for strategy in [Strategy::AppendFdatasync, Strategy::ZeroedFdatasync] {
        let mut lane = Lane::prepare(directory.path(), strategy, 512, 3).unwrap();
        for written in 1..=7u64 {
            lane.write().unwrap();
            let len = OsDisk::new().open(lane.path(), duramen_disk::Access::READ).unwrap().len().unwrap();
            let grown = (written - 1) % 3 + 1;
            assert_eq!(len, if strategy == Strategy::AppendFdatasync { grown * 512 } else { 3 * 512 });
        }
    }
}

#[test]
fn more_threads_stop_paying_where_no_larger_number_gains_a_tenth_a_doubling() {
    let check = |rates: &[u64], expected| {
        let rates: Vec<(u32, u64)> =
            rates.iter().enumerate().map(|(step, rate)| (1 << step, *rate)).collect();
        assert_eq!(stops_paying(&rates), expected, "{rates:?}");
    };
    check(&[100, 190, 350, 360, 355], Some(4));
    check(&[100, 190, 350, 700], None);
    check(&[100, 101, 102, 103], Some(1));
    // One weak step does not end the search: two threads often only take turns, and four share.
    check(&[100, 103, 250, 255], Some(4));
    check(&[100, 50, 30], Some(1));
    check(&[100], None);
    check(&[], None);
    // A number between: from 8 to 12 threads is not a whole doubling.
    assert_eq!(stops_paying(&[(8, 100), (12, 107)]), None);
    assert_eq!(stops_paying(&[(8, 100), (12, 105)]), Some(8));
}

#[test]
fn threads_write_to_one_file_and_to_a_file_each_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let plan = ParallelPlan {
        threads: vec![1, 3],
        record_bytes: 512,
        rounds: 2,
        turn: std::time::Duration::from_nanos(1),
    };
    let crowds = parallel(directory.path(), &plan, &|| true).unwrap();
    let turns: Vec<_> =
        crowds.iter().map(|crowd| (crowd.threads, crowd.sharing, crowd.turns.len())).collect();
    let one = |threads| [(threads, Sharing::OneFile, 2), (threads, Sharing::FileEach, 2)];
    assert_eq!(turns, [one(1), one(3)].concat());
    for crowd in &crowds {
        // Each thread writes one record, however short the turn.
        assert!(crowd.turns.iter().all(|turn| turn.samples.len() >= crowd.threads as usize), "{crowd:?}");
        assert!(crowd.summary().is_some());
        let rates = crowd.rates().unwrap();
        assert!(rates.least <= rates.median && rates.median <= rates.most);
    }
    let ended = parallel(directory.path(), &plan, &|| false).unwrap();
    assert!(ended.iter().all(|crowd| crowd.turns.is_empty() && crowd.rates().is_none()));
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
}

/// The default of the sync benchmark, small. All mixes count their operations, and reads find whole blocks
/// everywhere.
#[test]
fn a_job_reads_and_writes_as_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let job = Job {
        block_bytes: 4096,
        reads_percent: 0,
        pattern: Pattern::Random,
        threads: 1,
        outstanding: 1,
        file_bytes: 1 << 20,
        is_synced: true,
        is_direct: false,
    };
    for (job, has_reads, has_writes) in [
        (job, false, true),
        (Job { reads_percent: 100, pattern: Pattern::Sequential, ..job }, true, false),
        (Job { threads: 2, outstanding: 3, is_synced: false, file_bytes: 3 << 20, ..job }, false, true),
    ] {
        let mix = Mix::prepare(directory.path(), job, &|| true).unwrap().unwrap();
        for _ in 0..2 {
            let outcome = mix.run(std::time::Duration::ZERO, &|| true).unwrap();
            assert_eq!((outcome.reads.count() > 0, outcome.writes.count() > 0), (has_reads, has_writes));
            assert_eq!(outcome.reads.count() + outcome.writes.count(), job.workers() as u64, "one each");
        }
    }
    let direct = Job { is_direct: true, ..job };
    match Mix::prepare(directory.path(), direct, &|| true) {
        Ok(mix) => {
            assert_eq!(mix.unwrap().run(std::time::Duration::ZERO, &|| true).unwrap().writes.count(), 1)
        }
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
    }
    assert!(Mix::prepare(directory.path(), job, &|| false).unwrap().is_none());
    let huge = Job { file_bytes: u64::MAX / 8192 * 4096, ..job };
    assert_eq!(
        Mix::prepare(directory.path(), huge, &|| true).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
}

/// A measurement without room is refused before a byte of it is written.
#[test]
fn what_leaves_no_room_is_refused_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let full = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    let huge = u64::MAX / 2;
    full(intervals(directory.path(), huge, 4096, 1, &mut |_, _| true).map(drop));
    let plan = ParallelPlan {
        threads: vec![1],
        record_bytes: 1 << 56,
        rounds: 1,
        turn: std::time::Duration::from_nanos(1),
    };
    full(parallel(directory.path(), &plan, &|| true).map(drop));
    let plan = Plan { spare_bytes: huge, ..small_plan() };
    full(run(directory.path(), &[Strategy::NoSync], &plan, &mut || (), &mut |_, _| true).map(drop));
    assert!(room_or_refuse(directory.path(), 0, 0).is_ok());
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
}

/// Filling checks after each MiB whether to go on, so that ^C ends the filling of a large file.
#[test]
fn filling_is_ended_when_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let room = OsDisk::new().file_system(directory.path()).unwrap();
    if room.total_bytes > 0 && room.free_bytes < (64 << 20) + SPARE_BYTES {
        eprintln!("skipped: filling is ended when it is told - there is no room for 64 MiB");
        return;
    }
    let largest = || {
        let names = OsDisk::new().list(directory.path()).unwrap();
        let len = |name: &std::path::PathBuf| {
            OsDisk::new()
                .open(&directory.path().join(name), duramen_disk::Access::READ)
                .unwrap()
                .len()
                .unwrap()
        };
        names.iter().map(len).max().unwrap_or(0)
    };
    let mut asked = 0;
    let mut grown = 0;
    let all = intervals(directory.path(), 64 << 20, 4096, 1, &mut |_, _| {
        asked += 1;
        grown = largest();
        asked < 3
    });
    assert!(all.unwrap().iter().all(|(_, samples)| samples.is_empty()));
    assert_eq!((asked, grown), (3, 2 << 20), "ended in the third MiB");

    let asked = std::sync::atomic::AtomicU64::new(0);
    let plan = ParallelPlan {
        threads: vec![16],
        record_bytes: 4096,
        rounds: 1,
        turn: std::time::Duration::from_nanos(1),
    };
    let go_on = || {
        assert!(largest() <= 2 << 20);
        asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2
    };
    assert!(parallel(directory.path(), &plan, &go_on).unwrap().iter().all(|crowd| crowd.turns.is_empty()));
    assert_eq!(asked.into_inner(), 3);
    assert_eq!(OsDisk::new().list(directory.path()).unwrap().len(), 0);
}

#[test]
fn the_median_of_an_even_number_of_rounds_is_the_middle() {
    let turn = |count: usize| CrowdTurn { took_ns: 1_000_000_000, samples: vec![1; count] };
    let crowd = |turns: &[usize]| Crowd {
        threads: 1,
        sharing: Sharing::OneFile,
        turns: turns.iter().map(|count| turn(*count)).collect(),
    };
    assert_eq!(crowd(&[10, 30]).rates(), Some(Rates { median: 20, least: 10, most: 30 }));
    assert_eq!(crowd(&[10, 30, 12]).rates().map(|rates| rates.median), Some(12));
}
