//! Verdicts, goal by goal: our figure, that of the best rival or the bound, their ratio, and the target.
//! Losses are reported in the same words and the same place as wins.

use comfy_table::Table;

use crate::bound::BOUNDS;
use crate::engines;
use crate::results::Results;
use crate::tables::{headed, number};

/// The engine that is judged.
pub(crate) const OURS: &str = "duramen";

/// Which side of the target is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    AtLeast,
    AtMost,
}

/// The figure to compare with.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// The best durable rival.
    Best(&'static [&'static str]),
    /// The best B+tree among the durable rivals.
    BestTree,
    /// The best log-only bound.
    Log,
    /// The best raw loop.
    Raw,
    /// Another figure of Duramen.
    Own(&'static str),
    /// A fixed number.
    Number,
}

/// One goal.
struct Goal {
    workload: &'static str,
    figure: &'static str,
    beside: Beside,
    aim: Aim,
    /// The target ratio, or the target itself for a fixed number.
    wanted: f64,
}

const fn goal(workload: &'static str, figure: &'static str, beside: Beside, aim: Aim, wanted: f64) -> Goal {
    Goal { workload, figure, beside, aim, wanted }
}

const ALL: Beside = Beside::Best(&[]);
const OPTIMISTS: Beside = Beside::Best(&["canopydb", "fjall", "rocksdb"]);

const GOALS: &[Goal] = &[
    goal("W1", "commits/s", Beside::Log, Aim::AtLeast, 0.95),
    goal("W1", "commits/s", ALL, Aim::AtLeast, 1.0),
    goal("W1", "p99 us", Beside::Raw, Aim::AtMost, 1.25),
    goal("W1", "checkpoints", Beside::Number, Aim::AtLeast, 3.0),
    goal("W1", "log segments", Beside::Number, Aim::AtLeast, 10.0),
    goal("W2-16", "commits/s", ALL, Aim::AtLeast, 2.0),
    goal("W2-16", "commits/s", Beside::Log, Aim::AtLeast, 0.8),
    goal("W2-16", "p99 us", ALL, Aim::AtMost, 0.5),
    goal("W2-64", "commits/s", ALL, Aim::AtLeast, 2.0),
    goal("W2-64", "commits/s", Beside::Log, Aim::AtLeast, 0.8),
    goal("W2-64", "p99 us", ALL, Aim::AtMost, 0.5),
    goal("W2b", "transactions/s", ALL, Aim::AtLeast, 1.5),
    goal("W2b", "conflicts each", OPTIMISTS, Aim::AtMost, 1.5),
    goal("W3", "rows/s", ALL, Aim::AtLeast, 1.25),
    goal("W3", "device bytes per user byte", Beside::Number, Aim::AtMost, 4.0),
    goal("W3", "MB on disk", Beside::BestTree, Aim::AtMost, 1.3),
    goal("W4", "gets/s 1T", ALL, Aim::AtLeast, 1.0),
    goal("W4", "gets/s 2T", ALL, Aim::AtLeast, 1.0),
    goal("W4", "gets/s 2T", Beside::Own("gets/s 1T"), Aim::AtLeast, 1.9),
    goal("W4", "gets/s by 100 1T", ALL, Aim::AtLeast, 1.0),
    goal("W5", "rows/s", ALL, Aim::AtLeast, 1.0),
    goal("W5", "ranges/s", ALL, Aim::AtLeast, 1.0),
    goal("W6", "queries/s", ALL, Aim::AtLeast, 1000.0),
    goal("W7", "first sum ms", Beside::Number, Aim::AtMost, 100.0),
    goal("W8", "p99.9 us during", Beside::Own("p99.9 us before"), Aim::AtMost, 5.0),
];

/// The result of a goal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// Workload and figure.
    pub what: String,
    /// Duramen's figure.
    pub ours: f64,
    /// The compared engine, with its figure.
    pub beside: String,
    /// Our figure divided by theirs, or our figure. Inverted if the target is a speed-up.
    pub ratio: f64,
    /// The target.
    pub wanted: String,
    /// Whether the target was reached.
    pub won: bool,
}

/// All goals for which both sides were measured.
pub(crate) fn verdicts(results: &Results) -> Vec<Verdict> {
    GOALS.iter().filter_map(|goal| verdict(results, goal)).collect()
}

