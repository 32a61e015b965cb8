//! The goals. With 16 agents the mean of every write operation is at most half of PostgreSQL's, and reads are
//! at least ten times faster, for both of its forms. Typed collections cost at most 1.5 times as much as raw
//! trees.

use super::model::Operation;
use crate::results::Results;
use crate::tables::number;
use crate::verdict::Verdict;

/// The number of agents to which the goals apply.
pub(super) const AGENTS: usize = 16;

const OURS: &str = "duramen";
const TYPED: &str = "duramen-typed";
const RIVALS: [&str; 2] = ["postgres-view", "postgres-table"];
const MEAN: &str = "mean us";

/// The factors by which our means must be smaller than theirs.
const READS_TIMES: f64 = 10.0;
const WRITES_TIMES: f64 = 2.0;

/// The factor by which typed collections may be slower than raw trees.
const TYPED_TIMES: f64 = 1.5;

/// Every operation compared with every measured rival; none for another number of agents.
pub(super) fn verdicts(results: &Results, agents: usize) -> Vec<Verdict> {
    if agents != AGENTS {
        return Vec::new();
    }
    let beside =
        |rival| Operation::ALL.iter().filter_map(move |(operation, _)| verdict(results, *operation, rival));
    let typed = Operation::ALL.iter().filter_map(|(operation, _)| typed_verdict(results, *operation));
    RIVALS.into_iter().flat_map(beside).chain(typed).collect()
}

fn typed_verdict(results: &Results, operation: Operation) -> Option<Verdict> {
    let raw = results.middle(operation.name(), OURS, MEAN)?.median;
    let typed = results.middle(operation.name(), TYPED, MEAN)?.median;
    Some(Verdict {
        what: format!("{AGENTS} agents, typed: {} {MEAN}", operation.name()),
        ours: typed,
        beside: format!("{OURS}: {}", number(raw)),
        ratio: typed / raw,
        wanted: format!("<= {TYPED_TIMES} times raw trees"),
        won: typed <= TYPED_TIMES * raw,
    })
}

fn verdict(results: &Results, operation: Operation, rival: &str) -> Option<Verdict> {
    let ours = results.middle(operation.name(), OURS, MEAN)?.median;
    let theirs = results.middle(operation.name(), rival, MEAN)?.median;
    let times = if operation.writes() { WRITES_TIMES } else { READS_TIMES };
    Some(Verdict {
        what: format!("{AGENTS} agents: {} {MEAN}", operation.name()),
        ours,
        beside: format!("{rival}: {}", number(theirs)),
        ratio: theirs / ours,
        wanted: format!(">= {times} times faster"),
        won: times * ours <= theirs,
    })
}

#[cfg(test)]
mod tests {
    //! A goal in our favour would make every other figure worthless.
    use super::*;
    use crate::job::Outcome;
    use crate::results::Measured;

    #[test]
    fn reads_must_be_ten_times_faster_and_writes_twice() {
        let mut results = Results::default();
        for (operation, engine, mean) in [
            ("LookupProduct", "duramen", 11.0),
            ("LookupProduct", "duramen-typed", 17.0),
            ("LookupProduct", "postgres-view", 100.0),
            ("LookupProduct", "postgres-table", 120.0),
            ("Checkout", "duramen", 50.0),
            ("Checkout", "duramen-typed", 75.0),
            ("Checkout", "postgres-view", 100.0),
            ("Checkout", "postgres-table", 99.0),
        ] {
            let outcome = Some(Outcome::default().with(MEAN, mean));
            let (workload, engine) = (operation.to_owned(), engine.to_owned());
            results.measured.push(Measured { workload, engine, round: 0, outcome, failed: None });
        }
        let won: Vec<_> = verdicts(&results, AGENTS).iter().map(|verdict| verdict.won).collect();
        assert_eq!(won, [false, true, true, false, false, true]);
        assert!(verdicts(&results, 8).is_empty());
    }
}
