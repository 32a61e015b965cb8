//! The crash search of many threads in its quick form, and cuts of a kept life reproduced.

use std::path::Path;

use duramen_disk::memory::CrashChoice;
use duramen_sim::concurrent::live::{Life, live};
use duramen_sim::concurrent::{QUICK, Report, replay_life, search};
use duramen_sim::search::case::Choice;
use duramen_sim::search::model::Effect;
use duramen_sim::seeds;

/// Lives of a test run.
const LIVES: u64 = 20;

/// Lives until every kind of cut must have been seen.
const LIVES_MAX: u64 = 100;

/// Lives that every commit has for itself, besides those of all commits.
const FRESH_LIVES: u64 = 4;

/// What so few lives may leave out: there is one in some fifteen of them. The slices of `scripts/prove` may
/// not.
const RARE: &str = "a cut after the data file was cut short";

/// D1, D2, I1: threads commit at all levels while the power is cut at any call.
///
/// One prefix of the order of receipts is there, with every commit in it that had been acknowledged before,
/// to any thread. No thread got an answer that no order of the transactions explains.
#[test]
fn a_cut_under_many_threads_leaves_one_prefix_with_all_that_was_acknowledged() {
    let keep = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let searched = |seeds| search(seeds, &QUICK, 2, None, keep).unwrap_or_else(|failure| panic!("{failure}"));
    let mut report = searched(1..1 + LIVES);
    assert_eq!((report.seeds, report.next_seed), (LIVES, 1 + LIVES));
    let fresh = seeds::of_this_commit("concurrent", FRESH_LIVES);
    report.add(&searched(fresh.range.clone()));
    assert_eq!(report.seeds, LIVES + FRESH_LIVES);
    // What threads do when is the machine's: on a busy one a kind may take more lives to be seen.
    let mut next = 1 + LIVES;
    while !unseen(&report).is_empty() && next < LIVES_MAX {
        report.add(&searched(next..next + LIVES));
        next += LIVES;
    }
    println!("{report}");
    assert_eq!(unseen(&report), Vec::<String>::new(), "not seen; {fresh}");
}

/// The kinds of cuts that were to be seen and were not.
fn unseen(report: &Report) -> Vec<String> {
    let counts = report.counts();
    counts.unseen().into_iter().filter(|kind| *kind != RARE).map(str::to_owned).collect()
}

/// A failure that cannot be reproduced is worth little: a decoded life must be judged like the recorded one.
#[test]
fn a_life_survives_its_bytes() {
    let life = live(3).unwrap().life;
    let bytes = life.encode().unwrap();
    let again = Life::decode(&bytes).unwrap();
    assert_eq!(again.encode().unwrap(), bytes);
    assert_eq!((again.trace.len(), again.commits.len()), (life.trace.len(), life.commits.len()));
    assert_eq!(again.promises(), life.promises());
    for op in [life.created_at, life.trace.len() / 2, life.trace.len()] {
        for choice in [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: 5 }] {
            let choice = Choice::Whole(choice);
            assert_eq!(replay_life(&again, op, choice), replay_life(&life, op, choice), "op {op}, {choice}");
        }
    }
    let mut longer = life;
    let effects = longer.commits.iter().flat_map(|commit| &commit.effects);
    let trees =
        effects.filter_map(|effect| if let Effect::Create { id, .. } = effect { Some(*id) } else { None });
    let tree = trees.min().unwrap();
    // A later one may have ended in memory.
    let acknowledged = longer.promises().into_iter().map(|(_, seq)| seq).max().unwrap();
    let last =
        longer.commits.iter_mut().filter(|commit| commit.seq <= acknowledged).max_by_key(|commit| commit.seq);
    last.unwrap().effects.push(Effect::Put { tree, key: b"z".to_vec(), value: [0; 8].as_slice().into() });
    let lost = replay_life(&longer, longer.trace.len(), Choice::Whole(CrashChoice::All));
    assert!(lost.is_err(), "a receipt tells of a row that was never written: {lost:?}");
    assert!(Life::decode(&bytes[..bytes.len() - 1]).is_err());
}
