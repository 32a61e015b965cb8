//! Programs that come and go: each opens the database anew, and may be of the next release, with other views
//! and documents.
//!
//! Owns the comparisons without any cut: after the end of a process, and when all pending work has been
//! finished.

use std::sync::Arc;

use duramen::view::{KeyField, Reduce, ViewSpec};
use duramen::{Error, Span, Value};
use duramen_engine::Options;

use super::copies::REPAIRED;
use super::{BEFORE_MS, BY_CENTS, Form, Life, NS_A_MS, PATH, START_MS, open_by};
use crate::product::feed::{MIRROR, consumer_equals, feed_equals, work};
use crate::product::judge::{checks_are_clean, database_equals, failed, same, stored_values};
use crate::product::model::{ExpectedChange, State, Step};
use crate::product::shop::{ORDERS, Order, Release};
use crate::product::views::Shown;

/// Background steps: far more than a small database needs for everything.
const BACKGROUND_STEPS_MAX: usize = 10_000;

impl Life {
    /// Ends the process, cleanly or not, and opens the database with the next one.
    pub(super) fn reopen(&mut self, cleanly: bool) -> Result<(), String> {
        (self.writer, self.upload) = (None, None);
        let began = self.disk.recorded_len();
        let mut last = self.published();
        let durable = self.db().stats().commit.durable.0;
        let db = self.db.take().expect("the database is taken only here");
        if cleanly {
            db.close().map_err(failed("close"))?;
            let closed = db.stats().commit.published.0;
            drop(db);
            // A close commits at most once, to give back the ids that were not assigned.
            if closed > last + 1 {
                return Err(format!("commit {last} was the last, and the close left {closed}"));
            }
            if closed > last {
                self.made(closed, closed, began, self.state.clone(), Vec::new());
            }
            last = closed;
            self.handed_over = last;
        } else {
            db.abandon();
        }
        // A visiting tool ends with its process.
        self.run(self.shop);
        self.disk.set_wall_clock(BEFORE_MS * NS_A_MS);
        let recovered = self.random.chance(1, 3) && self.recover()?;
        let options =
            Options { answer_before_replay: Some(self.random.chance(1, 2)), ..self.options.clone() };
        (self.now_ms, self.latest_ms) = (0, 0);
        let form = Form::some(&mut self.random);
        self.tally.named += u64::from(form == Form::Names);
        self.db = Some(open_by(&self.disk, PATH, &options, form).map_err(failed("open"))?);
        let seq = self.published();
        let floor = self.handed_over.max(durable);
        if seq < floor || seq > last {
            return Err(format!("recovered commit {seq}; {floor} was handed over, {last} was the last"));
        }
        self.look(seq)?;
        if recovered {
            self.copied(REPAIRED, began)?;
        }
        self.set_clock();
        Ok(())
    }

    /// Compares everything with the model, and updates it: commits lost with the process, and deleted expired
    /// values.
    pub(super) fn look(&mut self, seq: u64) -> Result<(), String> {
        let expired_ms = self.expired_ms(usize::MAX);
        let candidates = self.history.candidates(usize::MAX, seq);
        let mut verdict = Err("nothing was ever made".to_owned());
        for state in candidates {
            let db = self.db.as_ref().expect("it is open");
            verdict = database_equals(db, &state, self.release, expired_ms, &mut self.random);
            if verdict.is_ok() {
                self.state = State::clone(&state);
                break;
            }
        }
        self.tally.add(&verdict.map_err(|what| format!("commit {seq}: {what}"))?);
        let db = self.db.as_ref().expect("it is open");
        self.looks.explain(usize::MAX, seq, Shown::of(db)?.as_ref())?;
        consumer_equals(db, seq >= self.registered, |position| self.history.line(usize::MAX, position))?;
        let values = stored_values(db)?;
        self.state.values.retain(|at, _| values.contains_key(at));
        checks_are_clean(db, &self.state)?;
        let state = Arc::new(self.state.clone());
        let began = self.disk.recorded_len();
        self.history.push(Step { from: seq, to: seq, began, state, told: Vec::new(), is_return: true });
        self.look_at_views(true).map(drop)
    }

