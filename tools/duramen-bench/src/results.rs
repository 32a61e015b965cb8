//! All figures of a run: by workload, engine and round; medians and spread.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::Result;
use crate::job::Outcome;

/// One child's result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    /// Workload, with its threads: `W2-16`.
    pub workload: String,
    /// The engine.
    pub engine: String,
    /// The round, from 0.
    pub round: u32,
    /// The outcome.
    pub outcome: Option<Outcome>,
    /// Why there is none.
    pub failed: Option<String>,
}

impl Measured {
    /// The result of a turn.
    pub(crate) fn of(workload: &str, engine: &str, round: u32, outcome: Outcome) -> Measured {
        Measured::of_turn(workload, engine, round, Ok(outcome))
    }

    /// The result of a turn that may have failed.
    pub(crate) fn of_turn(workload: &str, engine: &str, round: u32, outcome: Result<Outcome>) -> Measured {
        let (workload, engine) = (workload.to_owned(), engine.to_owned());
        let (outcome, failed) = match outcome {
            Ok(outcome) => (Some(outcome), None),
            Err(failed) => (None, Some(failed.to_string())),
        };
        Measured { workload, engine, round, outcome, failed }
    }
}

/// The median of a figure over the rounds, with its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Middle {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// How many rounds.
    pub rounds: usize,
}

impl Middle {
    /// The median and spread of figures in any order.
    pub(crate) fn of(figures: &[f64]) -> Option<Middle> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            (sorted[half - 1] + sorted[half]) / 2.0
        } else {
            sorted[half]
        };
        Some(Middle { median, least, most, rounds: sorted.len() })
    }
}

/// A whole run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    /// In the order of measurement.
    pub measured: Vec<Measured>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Results {
    /// The workloads, in order.
    pub(crate) fn workloads(&self) -> Vec<String> {
        distinct(self.measured.iter().map(|measured| &measured.workload))
    }

    /// The engines of a workload, in order.
    pub(crate) fn engines(&self, workload: &str) -> Vec<String> {
        distinct(self.of(workload).map(|measured| &measured.engine))
    }

    fn of(&self, workload: &str) -> impl Iterator<Item = &Measured> {
        self.measured.iter().filter(move |measured| measured.workload == workload)
    }

    /// A figure of all rounds. An engine with a wrong answer has none.
    pub(crate) fn figures(&self, workload: &str, engine: &str, name: &str) -> Vec<f64> {
        if self.wrong(workload, engine).is_some() {
            return Vec::new();
        }
        let outcomes = self.of(workload).filter(|measured| measured.engine == engine);
        outcomes.filter_map(|measured| measured.outcome.as_ref()?.figures.get(name).copied()).collect()
    }

    /// The median and spread of a figure.
    pub(crate) fn middle(&self, workload: &str, engine: &str, name: &str) -> Option<Middle> {
        Middle::of(&self.figures(workload, engine, name))
    }

    /// Why an engine is excluded from a workload: it failed, or gave a wrong answer.
    pub(crate) fn wrong(&self, workload: &str, engine: &str) -> Option<String> {
        self.of(workload).filter(|measured| measured.engine == engine).find_map(|measured| {
            if let Some(failed) = &measured.failed {
                return Some(format!("failed in round {}: {failed}", measured.round + 1));
            }
            let outcome = measured.outcome.as_ref()?;
            let said = || {
                format!(
                    "WRONG ANSWER in round {}: {:016x}, right is {:016x}",
                    measured.round + 1,
                    outcome.answer,
                    outcome.expected
                )
            };
            (!outcome.is_right()).then(said)
        })
    }

    /// The hash of an engine's answers in the first round.
    pub(crate) fn answer(&self, workload: &str, engine: &str) -> Option<u64> {
        let measured = self.of(workload).find(|measured| measured.engine == engine)?;
        measured.outcome.as_ref().map(|outcome| outcome.answer).filter(|answer| *answer != 0)
    }

    /// The remarks of children, each once.
    pub(crate) fn notes_of(&self, workload: &str) -> BTreeMap<String, Vec<String>> {
        let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for measured in self.of(workload) {
            let known = notes.entry(measured.engine.clone()).or_default();
            for note in measured.outcome.iter().flat_map(|outcome| &outcome.notes) {
                if !known.contains(note) {
                    known.push(note.clone());
                }
            }
        }
        notes.retain(|_, notes| !notes.is_empty());
        notes
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    //! A wrong engine must not win, and a median is not a mean.
    use super::*;

    fn measured(engine: &str, round: u32, figure: f64, answer: u64) -> Measured {
        let outcome = Outcome::default().with("rows/s", figure).answering(answer, 7);
        Measured::of("W3", engine, round, outcome)
    }

    #[test]
    fn one_wrong_answer_takes_all_figures_of_an_engine_away() {
        let rounds = |engine, answers: [u64; 3]| {
            let figures = [(0, 5.0), (1, 1.0), (2, 3.0)];
            figures
                .into_iter()
                .zip(answers)
                .map(move |((round, figure), answer)| measured(engine, round, figure, answer))
        };
        let measured = rounds("right", [7, 7, 7]).chain(rounds("wrong", [7, 8, 7])).collect();
        let results = Results { measured, notes: Vec::new() };
        let right = results.middle("W3", "right", "rows/s");
        assert_eq!(right, Some(Middle { median: 3.0, least: 1.0, most: 5.0, rounds: 3 }));
        assert_eq!(results.middle("W3", "wrong", "rows/s"), None);
        assert!(results.wrong("W3", "wrong").is_some_and(|said| said.contains("WRONG ANSWER in round 2")));
    }
}
