//! A machine: its disk, and the node that runs on it. Kills and power cuts leave a disk, from which a new
//! process starts.
//!
//! A process that was killed cannot be ended from outside: its tasks belong to the runtime. So its disk fails
//! from then on, and no request of it is carried.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duramen::DbOptions;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{
    Background, Code, CommitSeq, Durability, Engine, Geometry, Hooks, Options, Receipt, Role,
};
use duramen_repl::simulation::{AsyncRuntime, Instant, SimInstant, SimRuntime};
use duramen_repl::{CopyOf, First, Ident, Members, Node, NodeError, Peer, Start, copy_anew};

use super::Met;
use super::network::Wire;
use super::world::{FIRST_VOTERS, MACHINES, Shared, World, pass};
use crate::search::random::{Random, joined};

pub(super) type SimNode = Node<SimRuntime>;

pub(super) const PATH: &str = "/db";
/// A copy that has not come in this time is given up.
const COPY_MAX: Duration = Duration::from_secs(2);
/// A process that found no room is started again after so long at most, with room.
const REST_WITHOUT_ROOM_US: usize = 500_000;
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
    pub(super) is_starting: bool,
    /// It does nothing until then.
    pub(super) paused_until: Option<SimInstant>,
    /// The commits that this process has ordered, by their tries.
    pub(super) receipts: Vec<(usize, Receipt)>,
    /// The last entry that was compared with those of other nodes.
    applied: u64,
    /// The last entry that its log has let go.
    purged: u64,
    /// What its next process copies first.
    copy: Option<CopyOf>,
}

/// What a process leaves that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Everything that it wrote.
    Kill,
    /// What was synced, and of the rest what a power cut leaves.
    PowerCut,
}

fn db_options() -> DbOptions {
    DbOptions::default().engine(|of_engine| *of_engine = options())
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
            segment_bytes_min: 4096,
            segment_bytes_max: 16384,
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
        Machine {
            disk,
            node: None,
            incarnation: 0,
            is_starting: false,
            paused_until: None,
            receipts: Vec::new(),
            applied: 0,
            purged: 0,
            copy: None,
        }
    };
    Ok((0..MACHINES).map(copy).collect())
}

/// The address of the node of a machine.
fn address_of(machine: usize) -> String {
    format!("machine-{machine}:1")
}

pub(super) fn machine_at(address: &str) -> usize {
    let number = address.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(":1"));
    number.and_then(|number| number.parse().ok()).expect("an address of a machine")
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

    /// Whether a process runs, or is starting.
    pub(super) fn is_up(&self) -> bool {
        self.node.is_some() || self.is_starting
    }

    /// Ends the process. The next one finds this disk.
    fn end(&mut self, left: MemDisk) {
        let dead = std::mem::replace(&mut self.disk, left);
        dead.set_capacity(Some(0));
        dead.set_read_only(true);
        self.incarnation += 1;
        (self.paused_until, self.is_starting) = (None, false);
        self.receipts.clear();
        self.applied = 0;
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
    let raft = Path::new(PATH).join("raft");
    let file = raft.join(*random.pick(&["vote", "start"]));
    // The first copy, or the second one.
    let offset = [0, 65536][random.below(2)] + random.below(496) as u64;
    let bit = u8::try_from(random.below(8)).expect("less than 8");
    // While a database becomes a node, there may be none.
    drop(disk.flip_bit(file, offset, bit));
}

/// Ends the process of a machine, and starts the next one after a while: of up to so many microseconds.
pub(super) fn ends(world: &Shared, machine: usize, how: End, rest_max_us: usize) {
    let left = {
        let mut world = world.lock();
        let seed = world.random.bits();
        let disk = &world.machines[machine].disk;
        let left = match how {
            End::Kill => disk.deep_clone(),
            End::PowerCut => disk.crash(&CrashChoice::Random { seed }),
        };
        // Only where an opening has made both copies equal: a torn copy and a rotten one are two faults.
        if world.machines[machine].node.is_some() {
            rots(&left, seed);
        }
        world.happens(&format!("{how:?} of node {} {seed:x}", id_of(machine)));
        left
    };
    goes_on(world, machine, left, rest_max_us);
}

