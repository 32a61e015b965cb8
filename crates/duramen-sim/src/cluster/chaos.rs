//! What goes wrong: links, processes, power, clocks, full disks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duramen_engine::Role;
use duramen_repl::simulation::{AsyncRuntime, Instant, SimInstant, SimRuntime};

use super::Met;
use super::machine::{End, SimNode, ends, id_of};
use super::world::{MACHINES, Shared, World};

/// A machine that lost its process starts the next one after so long at most.
const REST_MAX_US: usize = 800_000;
/// The same where nodes keep little for those that lag.
const LONG_REST_MAX_US: usize = 3_000_000;

/// Breaks things until the run ends.
pub(super) async fn lives(world: Shared, until: SimInstant) {
    while SimInstant::now() < until {
        world.rest(10_000, 400_000).await;
        if SimInstant::now() >= until {
            break;
        }
        breaks(&world).await;
        if world.lock().lagging_bytes.is_some() {
            // Nodes let go of the entries that their checkpoints have, whichever members lag.
            (0..MACHINES).for_each(|machine| checkpoints(&world, machine));
        }
    }
    let mut world = world.lock();
    world.is_healed = true;
    world.links.cut.clear();
    world.links.loss = 0;
    world.links.delay_us = 0;
    world.machines.iter_mut().for_each(|machine| machine.paused_until = None);
    make_room(&world);
    world.happens("healed");
}

async fn breaks(world: &Shared) {
    let (what, machine) = {
        let random = &mut world.lock().random;
        (random.below(21), random.below(MACHINES))
    };
    match what {
        0..=1 => cuts_links(&mut world.lock(), machine),
        2..=5 => heals_links(&mut world.lock()),
        6 => {
            let mut world = world.lock();
            world.links.loss = [0, 0, 50, 10][world.random.below(4)];
            world.links.delay_us = [500, 2_000, 10_000, 60_000][world.random.below(4)];
        }
        7 | 8 => pauses(&mut world.lock(), machine),
        9..=10 => {
            if is_up(world, machine) {
                world.lock().meets(Met::Kill, "a kill");
                ends(world, machine, End::Kill, rest_max_us(world));
            }
        }
        11..=13 => {
            if is_up(world, machine) {
                world.lock().meets(Met::PowerCut, "a power cut");
                ends(world, machine, End::PowerCut, rest_max_us(world));
            }
        }
        14 => {
            world.lock().meets(Met::PowerCutOfAll, "a power cut of all");
            for machine in 0..MACHINES {
                if is_up(world, machine) {
                    ends(world, machine, End::PowerCut, rest_max_us(world));
                }
            }
        }
        15 => checkpoints(world, machine),
        16 => transfers(world, machine).await,
        17 => changes_voters(world),
        18 => storms(world),
        19 => fills(&mut world.lock(), machine),
        _ => {
            let world = world.lock();
            let disk = &world.machines[machine].disk;
            let hour_ns = 3_600_000_000_000;
            disk.set_wall_clock(duramen_disk::Disk::wall_ns(disk) + hour_ns);
        }
    }
}

fn checkpoints(world: &Shared, machine: usize) {
    let node = world.lock().machines[machine].node.clone();
    // Both superblocks have it then. A database that is closed fails, and one whose disk is gone.
    drop(node.map(|node| node.engine().checkpoint().and_then(|()| node.engine().checkpoint())));
}

fn rest_max_us(world: &Shared) -> usize {
    if world.lock().lagging_bytes.is_some() { LONG_REST_MAX_US } else { REST_MAX_US }
}

fn is_up(world: &Shared, machine: usize) -> bool {
    world.lock().machines[machine].is_up()
}

