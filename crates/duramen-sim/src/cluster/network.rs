//! The network between machines: requests take their time, are lost, arrive twice, or meet a cut link.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use duramen_repl::simulation::{AsyncRuntime, SimRuntime};
use duramen_repl::{Called, Lane, Peer, Transport};

use super::Met;
use super::world::{Shared, pass};

/// The state of the links.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Nothing passes from the first machine to the second.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// One request of so many is lost, and one answer; none if it is 0.
    pub(super) loss: usize,
    /// Requests take up to so long.
    pub(super) delay_us: usize,
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
    fn call(&self, node: u64, _: &Peer, _: Lane, request: Vec<u8>) -> Called {
        let (world, from, incarnation) = (self.world.clone(), self.from, self.incarnation);
        let to = usize::try_from(node - 1).expect("few nodes");
        Box::pin(async move {
            if world.lock().machines[from].incarnation != incarnation {
                return pending().await;
            }
            let paused = world.lock().machines[from].paused_until;
            if let Some(until) = paused {
                SimRuntime::sleep_until(until).await;
            }
            let fate = draw(&world);
            pass(Duration::from_micros(fate.there_us as u64)).await;
            if fate.is_lost || !world.passes(from, to) {
                return pending().await;
            }
            let answering = world.lock().machines[to].incarnation;
            let Some(answered) = world.delivers(to, request, fate.comes_twice)? else {
                return pending().await;
            };
            let Ok(answer) = answered.await else { return pending().await };
            // An answer that was not sent when the process ended is none.
            if world.lock().machines[to].incarnation != answering {
                return pending().await;
            }
            pass(Duration::from_micros(fate.back_us as u64)).await;
            let is_there = world.lock().machines[from].incarnation == incarnation;
            if fate.answer_is_lost || !is_there || !world.passes(to, from) {
                return pending().await;
            }
            Ok(answer)
        })
    }
}

fn draw(world: &Shared) -> Fate {
    let mut world = world.lock();
    let (loss, delay) = (world.links.loss, world.links.delay_us.max(200));
    let random = &mut world.random;
    let lost = |random: &mut crate::search::random::Random| loss > 0 && random.chance(1, loss);
    let fate = Fate {
        there_us: random.between(50, delay),
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