/// Ends the process of a machine in an orderly way, and lets the next one copy the state first.
fn ends_to_copy(world: &Shared, machine: usize, copy: CopyOf) {
    let left = {
        let mut world = world.lock();
        world.happens(&format!("node {} needs a copy: {}", id_of(machine), copy.from));
        world.machines[machine].copy = Some(copy);
        world.machines[machine].disk.deep_clone()
    };
    goes_on(world, machine, left, 20_000);
}

/// Copies the state to a machine that needs it, unless that takes too long or fails: it has its own then.
async fn copies(world: &Shared, machine: usize, transport: Arc<Wire>) {
    let (copy, disk) = {
        let machine = &mut world.lock().machines[machine];
        (machine.copy.take(), machine.disk.clone())
    };
    let Some(copy) = copy else { return };
    let own = address_of(machine);
    let copies = copy_anew::<SimRuntime>(Arc::new(disk), Path::new(PATH), db_options(), copy, own, transport);
    let copied = SimRuntime::timeout(COPY_MAX, copies).await;
    let mut world = world.lock();
    match copied {
        Ok(Ok(true)) => world.meets(Met::Copied, &format!("node {} has copied the state", id_of(machine))),
        other => world.happens(&format!("node {} has no copy: {other:?}", id_of(machine))),
    }
}

/// Ends the process of a machine, and starts the next one on what is left.
fn goes_on(world: &Shared, machine: usize, left: MemDisk, rest_max_us: usize) {
    let rest_us = {
        let mut world = world.lock();
        world.machines[machine].end(left);
        world.machines[machine].is_starting = true;
        world.random.between(1_000, rest_max_us)
    };
    let again = world.clone();
    let incarnation = world.lock().machines[machine].incarnation;
    drop(SimRuntime::spawn(async move {
        pass(Duration::from_micros(rest_us as u64)).await;
        // Otherwise the power was cut once more.
        if again.lock().machines[machine].incarnation == incarnation {
            start(&again, machine).await;
        }
    }));
}

/// Cuts the power at one of the next syncs of a disk: what that leaves is found here.
struct CutAtSync {
    disk: MemDisk,
    left: Arc<Mutex<Option<MemDisk>>>,
}

