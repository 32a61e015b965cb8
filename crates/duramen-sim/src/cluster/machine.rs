//! A machine: its disk, and the node that runs on it. Kills and power cuts leave a disk, from which a new
//! process starts.
//!
//! A process that was killed cannot be ended from outside: its tasks belong to the runtime. So its disk fails
//! from then on, and no request of it is carried.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{Background, Durability, Engine, Geometry, Hooks, Options, Role};
use duramen_repl::simulation::{AsyncRuntime, Instant, SimInstant, SimRuntime};
use duramen_repl::{Node, Peer, Start};

use super::network::Wire;
use super::world::{MACHINES, Shared, pass};
use crate::search::random::{Random, joined};

pub(super) type SimNode = Node<SimRuntime>;

pub(super) const PATH: &str = "/db";
/// The tree of registers and lists.
pub(super) const VALUES: &str = "values";
/// The tree of requests that have happened.
pub(super) const REQUESTS: &str = "requests";

/// A machine.
pub(super) struct Machine {
    pub(super) disk: MemDisk,
    pub(super) node: Option<Arc<SimNode>>,
    /// Counts starts of its process.
    pub(super) incarnation: u64,
    /// It does nothing until then.
    pub(super) paused_until: Option<SimInstant>,
}

/// What a process leaves that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Everything that it wrote.
    Kill,
    /// What was synced, and of the rest what a power cut leaves.
    PowerCut,
}

pub(super) fn options() -> Options {
    Options {
        background: Background::Stepped,
        memory_bytes: 4 << 20,
        geometry: Geometry {
            block_bytes: 512,
            leaf_bytes_max: 512,
            inner_bytes_max: 512,
            big_value_bytes: 300,
            big_value_extent_bytes: 1024,
            segment_bytes_min: 16384,
            segment_bytes_max: 65536,
        },
        ..Options::default()
    }
}

/// Machines with one copy each of a new database.
pub(super) fn machines(seed: u64) -> Result<Vec<Machine>, duramen_engine::Error> {
    let first = MemDisk::new(seed);
    let engine = Engine::open(Arc::new(first.clone()), PATH, options(), Hooks::default())?;
    engine.transact(Durability::Disk, |tx| {
        tx.create_tree(VALUES, None)?;
        tx.create_tree(REQUESTS, None)
    })?;
    engine.close()?;
    drop(engine);
    let copy = |index: usize| {
        let disk = MemDisk::new(joined(seed, index as u64 + 1));
        for file in first.files() {
            let bytes = first.read_file(&file).expect("a file of the disk");
            disk.write_file(&file, &bytes).expect("a disk without faults");
        }
        Machine { disk, node: None, incarnation: 0, paused_until: None }
    };
    Ok((0..MACHINES).map(copy).collect())
}

/// The id of the node of a machine.
pub(super) fn id_of(machine: usize) -> u64 {
    machine as u64 + 1
}

impl Machine {
    /// Whether its process does something now.
    pub(super) fn is_awake(&self) -> bool {
        self.paused_until.is_none_or(|until| until <= SimInstant::now())
    }

    /// Ends the process, if one runs, and leaves the disk of the next one.
    fn end(&mut self, how: End, seed: u64) {
        let left = match how {
            End::Kill => self.disk.deep_clone(),
            End::PowerCut => self.disk.crash(&CrashChoice::Random { seed }),
        };
        rots(&left, seed);
        let dead = std::mem::replace(&mut self.disk, left);
        dead.set_capacity(Some(0));
        dead.set_read_only(true);
        self.incarnation += 1;
        self.paused_until = None;
        if let Some(node) = self.node.take() {
            drop(SimRuntime::spawn(async move { node.abandon().await }));
        }
    }
}

/// Flips a bit in one of the two copies of a small file, now and then.
fn rots(disk: &MemDisk, seed: u64) {
    let mut random = Random::new(joined(seed, 52));
    if random.chance(1, 2) {
        return;
    }
    let file = *random.pick(&["vote", "start"]);
    // The first copy, or the second one.
    let offset = [0, 65536][random.below(2)] + random.below(496) as u64;
    let bit = u8::try_from(random.below(8)).expect("less than 8");
    disk.flip_bit(Path::new(PATH).join("raft").join(file), offset, bit)
        .expect("the file is there, and as long");
}

/// Ends the process of a machine, and starts the next one after a while.
pub(super) fn ends(world: &Shared, machine: usize, how: End) {
    let (seed, rest_us) = {
        let mut world = world.lock();
        let seed = world.random.bits();
        world.machines[machine].end(how, seed);
        (seed, world.random.between(5_000, 800_000))
    };
    let again = world.clone();
    world.lock().happens(&format!("{how:?} of node {} {seed:x}", id_of(machine)));
    drop(SimRuntime::spawn(async move {
        pass(Duration::from_micros(rest_us as u64)).await;
        start(&again, machine).await;
    }));
}

/// Starts a process on a machine.
pub(super) async fn start(world: &Shared, machine: usize) {
    let (disk, incarnation) = {
        let machine = &world.lock().machines[machine];
        if machine.node.is_some() {
            return;
        }
        (machine.disk.clone(), machine.incarnation)
    };
    let members: BTreeMap<u64, Peer> = (0..MACHINES)
        .map(|machine| (id_of(machine), Peer { address: format!("machine-{machine}:1") }))
        .collect();
    let transport = Arc::new(Wire { world: world.clone(), from: machine, incarnation });
    let start = Start { node: id_of(machine), members: Some(members), transport, heartbeat_ms: None };
    let opened: Result<SimNode, _> =
        Node::start(Arc::new(disk), Path::new(PATH), options(), Hooks::default(), start).await;
    let mut now = world.lock();
    if now.machines[machine].incarnation != incarnation {
        // It has ended while it started.
        if let Ok(node) = opened {
            drop(SimRuntime::spawn(async move { node.abandon().await }));
        }
        return;
    }
    match opened {
        Ok(node) => {
            let node = Arc::new(node);
            now.happens(&format!("node {} starts at {:?}", id_of(machine), node.log().end()));
            now.machines[machine].node = Some(Arc::clone(&node));
            drop(now);
            drop(SimRuntime::spawn(works(world.clone(), machine, incarnation, Work::Log)));
            drop(SimRuntime::spawn(works(world.clone(), machine, incarnation, Work::Engine)));
        }
        Err(error) => now.fail(format!("node {} does not start: {error}", id_of(machine))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Writing and syncing Raft's log.
    Log,
    /// The background of the engine: it proposes, syncs its log, and makes checkpoints.
    Engine,
}

/// Lets one background of a process work from time to time, until it ends.
async fn works(world: Shared, machine: usize, incarnation: u64, work: Work) {
    let mut last = SimInstant::now();
    loop {
        let slow = world.lock().random.chance(1, 200);
        world.rest(100, if slow { 40_000 } else { 2_000 }).await;
        let node = {
            let mut world = world.lock();
            let here = &world.machines[machine];
            let Some(node) = here.node.clone().filter(|_| here.incarnation == incarnation) else { return };
            if !here.is_awake() {
                continue;
            }
            if let Ok(Role::Leads { term }) = node.replica().role() {
                world.leads(id_of(machine), term);
            }
            node
        };
        match work {
            // A disk that has failed is met by what waits for it.
            Work::Log if world.lock().random.chance(1, 2) => node.log().step_once(),
            Work::Log => drop(node.log().step()),
            Work::Engine => {
                let now = SimInstant::now();
                let disk = world.lock().machines[machine].disk.clone();
                disk.advance_clock(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
                last = now;
                drop(node.engine().step());
            }
        }
    }
}