/// Cuts a link in one or both directions, isolates a machine, or divides them.
fn cuts_links(world: &mut World, machine: usize) {
    let other = (machine + 1 + world.random.below(MACHINES - 1)) % MACHINES;
    match world.random.below(4) {
        0 => drop(world.links.cut.insert((machine, other))),
        1 => world.links.cut.extend([(machine, other), (other, machine)]),
        2 => {
            let others = (0..MACHINES).filter(|other| *other != machine);
            world.links.cut.extend(others.flat_map(|other| [(machine, other), (other, machine)]));
        }
        // It hears nothing, and is heard.
        _ => {
            let others = (0..MACHINES).filter(|other| *other != machine);
            world.links.cut.extend(others.map(|other| (other, machine)));
        }
    }
    let cut = format!("links cut: {:?}", world.links.cut);
    world.meets(Met::CutLink, &cut);
}

/// Fills the disk of a machine, or of several, nearly or to the last block.
fn fills(world: &mut World, machine: usize) {
    let count = [1, 1, 2, MACHINES][world.random.below(4)];
    let left = [0, 0, 4_096, 30_000][world.random.below(4)];
    for machine in (0..count).map(|more| (machine + more) % MACHINES) {
        let disk = &world.machines[machine].disk;
        disk.set_capacity(Some(disk.used_bytes() + left));
    }
    world.meets(Met::FullDisk, &format!("{count} disks from node {} on have {left} bytes", id_of(machine)));
}

fn make_room(world: &World) {
    world.machines.iter().for_each(|machine| machine.disk.set_capacity(None));
}

fn heals_links(world: &mut World) {
    make_room(world);
    world.links.cut.clear();
    world.happens("links healed, and room made");
}

fn pauses(world: &mut World, machine: usize) {
    let rest_us = world.random.between(20_000, 2_500_000);
    world.machines[machine].paused_until = Some(SimInstant::now() + Duration::from_micros(rest_us as u64));
    world.meets(Met::Pause, &format!("node {} pauses for {rest_us} us", id_of(machine)));
}

/// A node that takes writes.
fn leader(world: &Shared) -> Option<Arc<SimNode>> {
    let nodes: Vec<_> = world.lock().machines.iter().filter_map(|machine| machine.node.clone()).collect();
    nodes.into_iter().find(|node| matches!(node.replica().role(), Ok(Role::Leads { .. })))
}

/// Lets all nodes campaign at about the same time, in the same terms, and cuts the power of some right after
/// they have voted.
fn storms(world: &Shared) {
    let until = SimInstant::now() + Duration::from_millis(400);
    {
        let mut world = world.lock();
        world.links.storm_until = Some(until);
        world.meets(Met::Storm, "all campaign");
    }
    for machine in 0..MACHINES {
        let world = world.clone();
        drop(SimRuntime::spawn(async move {
            for _ in 0..3 {
                world.rest(0, 60_000).await;
                let node = world.lock().machines[machine].node.clone();
                if let Some(node) = node {
                    node.campaign().await;
                }
            }
        }));
    }
}

/// Asks the leader to let three or five other machines vote.
fn changes_voters(world: &Shared) {
    let Some(node) = leader(world) else { return };
    let mut machines: Vec<u64> = (0..MACHINES).map(id_of).collect();
    let voters: BTreeSet<u64> = {
        let random = &mut world.lock().random;
        random.shuffle(&mut machines);
        machines.into_iter().take(if random.chance(3, 4) { 3 } else { 5 }).collect()
    };
    let world = world.clone();
    // It may wait for a majority for ever.
    drop(SimRuntime::spawn(async move {
        world.lock().happens(&format!("voters are to be {voters:?}"));
        if node.change_voters(voters.clone()).await.is_ok() {
            world.lock().meets(Met::Voters, &format!("voters are {voters:?}"));
        }
    }));
}

/// Asks the leader to let another node lead.
async fn transfers(world: &Shared, to: usize) {
    if let Some(node) = leader(world) {
        world.lock().meets(Met::Transfer, &format!("the leadership is to go to node {}", id_of(to)));
        // A node that does not take it is no failure.
        drop(node.transfer(id_of(to)).await);
    }
}
