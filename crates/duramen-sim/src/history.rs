//! Histories of concurrent transactions, and the check that they could have run one after the other.
//!
//! Owns the record and the verdict. Tests I1 and D2, with the commit sequence as the order. All commits are
//! run again in that order on a model, each read with the earlier writes of its own transaction, and every
//! answer must be the recorded one. A transaction that ended before another began comes before it. Snapshots
//! and read-only transactions see a prefix no older than what was acknowledged before they began.

mod listener;
mod model;
mod record;
mod resting;
mod run;

use std::fmt;

use duramen_engine::CommitSeq;

pub use listener::Listener;
use model::Model;
pub use record::{Event, Fate, Step};
pub use run::{Manner, Run, run, run_heard};

/// Violations beyond these are only counted.
const VIOLATIONS_TOLD_MAX: usize = 10;

/// What a check found.
#[derive(Debug, Default, Clone)]
pub struct Verdict {
    /// Transactions that wrote and committed.
    pub writer_count: u64,
    /// Transactions that only read, and snapshots.
    pub reader_count: u64,
    /// Transactions refused with a conflict; their reads are checked, too.
    pub conflict_count: u64,
    /// Of all these, transactions that rested between calls.
    pub rested_count: u64,
    /// Answers compared.
    pub answer_count: u64,
    /// Broken promises.
    pub violation_count: u64,
    /// The first of them.
    pub violations: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writers, {} readers, {} conflicts ({} of these rested), {} answers, {} violations",
            self.writer_count,
            self.reader_count,
            self.conflict_count,
            self.rested_count,
            self.answer_count,
            self.violation_count
        )
    }
}

impl Verdict {
    fn violation(&mut self, what: String) {
        self.violation_count += 1;
        if self.violations.len() < VIOLATIONS_TOLD_MAX {
            self.violations.push(what);
        }
    }
}

/// Checks a history from the beginning of its database.
#[must_use]
pub fn check(events: &[Event]) -> Verdict {
    let mut verdict = Verdict::default();
    check_answers(events, &mut verdict);
    check_real_time(events, &mut verdict);
    verdict
}

/// Runs the writers in the order of commits, and checks each commit's state by the reads of it.
fn check_answers(events: &[Event], verdict: &mut Verdict) {
    let mut ordered: Vec<&Event> = events.iter().collect();
    ordered.sort_by_key(|event| (event.seq, event.fate != Fate::Committed));
    let mut model = Model::default();
    let mut last = CommitSeq(0);
    for event in ordered {
        verdict.rested_count += u64::from(event.has_rested);
        let mut aside;
        let state = match event.fate {
            Fate::Committed => {
                verdict.writer_count += 1;
                if event.seq != last.next() {
                    verdict.violation(format!("commit {} follows commit {last} in the history", event.seq));
                }
                last = event.seq;
                &mut model
            }
            Fate::Read | Fate::Snapshot => {
                verdict.reader_count += 1;
                &mut model
            }
            Fate::Conflicted => {
                verdict.conflict_count += 1;
                aside = model.clone();
                &mut aside
            }
        };
        if event.seq > last {
            verdict.violation(format!("{} saw commit {}, which nobody made", event.name(), event.seq));
        }
        for (index, step) in event.steps.iter().enumerate() {
            verdict.answer_count += 1;
            if let Err(why) = state.replay(step) {
                verdict.violation(format!("{}, step {index}: {why}", event.name()));
            }
        }
    }
}

/// Checks that a transaction which began after another had ended comes after it.
fn check_real_time(events: &[Event], verdict: &mut Verdict) {
    let mut begins: Vec<&Event> = events.iter().filter(|event| event.fate != Fate::Conflicted).collect();
    let mut ends = begins.clone();
    begins.sort_by_key(|event| event.began);
    ends.sort_by_key(|event| event.ended);
    let mut ends = ends.into_iter().peekable();
    let (mut newest, mut newest_published) = (CommitSeq(0), CommitSeq(0));
    for event in begins {
        while let Some(ended) = ends.next_if(|ended| ended.ended < event.began) {
            newest = newest.max(ended.seq);
            if ended.is_published {
                newest_published = newest_published.max(ended.seq);
            }
        }
        let (is_late, floor) = match event.fate {
            Fate::Committed => (event.seq <= newest, newest),
            Fate::Read => (event.seq < newest, newest),
            _ => (event.seq < newest_published, newest_published),
        };
        if is_late {
            verdict.violation(format!(
                "{} is at commit {}, and commit {floor} had ended before it began",
                event.name(),
                event.seq
            ));
        }
    }
}
