//! Clusters of three nodes in one thread: seeds of this commit, and that a seed is one run.

use duramen_sim::cluster::{run_seed, search};
use duramen_sim::seeds::of_this_commit;

#[test]
fn clusters_of_this_commit_lose_nothing() {
    let seeds = of_this_commit("cluster", 50);
    let found = search(seeds.range.clone(), 2, None);
    let report = found.unwrap_or_else(|failure| panic!("{seeds}: {failure}"));
    println!("{seeds}\n{report}");
    assert_eq!(report.seeds, 50);
    assert_eq!(report.counts().unseen(), Vec::<&str>::new(), "no run met this");
}

#[test]
fn a_seed_is_one_run() {
    let run = |seed| run_seed(seed).unwrap_or_else(|failure| panic!("{failure}"));
    let (first, again, other) = (run(4), run(4), run(5));
    assert_eq!(first, again, "what happened, and its hash");
    assert_ne!(first.1, other.1);
}