    /// Adds, drops or rebuilds a view without a type.
    pub(super) fn view_by_name(&mut self) -> Result<(), String> {
        if self.circumstances()?.is_migrating {
            return Ok(());
        }
        let (began, before) = (self.disk.recorded_len(), self.published());
        let views = self.db().documents(ORDERS).views().map_err(failed("views"))?;
        let name = *self.random.pick(&["by_owner", "by_tag", BY_CENTS, "none", "none"]);
        let rebuilt = Some(name).filter(|name| views.iter().any(|view| view.view.name() == *name));
        let mut state = self.state.clone();
        let done = match rebuilt {
            Some(view) => self.db().write(|tx| tx.rebuild_view(ORDERS, view)),
            None if self.state.has_by_cents => {
                state.has_by_cents = false;
                self.db().write(|tx| tx.drop_view(ORDERS, BY_CENTS).map(drop))
            }
            None => {
                state.has_by_cents = true;
                let key = [KeyField::field("cents").descending(), KeyField::path("tags[0]")];
                let spec = ViewSpec::new(BY_CENTS, key).nulls().values(["id"]).reduce([Reduce::Sum(0)]);
                self.db().write(|tx| tx.add_view(ORDERS, &spec).map(drop))
            }
        };
        let seq = done.map_err(failed("a view by name"))?.seq().0;
        if seq > before {
            self.made(seq, seq, began, state, Vec::new());
        }
        Ok(())
    }

    /// Ends the process, and runs the next release.
    pub(super) fn upgrade(&mut self) -> Result<(), String> {
        let cleanly = self.random.chance(1, 2);
        self.reopen(cleanly)?;
        self.shop = self.shop.next();
        self.run(self.shop);
        // The catalogue changes what documents mean: a program must register before it writes.
        if self.release == Release::Migrated || self.random.chance(3, 4) {
            self.register()?;
        }
        Ok(())
    }

    /// Registers this release's type for the collection.
    fn register(&mut self) -> Result<(), String> {
        self.release.register(self.db()).map_err(failed("register"))?;
        self.look_at_views(false).map(drop)
    }

    /// Runs a program without views until the database is opened again.
    pub(super) fn visit(&mut self) -> Result<(), String> {
        if self.circumstances()?.is_migrating {
            return Ok(());
        }
        let cleanly = self.random.chance(1, 2);
        self.reopen(cleanly)?;
        self.run(self.shop.without_views());
        Ok(())
    }

    /// Notes that another program runs from now on.
    pub(super) fn run(&mut self, release: Release) {
        self.release = release;
        self.programs.push((self.disk.recorded_len(), release, self.shop));
    }

    /// Converts the documents of earlier versions, if any, beside writers; or some of them.
    pub(super) fn migrate(&mut self, may_stop: bool) -> Result<(), String> {
        let release = self.release;
        if release != Release::Migrated {
            return Ok(());
        }
        self.register()?;
        let db = self.db().clone();
        let was_migrating = Shown::of(&db)?.is_some_and(|shown| shown.is_migrating);
        let (mut began, mut before) = (self.disk.recorded_len(), self.published());
        let mut verdict = Ok(());
        let mut is_stopped = false;
        let done = release.migrate(&db, || {
            verdict = self.converted(began, before);
            if verdict.is_ok() && self.random.chance(1, 3) {
                verdict = self.transaction(false).map(drop);
            }
            (began, before) = (self.disk.recorded_len(), self.published());
            is_stopped = verdict.is_err() || may_stop && self.random.chance(1, 4);
            if is_stopped { Err(Error::invalid("stopped")) } else { Ok(()) }
        });
        verdict?;
        if is_stopped {
            return Ok(());
        }
        done.map_err(failed("migrate"))?;
        self.tally.migrations += u64::from(was_migrating);
        match self.state.orders.values().find(|(version, _)| *version < 2) {
            Some(left) => Err(format!("a migration has ended, and was not of {left:?}")),
            None => Ok(()),
        }
    }

