//! What a history is run again on, and the verdict.

use std::collections::BTreeMap;
use std::fmt;

use duramen::prelude::*;

use super::COLLECTIONS;

/// Violations beyond these are only counted.
const TOLD_MAX: usize = 10;

/// What a transaction asked, with the answer.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Get(usize, u32, Option<i64>),
    /// The documents from one id to before another.
    Count(usize, u32, u32, u64),
    Sum(usize, u32, u32, i128),
    Put(usize, u32, i64),
    /// Whether it was there.
    Delete(usize, u32, bool),
}

impl Step {
    pub(super) fn writes(&self) -> bool {
        matches!(self, Step::Put(..) | Step::Delete(..))
    }

    /// Whether it made a commit of its transaction.
    pub(super) fn has_changed(&self) -> bool {
        matches!(self, Step::Put(..) | Step::Delete(_, _, true))
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// At its place in the order of commits.
    Committed,
    /// It wrote nothing; its answers are true behind this commit.
    Read,
    /// It was refused; its answers are true behind this commit.
    Conflicted,
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Event {
    /// Ticks before it began, and after it had ended.
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) seq: u64,
    pub(super) fate: Fate,
    pub(super) steps: Vec<Step>,
}

/// What a check found.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) committed: u64,
    pub(super) read_only: u64,
    pub(super) conflicts: u64,
    answers: u64,
    pub(super) violation_count: u64,
    pub(super) violations: Vec<String>,
}

impl Verdict {
    fn violation(&mut self, what: String) {
        self.violation_count += 1;
        if self.violations.len() < TOLD_MAX {
            self.violations.push(what);
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { committed, read_only, conflicts, answers, violation_count, .. } = self;
        write!(
            f,
            "{committed} commits, {read_only} readers, {conflicts} conflicts, {answers} answers, {violation_count} violations"
        )
    }
}

/// Checks a history that began behind this commit, with no documents. Returns what must be there at its end.
pub(super) fn check(events: &[Event], first: u64) -> (Verdict, Model) {
    let mut verdict = Verdict::default();
    let last = check_answers(events, first, &mut verdict);
    check_times(events, &mut verdict);
    (verdict, last)
}

/// Compares a database with what must be there.
pub(super) fn compare(db: &Db, last: &Model, verdict: &mut Verdict) -> Result<()> {
    for (collection, wanted) in COLLECTIONS.iter().zip(&last.0) {
        let mut found = BTreeMap::new();
        for document in db.documents(*collection).scan(Span::all())? {
            let document = document?;
            let number = |field: &str| document.get(field).and_then(|value| value.to::<i64>().ok());
            let id = number("id").and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX);
            found.insert(id, number("n").unwrap_or(i64::MIN));
        }
        if found != *wanted {
            verdict.violation(format!("{collection} has {found:?} at the end, and {wanted:?} was told"));
        }
    }
    Ok(())
}

fn check_answers(events: &[Event], first: u64, verdict: &mut Verdict) -> Model {
    let mut ordered: Vec<&Event> = events.iter().collect();
    ordered.sort_by_key(|event| (event.seq, event.fate != Fate::Committed));
    let (mut model, mut last) = (Model::default(), first);
    for event in ordered {
        let mut aside;
        let state = match event.fate {
            Fate::Committed => {
                verdict.committed += 1;
                if event.seq <= last {
                    verdict.violation(format!("commit {} was told twice", event.seq));
                }
                last = event.seq;
                &mut model
            }
            Fate::Read => {
                verdict.read_only += 1;
                &mut model
            }
            Fate::Conflicted => {
                verdict.conflicts += 1;
                aside = model.clone();
                &mut aside
            }
        };
        for step in &event.steps {
            verdict.answers += 1;
            if let Err(why) = state.replay(step) {
                verdict.violation(format!("{:?} at {}: {step:?}, and {why}", event.fate, event.seq));
            }
        }
    }
    model
}

/// A transaction that began after another had ended comes after it.
fn check_times(events: &[Event], verdict: &mut Verdict) {
    let mut begins: Vec<&Event> = events.iter().filter(|event| event.fate != Fate::Conflicted).collect();
    let mut ends = begins.clone();
    begins.sort_by_key(|event| event.began);
    ends.sort_by_key(|event| event.ended);
    let (mut ends, mut newest) = (ends.into_iter().peekable(), 0);
    for event in begins {
        while let Some(ended) = ends.next_if(|ended| ended.ended < event.began) {
            newest = newest.max(ended.seq);
        }
        let is_late = match event.fate {
            Fate::Committed => event.seq <= newest,
            _ => event.seq < newest,
        };
        if is_late {
            let (fate, seq) = (event.fate, event.seq);
            verdict.violation(format!("{fate:?} at {seq} began after commit {newest} had been told"));
        }
    }
}

/// The documents of all collections.
#[derive(Debug, Default, Clone)]
pub(super) struct Model([BTreeMap<u32, i64>; COLLECTIONS.len()]);

impl Model {
    /// Does a step again.
    ///
    /// # Errors
    /// The right answer, if another one was noted.
    fn replay(&mut self, step: &Step) -> Result<(), String> {
        let right =
            |is_right: bool, right: String| if is_right { Ok(()) } else { Err(format!("it is {right}")) };
        match *step {
            Step::Put(collection, id, n) => {
                self.0[collection].insert(id, n);
                Ok(())
            }
            Step::Delete(collection, id, was_there) => {
                let is_there = self.0[collection].remove(&id).is_some();
                right(is_there == was_there, is_there.to_string())
            }
            Step::Get(collection, id, n) => {
                let found = self.0[collection].get(&id).copied();
                right(found == n, format!("{found:?}"))
            }
            Step::Count(collection, from, to, count) => {
                let found = self.0[collection].range(from..to).count() as u64;
                right(found == count, found.to_string())
            }
            Step::Sum(collection, from, to, sum) => {
                let found: i128 = self.0[collection].range(from..to).map(|(_, n)| i128::from(*n)).sum();
                right(found == sum, found.to_string())
            }
        }
    }
}
