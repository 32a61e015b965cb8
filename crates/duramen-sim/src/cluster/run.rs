//! One run: a cluster is started, lives through what goes wrong, is healed, and judged.

use std::cell::Cell;
use std::sync::Once;
use std::time::Duration;

use duramen_repl::simulation::{AsyncRuntime, Instant, SimInstant, SimRuntime};

use super::machine::{End, ends, id_of, machines, start};
use super::world::{MACHINES, Shared, Tell, pass};
use super::{Counts, chaos, client, judge};
use crate::search::random::{Random, joined};

const CLIENTS: usize = 6;
/// Things go wrong for so long.
const LIFE: Duration = Duration::from_secs(8);
/// After everything is healed, all nodes must be equal in so long.
const RECOVERY: Duration = Duration::from_secs(8);

/// A run that broke no promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ran {
    /// What it met.
    pub(super) counts: Counts,
    /// The hash of everything that happened.
    pub(super) trace: u64,
}

/// Runs the cluster of a seed.
///
/// # Errors
/// What is wrong.
pub(super) fn run(seed: u64, tell: Tell) -> Result<Ran, String> {
    watch_panics();
    PANICS.set(0);
    let machines = machines(seed).map_err(|error| error.to_string())?;
    let mut runtime = SimRuntime::with_seed(joined(seed, 50));
    let result = runtime.block_on(lives(seed, machines, tell));
    drop(runtime);
    if PANICS.get() > 0 {
        return Err("a task has panicked (see above)".to_owned());
    }
    result
}

async fn lives(seed: u64, machines: Vec<super::machine::Machine>, tell: Tell) -> Result<Ran, String> {
    let world = Shared::new(Random::new(joined(seed, 51)), machines, tell);
    for machine in 0..MACHINES {
        start(&world, machine).await;
    }
    let until = SimInstant::now() + LIFE;
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| SimRuntime::spawn(client::lives(world.clone(), until))).collect();
    chaos::lives(world.clone(), until).await;
    for client in clients {
        client.await.map_err(|_| "a client has panicked".to_owned())?;
    }
    recovers(&world).await?;
    client::goes_on(&world).await?;
    recovers(&world).await?;
    judge::judge(&world)?;
    for machine in 0..MACHINES {
        ends(&world, machine, End::PowerCut, 100_000);
    }
    recovers(&world).await?;
    judge::judge(&world)?;
    let ran = world.lock().ran()?;
    for machine in 0..MACHINES {
        let node = world.lock().machines[machine].node.take();
        if let Some(node) = node {
            node.abandon().await;
        }
    }
    Ok(ran)
}

/// Waits until all nodes run, one leads, and all have applied the same.
async fn recovers(world: &Shared) -> Result<(), String> {
    let until = SimInstant::now() + RECOVERY;
    loop {
        pass(Duration::from_millis(20)).await;
        let now = world.lock();
        if let Some(failure) = now.failure() {
            return Err(failure.to_owned());
        }
        let nodes: Vec<_> = now.machines.iter().filter_map(|machine| machine.node.clone()).collect();
        let is_open =
            |node: &std::sync::Arc<super::machine::SimNode>| node.replica().is_open().unwrap_or(false);
        let ends: Vec<_> = nodes.iter().map(|node| (node.replica().end(), node.log().end())).collect();
        let first = nodes.first().and_then(|node| node.replica().end().ok());
        let are_equal = ends
            .iter()
            .all(|(applied, last)| applied.as_ref().ok() == first.as_ref() && Some(last) == first.as_ref());
        if nodes.len() == MACHINES && are_equal && nodes.iter().any(is_open) {
            return Ok(());
        }
        if SimInstant::now() >= until {
            let ends: Vec<String> = (0..nodes.len())
                .map(|index| format!("node {}: {:?} {:?}", id_of(index), ends[index], nodes[index].leader()))
                .collect();
            return Err(format!("not equal {RECOVERY:?} after everything was healed: {ends:?}"));
        }
    }
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// A task that panics does not end a run, and must.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
}