fn verdict(results: &Results, goal: &Goal) -> Option<Verdict> {
    let median = |engine: &str, figure: &str| Some(results.middle(goal.workload, engine, figure)?.median);
    let ours = median(OURS, goal.figure)?;
    let bounds = |kind: &str| BOUNDS.iter().map(|(name, ..)| format!("{kind}-{name}")).collect();
    let among: Vec<String> = match goal.beside {
        Beside::Best(names) => rivals(|entry| names.is_empty() || names.contains(&entry.name)),
        Beside::BestTree => rivals(|entry| entry.is_tree),
        Beside::Log => bounds("log"),
        Beside::Raw => bounds("raw"),
        Beside::Own(_) | Beside::Number => Vec::new(),
    };
    let better = |a: f64, b: f64| if goal.aim == Aim::AtLeast { a.total_cmp(&b) } else { b.total_cmp(&a) };
    let theirs = among.into_iter().filter_map(|name| Some((median(&name, goal.figure)?, name)));
    let (other, beside) = match goal.beside {
        Beside::Number => (1.0, String::new()),
        Beside::Own(figure) => (median(OURS, figure)?, format!("{OURS}, {figure}")),
        _ => theirs.max_by(|(a, _), (b, _)| better(*a, *b))?,
    };
    let ratio = ours / other;
    // Compared without the ratio: zero divided by zero has none.
    let edge = goal.wanted * other;
    let won = if goal.aim == Aim::AtLeast { ours >= edge } else { ours <= edge };
    let beside = if beside.is_empty() { beside } else { format!("{beside}: {}", number(other)) };
    let sign = if goal.aim == Aim::AtLeast { ">=" } else { "<=" };
    let what = format!("{} {}", goal.workload, goal.figure);
    Some(Verdict { what, ours, beside, ratio, wanted: format!("{sign} {}", number(goal.wanted)), won })
}

fn rivals(fits: impl Fn(&crate::engine::Entry) -> bool) -> Vec<String> {
    let honest = engines::all().into_iter().filter(|entry| entry.unsafe_because.is_none());
    honest.filter(|entry| entry.name != OURS && fits(entry)).map(|entry| entry.name.to_owned()).collect()
}

/// The column names of a verdict.
pub(crate) const HEAD: [&str; 6] = ["goal", "duramen", "beside", "ratio", "wanted", ""];

impl Verdict {
    /// As texts, one per column.
    pub(crate) fn row(&self) -> [String; 6] {
        let won = if self.won { "won" } else { "LOST" };
        [
            self.what.clone(),
            number(self.ours),
            self.beside.clone(),
            number(self.ratio),
            self.wanted.clone(),
            won.to_owned(),
        ]
    }
}

/// The verdicts as a table.
pub(crate) fn table(verdicts: &[Verdict]) -> Table {
    let mut table = headed(HEAD);
    for verdict in verdicts {
        table.add_row(verdict.row());
    }
    table
}

#[cfg(test)]
mod tests {
    //! A verdict in our favour would make every other figure worthless.
    use super::*;
    use crate::job::Outcome;
    use crate::results::Measured;

    fn measured(workload: &str, engine: &str, name: &str, figure: f64) -> Measured {
        Measured::of(workload, engine, 0, Outcome::default().with(name, figure))
    }

    #[test]
    fn the_best_rival_is_the_fastest_or_the_one_with_the_smallest_latency() {
        let mut results = Results::default();
        for (engine, rate, p99) in
            [("duramen", 100.0, 10.0), ("redb", 60.0, 15.0), ("lmdb", 40.0, 30.0), ("log-dsync", 110.0, 1.0)]
        {
            results.measured.push(measured("W2-16", engine, "commits/s", rate));
            results.measured.push(measured("W2-16", engine, "p99 us", p99));
        }
        let found = verdicts(&results);
        let summary: Vec<_> = found.iter().map(|verdict| (verdict.beside.as_str(), verdict.won)).collect();
        let expected = [("redb: 60", false), ("log-dsync: 110", true), ("redb: 15", false)];
        assert_eq!(summary.iter().map(|(b, w)| (b.trim_end_matches(".0"), *w)).collect::<Vec<_>>(), expected);
    }
}