    /// Updates the model after a migration step: which documents it has converted.
    pub(super) fn converted(&mut self, began: usize, before: u64) -> Result<(), String> {
        let after = self.published();
        same("the commits of a step of a migration", &(after - before), &1)?;
        let (mut state, mut told) = (self.state.clone(), Vec::new());
        for document in self.db().documents(ORDERS).scan(Span::all()).map_err(failed("scan"))? {
            let document = document.map_err(failed("a document"))?;
            let field = |name: &str| document.get(name).cloned().unwrap_or_default();
            let id = match field("id") {
                Value::Int(id) => u64::try_from(id).map_err(|error| error.to_string())?,
                other => return Err(format!("a document has the key {other:?}")),
            };
            let stored = (field("owner"), field("cents"));
            let as_stored = |order: &Order| (Value::from(order.owner.clone()), Value::from(order.cents));
            let Some((version, order)) = state.orders.get_mut(&id) else {
                return Err(format!("the document {id} came from nowhere"));
            };
            if *version < 2 && stored == as_stored(&order.migrated()) {
                (*version, *order) = (2, order.migrated());
                told.push(ExpectedChange::put(order));
            }
            same(&format!("the document {id}, converted or not"), &stored, &as_stored(order))?;
        }
        self.made(after, after, began, state, told);
        Ok(())
    }

    /// Builds every view to the end.
    pub(super) fn build(&mut self) -> Result<(), String> {
        if !self.release.has_views() {
            return Ok(());
        }
        self.register()?;
        self.migrate(false)?;
        self.release.build(self.db()).map_err(failed("build_views"))?;
        let states = self.db().view_states().map_err(failed("views"))?;
        match states.iter().find(|state| !state.is_ready()) {
            Some(unready) => Err(format!("a view was built, and is not ready: {unready:?}")),
            None => Ok(()),
        }
    }

    /// As [`Life::build`], without waiting: the program uses its type, and the background builds.
    fn build_behind_the_scenes(&mut self) -> Result<(), String> {
        self.register()?;
        self.migrate(false)?;
        let mut left = BACKGROUND_STEPS_MAX;
        while self.db().step_background().map_err(failed("step_background"))? {
            left -= 1;
            if left == 0 {
                return Err("the background finds no end".to_owned());
            }
        }
        self.is_checked_by_the_background()?;
        match Shown::of(self.db())? {
            Some(shown) if self.release.has_views() && !shown.all_ready() => {
                Err(format!("the background has nothing to do, and views are not ready: {shown:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Finishes all pending work: uploads are collected, expired values deleted, the consumer has read all,
    /// views are built.
    ///
    /// Nothing may be left over then.
    ///
    /// # Errors
    /// What is left over.
    pub fn settle(&mut self) -> Result<(), String> {
        let began = self.disk.recorded_len();
        self.disk.annotate("settled");
        self.settled()?;
        self.note(began)
    }

    pub(super) fn settled(&mut self) -> Result<(), String> {
        self.run(self.shop);
        (self.writer, self.upload) = (None, None);
        // The feed returns durable changes only: a durable commit makes all earlier ones durable.
        let settled = self.db().bytes("settled").put("", "").map_err(failed("settle"))?.seq().0;
        let collected = self.db().sweep_blobs().map_err(failed("sweep_blobs"))?;
        self.tally.cleaned(collected);
        let consumer = self.db().consumer(MIRROR).register().map_err(failed("register"))?;
        work(&consumer, 16, usize::MAX).map_err(failed("consumer"))?;
        drop(consumer);
        let line = self.history.line(usize::MAX, settled);
        consumer_equals(self.db(), true, |_| line.clone())?;
        feed_equals(self.db(), &line, settled)?;
        if self.random.chance(1, 2) {
            self.build()?
        } else {
            self.build_behind_the_scenes()?
        }
        self.check_on()?;
        self.wall_ms += 2 * START_MS;
        self.set_clock();
        let expired = self.db().sweep_expired().map_err(failed("sweep_expired"))?;
        self.tally.cleaned(expired);
        self.state.values.retain(|_, (_, expires)| expires.is_none());
        let stats = self.db().kv_stats().map_err(failed("kv_stats"))?;
        same("values left", &(stats.values, stats.expired), &(self.state.values.len() as u64, 0))?;
        let db = self.db.as_ref().expect("it is open");
        self.tally.add(&database_equals(db, &self.state, self.release, 0, &mut self.random)?);
        checks_are_clean(db, &self.state)
    }
}