impl CutAtSync {
    fn new(disk: &MemDisk, nth: usize, seed: u64) -> CutAtSync {
        let (cut, left, counted) = (disk.clone(), Arc::new(Mutex::new(None)), AtomicUsize::new(0));
        let place = Arc::clone(&left);
        disk.set_blocker(Some(Arc::new(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) == nth {
                let image = cut.crash(&CrashChoice::Garbled { seed });
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(image);
            }
        })));
        CutAtSync { disk: disk.clone(), left }
    }

    fn left(self) -> Option<MemDisk> {
        self.disk.set_blocker(None);
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Cuts the power at one of the first syncs of what follows, now and then.
fn may_cut(world: &Shared, machine: usize, once_in: usize, syncs: usize) -> Option<CutAtSync> {
    let mut world = world.lock();
    if world.is_healed || !world.random.chance(1, once_in) {
        return None;
    }
    let (nth, seed) = (world.random.below(syncs), world.random.bits());
    Some(CutAtSync::new(&world.machines[machine].disk, nth, seed))
}

/// Ends the process if the power was cut. Returns whether it was.
fn is_cut(world: &Shared, machine: usize, cut: Option<CutAtSync>, what: &str) -> bool {
    let Some(left) = cut.and_then(CutAtSync::left) else { return false };
    world.lock().meets(Met::PowerCutAtSync, &format!("power cut of node {} in {what}", id_of(machine)));
    goes_on(world, machine, left, 300_000);
    true
}

/// Starts a process on a machine.
pub(super) async fn start(world: &Shared, machine: usize) {
    let (disk, incarnation) = {
        let machine = &mut world.lock().machines[machine];
        machine.is_starting = true;
        (machine.disk.clone(), machine.incarnation)
    };
    let transport = Arc::new(Wire { world: world.clone(), from: machine, incarnation });
    let cut = if world.lock().machines[machine].copy.is_some() {
        let cut = may_cut(world, machine, 2, 80);
        copies(world, machine, Arc::clone(&transport)).await;
        cut
    } else {
        may_cut(world, machine, 8, 4)
    };
    let peer = |machine| (id_of(machine), Peer { address: address_of(machine), ..Peer::default() });
    let members = Members { voters: (1..=FIRST_VOTERS).collect(), peers: (0..MACHINES).map(peer).collect() };
    // They begin as copies of one database, each as another node, with one time whatever their clocks say.
    let first = First { ident: Ident { cluster: 1, node: id_of(machine) }, members, time_ns: 0 };
    let lagging_bytes = world.lock().lagging_bytes;
    let start = Start { first: Some(first), promotes: false, transport, heartbeat_ms: None, lagging_bytes };
    let opened: Result<SimNode, _> =
        Node::start(Arc::new(disk), PathBuf::from(PATH), db_options(), start).await;
    let has_ended = world.lock().machines[machine].incarnation != incarnation;
    if has_ended || is_cut(world, machine, cut, "its start") {
        // While it started.
        if let Ok(node) = opened {
            drop(SimRuntime::spawn(async move { node.abandon().await }));
        }
        return;
    }
    let mut now = world.lock();
    match opened {
        Ok(node) => {
            let node = Arc::new(node);
            now.happens(&format!("node {} starts at {:?}", id_of(machine), node.log().end()));
            now.machines[machine].node = Some(node);
            now.machines[machine].is_starting = false;
            drop(now);
            drop(SimRuntime::spawn(works(world.clone(), machine, incarnation, Work::Log)));
            drop(SimRuntime::spawn(works(world.clone(), machine, incarnation, Work::Engine)));
        }
        // Each start takes a segment of both logs: on a full disk the last one is used up some time.
        Err(NodeError::Database(error)) if error.code() == Code::DiskFull => {
            now.happens(&format!("node {} finds no room for its start: {error}", id_of(machine)));
            let disk = now.machines[machine].disk.clone();
            disk.set_capacity(None);
            drop(now);
            goes_on(world, machine, disk.deep_clone(), REST_WITHOUT_ROOM_US);
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
        let needs_copy = {
            let world = world.lock();
            let here = &world.machines[machine];
            let is_awake = here.incarnation == incarnation && here.is_awake();
            here.node.as_ref().filter(|_| is_awake).and_then(|node| node.needs_copy())
        };
        if let Some(copy) = needs_copy {
            ends_to_copy(&world, machine, copy);
            return;
        }
        let (node, disk) = {
            let mut world = world.lock();
            let here = &world.machines[machine];
            let Some(node) = here.node.clone().filter(|_| here.incarnation == incarnation) else { return };
            if !here.is_awake() {
                continue;
            }
            let disk = here.disk.clone();
            looks(&mut world, machine, &node);
            (node, disk)
        };
        let failed = match work {
            Work::Log => {
                let cut = may_cut(&world, machine, 150, 4);
                if world.lock().random.chance(1, 2) {
                    node.log().step_once();
                }
                let stepped = if world.lock().random.chance(1, 2) { node.log().step() } else { Ok(()) };
                if is_cut(&world, machine, cut, "its log") {
                    return;
                }
                stepped.err()
            }
            Work::Engine => {
                let now = SimInstant::now();
                disk.advance_clock(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
                last = now;
                // A full disk is no failure: what waits for room is done later.
                node.engine().step().err().filter(|error| error.code() != Code::DiskFull)
            }
        };
        if let Some(error) = failed {
            world.lock().fail(format!("node {} fails in its {work:?}: {error}", id_of(machine)));
        }
    }
}

/// What must hold of a process at any time.
fn looks(world: &mut World, machine: usize, node: &SimNode) {
    let id = id_of(machine);
    if let Ok(Role::Leads { term }) = node.replica().role() {
        world.leads(id, term);
    }
    if let (Some(leader), term) = node.leader() {
        world.is_led(leader, term);
    }
    if let Some(error) = node.failure() {
        world.fail(format!("node {id} has ended: {error}"));
    }
    let Ok(end) = node.replica().end() else { return };
    if end.id.seq > node.log().synced() {
        world
            .fail(format!("node {id} has applied {end:?}, and its log is synced to {}", node.log().synced()));
    }
    let purged = node.log().purged().id.seq.0;
    if purged > world.machines[machine].purged {
        world.machines[machine].purged = purged;
        world.meets(Met::Purge, &format!("node {id} has let go of its log up to {purged}"));
    }
    let from = world.machines[machine].applied.max(purged);
    for seq in from + 1..=end.id.seq.0 {
        match node.log().end_after(CommitSeq(seq)) {
            Ok(applied) => world.applies(id, applied),
            Err(error) => world.fail(format!("node {id} cannot read entry {seq}: {error}")),
        }
    }
    world.machines[machine].applied = end.id.seq.0;
}
