//! The network between machines: requests take their time, are lost, arrive twice, or meet a cut link.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use duramen_repl::simulation::{AsyncRuntime, Instant, SimInstant, SimRuntime};
use duramen_repl::{Called, Lane, Peer, Transport};

use super::Met;
use super::machine::{End, ends, machine_at};
use super::world::{Shared, pass};

/// A request for a vote begins with this byte on the wire.
const ASKS_FOR_A_VOTE: u8 = 0x12;
/// After one of so many answers, the power of the machine that gave it is cut.
const CUT_AFTER_ANSWERS: usize = 300;

/// The state of the links.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Nothing passes from the first machine to the second.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// One request of so many is lost, and one answer; none if it is 0.
    pub(super) loss: usize,
    /// Requests take up to so long.
    pub(super) delay_us: usize,
    /// Until then, the power is often cut after a vote.
    pub(super) storm_until: Option<SimInstant>,
}

/// The way of one process to the others.
pub(super) struct Wire {
    pub(super) world: Shared,
    pub(super) from: usize,
    pub(super) incarnation: u64,
}

/// What happens to a request.
struct Fate {
    there_us: usize,
    back_us: usize,
    is_lost: bool,
    answer_is_lost: bool,
    comes_twice: bool,
}

impl Transport for Wire {
    fn call(&self, _: u64, peer: &Peer, _: Lane, request: Vec<u8>) -> Called {
        let (world, from, incarnation) = (self.world.clone(), self.from, self.incarnation);
        let to = machine_at(&peer.address);
        // What was sent arrives, even if its sender waits no more.
        let carried = SimRuntime::spawn(async move { carry(&world, (from, incarnation), to, request).await });
        Box::pin(async move {
            match carried.await {
                Ok(Some(answer)) => answer,
                Ok(None) | Err(_) => pending().await,
            }
        })
    }
}

/// Carries a request to a machine, and the answer back: `None` if one of them is lost.
async fn carry(
    world: &Shared,
    (from, incarnation): (usize, u64),
    to: usize,
    request: Vec<u8>,
) -> Option<Result<Vec<u8>, String>> {
    let is_there = || world.lock().machines[from].incarnation == incarnation;
    let paused = world.lock().machines[from].paused_until;
    if let Some(until) = paused {
        SimRuntime::sleep_until(until).await;
    }
    if !is_there() {
        return None;
    }
    let fate = draw(world);
    pass(Duration::from_micros(fate.there_us as u64)).await;
    if fate.is_lost || !world.passes(from, to) {
        return None;
    }
    let answering = world.lock().machines[to].incarnation;
    let is_vote = request.first() == Some(&ASKS_FOR_A_VOTE);
    let answered = match world.delivers(to, request, fate.comes_twice) {
        Ok(answered) => answered?,
        Err(refused) => return Some(Err(refused)),
    };
    let answer = answered.await.ok()?;
    // An answer that was not sent when the process ended is none.
    if world.lock().machines[to].incarnation != answering {
        return None;
    }
    world.cuts_after_an_answer(to, is_vote);
    pass(Duration::from_micros(fate.back_us as u64)).await;
    (!fate.answer_is_lost && is_there() && world.passes(to, from)).then_some(Ok(answer))
}

fn draw(world: &Shared) -> Fate {
    let mut world = world.lock();
    let (loss, delay) = (world.links.loss, world.links.delay_us.max(200));
    let may_be_late = !world.is_healed;
    let random = &mut world.random;
    let lost = |random: &mut crate::search::random::Random| loss > 0 && random.chance(1, loss);
    let late_us = if may_be_late && random.chance(1, 100) { random.between(100_000, 3_000_000) } else { 0 };
    let fate = Fate {
        there_us: random.between(50, delay) + late_us,
        back_us: random.between(50, delay),
        is_lost: lost(random),
        answer_is_lost: lost(random),
        comes_twice: random.chance(1, 50),
    };
    if fate.is_lost || fate.answer_is_lost {
        world.meets(Met::LostRequest, "a request is lost");
    }
    fate
}

impl Shared {
    fn passes(&self, from: usize, to: usize) -> bool {
        !self.lock().links.cut.contains(&(from, to))
    }

    /// Cuts the power of a machine right after an answer, now and then: what it has answered must be on its
    /// disk.
    fn cuts_after_an_answer(&self, machine: usize, is_vote: bool) {
        let is_due = {
            let mut world = self.lock();
            let is_storm = world.links.storm_until.is_some_and(|until| SimInstant::now() < until);
            let answers = if is_storm && is_vote { 4 } else { CUT_AFTER_ANSWERS };
            !world.is_healed && world.random.chance(1, answers)
        };
        if is_due {
            self.lock().meets(Met::PowerCutAfterAnswer, "a power cut after an answer");
            ends(self, machine, End::PowerCut, 10_000);
        }
    }

    /// Lets the node of a machine answer; `None` while it is paused.
    ///
    /// # Errors
    /// If no node runs there.
    fn delivers(
        &self,
        to: usize,
        request: Vec<u8>,
        comes_twice: bool,
    ) -> Result<Option<<SimRuntime as AsyncRuntime>::JoinHandle<Vec<u8>>>, String> {
        let world = self.lock();
        let machine = &world.machines[to];
        let Some(node) = machine.node.clone() else { return Err("connection refused".to_owned()) };
        if !machine.is_awake() {
            return Ok(None);
        }
        drop(world);
        if comes_twice {
            let (node, request, world) = (node.clone(), request.clone(), self.clone());
            drop(SimRuntime::spawn(async move {
                world.rest(100, 20_000).await;
                node.answer(&request).await
            }));
        }
        // The node answers even if the caller does not wait any more.
        Ok(Some(SimRuntime::spawn(async move { node.answer(&request).await })))
    }
}
