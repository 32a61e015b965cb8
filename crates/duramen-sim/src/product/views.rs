//! The views of a life after each of its commits: the reasons why a view may not answer.
//!
//! Owns the record and the rule. The state of the database alone decides whether a view answers. At a commit
//! observed in the life, a recovered database has the same views in the same phases. Between two observed
//! commits a view is unready only if it was unready at one of them. `judge` compares the answers themselves.

use duramen::view::{KeyField, ViewPhase, ViewSpec};
use duramen::{Db, LocalReads};

use super::judge::{Verdict, failed, same};
use super::shop::{ORDERS, Release, answer};

/// The views of the collection `orders` in one state of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Whether documents of earlier versions are yet to be converted.
    pub is_migrating: bool,
    /// The version of the collection's documents.
    version: u32,
    views: Vec<(ViewSpec, ViewPhase)>,
}

impl Shown {
    /// The views of a database; `None` before the collection exists.
    ///
    /// # Errors
    /// The database's error.
    pub fn of(db: &Db) -> Result<Option<Shown>, String> {
        let state = db.snapshot().map_err(failed("snapshot"))?;
        let orders = state.documents(ORDERS);
        let Some(schema) = answer(orders.schema()).map_err(failed("schema"))? else { return Ok(None) };
        let views = orders.views().map_err(failed("views of orders"))?;
        let views = views.into_iter().map(|view| (view.view, view.phase)).collect();
        Ok(Some(Shown { is_migrating: schema.is_migrating(), version: schema.version(), views }))
    }

    /// Whether a view of this form must answer a program of a release.
    #[must_use]
    pub fn answers(&self, release: Release, wanted: &ViewSpec) -> bool {
        let form = |spec: &ViewSpec| (spec.key_fields().to_vec(), spec.code_version());
        self.version == release.version()
            && self.are_ready(wanted.name()).any(|spec| form(spec) == form(wanted))
    }

    /// Whether a view of this name must answer by name.
    #[must_use]
    pub fn answers_by_name(&self, name: &str) -> bool {
        self.are_ready(name).next().is_some()
    }

    /// Whether there is a view of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.views.iter().any(|(spec, _)| spec.name() == name)
    }

    fn are_ready(&self, name: &str) -> impl Iterator<Item = &ViewSpec> {
        let ready = self.views.iter().filter(|(_, phase)| *phase == ViewPhase::Ready && !self.is_migrating);
        ready.map(|(spec, _)| spec).filter(move |spec| spec.name() == name)
    }

    /// Whether every view is ready.
    #[must_use]
    pub fn all_ready(&self) -> bool {
        !self.is_migrating && self.views.iter().all(|(_, phase)| *phase == ViewPhase::Ready)
    }

    /// Checks that this may be a state between two others of the life.
    fn is_between(&self, others: &[&Shown]) -> Verdict {
        if self.is_migrating && !others.iter().any(|other| other.is_migrating) {
            return Err("documents are to be migrated, and were before and after".to_owned());
        }
        for (spec, phase) in &self.views {
            let all = || others.iter().flat_map(|other| &other.views);
            let mut known = all().filter(|(other, _)| rows_of(other) == rows_of(spec)).peekable();
            if known.peek().is_none() {
                return Err(format!("nobody has made the view {spec:?}"));
            }
            if *phase != ViewPhase::Ready && known.all(|(_, phase)| *phase == ViewPhase::Ready) {
                return Err(format!("the view {spec:?} is {phase:?}, and was ready before and after"));
            }
        }
        Ok(())
    }
}

/// What distinguishes the views of one collection.
fn rows_of(spec: &ViewSpec) -> (&str, &[KeyField], Option<u32>) {
    (spec.name(), spec.key_fields(), spec.code_version())
}

/// One observation of the views.
#[derive(Debug)]
struct Look {
    at_op: usize,
    seq: u64,
    shown: Option<Shown>,
    /// Whether the process was killed: newer commits are lost.
    is_return: bool,
}

/// All observations of the views of a life, in order.
#[derive(Debug, Default)]
pub struct Looks(Vec<Look>);

impl Looks {
    /// Records the views after so many operations, with commit `seq` the newest.
    pub fn push(&mut self, at_op: usize, seq: u64, shown: Option<Shown>, is_return: bool) {
        self.0.push(Look { at_op, seq, shown, is_return });
    }

    /// The observations that apply to a database cut after `at_op` operations that holds commit `seq`.
    fn line(&self, at_op: usize, seq: u64) -> Vec<&Look> {
        let mut line: Vec<&Look> = Vec::new();
        for look in &self.0 {
            if look.at_op > at_op {
                line.push(look);
                if look.is_return || look.seq >= seq {
                    break;
                }
                continue;
            }
            if look.is_return {
                line.retain(|before| before.seq <= look.seq);
            }
            line.push(look);
        }
        line
    }

    /// Checks that the views after a cut at `at_op`, at commit `seq`, agree with the observations.
    ///
    /// # Errors
    /// What does not agree.
    pub fn explain(&self, at_op: usize, seq: u64, shown: Option<&Shown>) -> Verdict {
        let line = self.line(at_op, seq);
        if let Some(look) = line.iter().find(|look| look.seq == seq) {
            return same(&format!("the views at commit {seq}"), &shown, &look.shown.as_ref());
        }
        let before = line.iter().filter(|look| look.seq < seq).max_by_key(|look| look.seq);
        let after = line.iter().filter(|look| look.seq > seq).min_by_key(|look| look.seq);
        let around: Vec<&Look> = before.into_iter().chain(after).copied().collect();
        let known: Vec<&Shown> = around.iter().filter_map(|look| look.shown.as_ref()).collect();
        let verdict = match shown {
            Some(shown) => shown.is_between(&known),
            None if known.len() < around.len() => Ok(()),
            None => Err("there is no collection orders".to_owned()),
        };
        verdict.map_err(|what| {
            let seqs: Vec<u64> = around.iter().map(|look| look.seq).collect();
            format!("the views at commit {seq}, between {seqs:?}: {what}; {shown:?}, and around it {known:?}")
        })
    }
}
