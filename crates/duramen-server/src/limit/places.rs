//! Calls under way: each class has places of its own, so that scans do not keep point reads out, nor these
//! the answer to "are you alive".
//!
//! Those who wait for a place are served in turns, a call of each connection: one with a hundred calls does
//! not keep out another with one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duramen::error::Result;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::budget::overloaded;
use super::{Limits, WAIT};

/// Places of health, reflection and the first call of a client.
const CONTROL: usize = 64;

/// What a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Control,
    /// Point reads and batches.
    Calls,
    /// Scans, which last.
    Bulk,
}

/// The places of a server.
#[derive(Debug)]
pub(crate) struct Places {
    control: Arc<Turns>,
    calls: Arc<Turns>,
    bulk: Arc<Turns>,
}

/// A place; dropping it gives it to the next.
#[derive(Debug)]
pub(crate) struct Place {
    turns: Arc<Turns>,
}

/// The places of a class.
#[derive(Debug)]
struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Those who wait, by the number of their connection.
    waiting: HashMap<u64, VecDeque<oneshot::Sender<Place>>>,
    /// The connections of `waiting`, the next one first.
    order: VecDeque<u64>,
}

impl Places {
    pub(crate) fn new(limits: &Limits, cores: usize) -> Places {
        let of = |count: usize| {
            let state = State { free: count.max(1), waiting: HashMap::new(), order: VecDeque::new() };
            Arc::new(Turns { state: Mutex::new(state) })
        };
        Places {
            control: of(CONTROL),
            calls: of(limits.calls_per_core.saturating_mul(cores)),
            bulk: of(limits.scans),
        }
    }

    /// A place for a call of a connection, at the latest after 100 ms.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if none is free by then.
    pub(crate) async fn take(&self, class: Class, connection: u64) -> Result<Place> {
        let turns = match class {
            Class::Control => &self.control,
            Class::Calls => &self.calls,
            Class::Bulk => &self.bulk,
        };
        let turn = match turns.enter(connection) {
            Ok(place) => return Ok(place),
            Err(turn) => turn,
        };
        let mut waiting = Waiting { turns, connection, turn };
        let given = timeout(WAIT, &mut waiting.turn).await;
        given.ok().and_then(|given| given.ok()).ok_or_else(|| overloaded("place"))
    }
}

/// A call that waits. If it gives up, it is not kept; a place that came in this moment goes to the next.
struct Waiting<'a> {
    turns: &'a Turns,
    connection: u64,
    turn: oneshot::Receiver<Place>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turn.close();
        self.turns.state().forget(self.connection);
    }
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free place, or a turn to come.
    fn enter(self: &Arc<Self>, connection: u64) -> std::result::Result<Place, oneshot::Receiver<Place>> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Place { turns: Arc::clone(self) });
        }
        let (given, turn) = oneshot::channel();
        let waiting = state.waiting.entry(connection).or_default();
        waiting.push_back(given);
        if waiting.len() == 1 {
            state.order.push_back(connection);
        }
        Err(turn)
    }
}

impl State {
    /// Takes out the calls of a connection that have given up.
    fn forget(&mut self, connection: u64) {
        let Some(waiting) = self.waiting.get_mut(&connection) else { return };
        waiting.retain(|given| !given.is_closed());
        if waiting.is_empty() {
            self.waiting.remove(&connection);
            self.order.retain(|other| *other != connection);
        }
    }

    /// The next who waits; those who have given up are passed over.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        while let Some(connection) = self.order.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&connection) else { continue };
            let mut next = waiting.pop_front();
            while next.as_ref().is_some_and(oneshot::Sender::is_closed) {
                next = waiting.pop_front();
            }
            match waiting.is_empty() {
                true => drop(self.waiting.remove(&connection)),
                false => self.order.push_back(connection),
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        let Some(next) = state.next() else {
            state.free += 1;
            return;
        };
        drop(state);
        // If it gave up in this moment, what comes back is dropped, and goes to the one after it.
        drop(next.send(Place { turns: Arc::clone(&self.turns) }));
    }
}

#[cfg(test)]
mod tests {
    //! A scan must not keep a point read out, nor many calls of one connection the one of another.
    use super::*;
    use duramen::Code;

    fn run(limits: Limits, work: impl AsyncFnOnce(Arc<Places>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(work(Arc::new(Places::new(&limits, 1))));
    }

    #[test]
    fn classes_have_places_of_their_own() {
        run(Limits { scans: 1, calls_per_core: 1, ..Limits::default() }, async |places| {
            let scan = places.take(Class::Bulk, 1).await.expect("free");
            assert_eq!(places.take(Class::Bulk, 2).await.expect_err("taken").code(), Code::Overloaded);
            places.take(Class::Calls, 1).await.expect("free");
            drop(scan);
            places.take(Class::Bulk, 1).await.expect("given back");
        });
    }

    #[test]
    fn connections_are_served_in_turns() {
        run(Limits { calls_per_core: 1, ..Limits::default() }, async |places| {
            let first = places.take(Class::Calls, 1).await.expect("free");
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut calls = tokio::task::JoinSet::new();
            for connection in [1, 1, 1, 2, 1, 3, 2] {
                let (places, order) = (Arc::clone(&places), Arc::clone(&order));
                calls.spawn(async move {
                    let place = places.take(Class::Calls, connection).await.expect("its turn comes");
                    order.lock().expect("no panic").push(connection);
                    drop(place);
                });
            }
            tokio::task::yield_now().await;
            // Given up before its turn: nothing is kept of it.
            let given_up = places.take(Class::Calls, 4);
            assert!(timeout(WAIT / 2, given_up).await.is_err());
            assert_eq!(places.calls.state().order, [1, 2, 3]);
            drop(first);
            while let Some(done) = calls.join_next().await {
                done.expect("no panic");
            }
            assert_eq!(*order.lock().expect("no panic"), [1, 2, 3, 1, 2, 1, 1]);
            let state = places.calls.state();
            assert!((state.free, state.waiting.len(), state.order.len()) == (1, 0, 0), "{state:?}");
        });
    }
}
