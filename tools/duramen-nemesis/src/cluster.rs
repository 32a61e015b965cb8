//! The cluster under test: its machines, the links between them, and the commands of an operator.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::Handle;

use crate::failure::{Result, failed};
use crate::link::{self, Conditions};
use crate::machine::{self, Kit, Machine};
use crate::room::Room;

/// Within this time a cluster that nothing is wrong with any more has all its members.
const WHOLE_WITHIN: Duration = Duration::from_secs(90);
/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    kit: Arc<Kit>,
    pub(crate) machines: Vec<Machine>,
    /// From each machine, and behind the last one from the clients, to each machine.
    links: Vec<Vec<Option<Arc<Conditions>>>>,
}

impl Cluster {
    /// Makes the machines and links; no node runs yet. `clients` is the namespace of the clients.
    pub(crate) fn new(kit: &Arc<Kit>, count: usize, handle: &Handle, seed: u64) -> Result<Cluster> {
        let machines: Vec<Machine> =
            (0..count).map(|number| Machine::new(kit, number)).collect::<Result<_>>()?;
        let outside = Room::here();
        let mut links = Vec::new();
        for from in 0..=count {
            let mut of = Vec::new();
            for to in &machines {
                let seed = seed.wrapping_add((from * 16 + to.number) as u64);
                of.push(if from == to.number {
                    None
                } else if from == count {
                    let serves = machine::serves(to.number);
                    // The tool's own way is never disturbed.
                    link::make(handle, (&outside, machine::steward(to.number)), (&to.room, serves), seed)?;
                    Some(link::make(handle, (&outside, serves), (&to.room, serves), seed)?)
                } else {
                    let peers = machine::peers(to.number);
                    Some(link::make(handle, (&machines[from].room, peers), (&to.room, peers), seed)?)
                });
            }
            links.push(of);
        }
        Ok(Cluster { kit: Arc::clone(kit), machines, links })
    }

    /// Machines whose disks are at these directories, all in the namespace of this thread: no link can be
    /// disturbed.
    pub(crate) fn beside(kit: &Arc<Kit>, directories: Vec<PathBuf>, handle: &Handle) -> Result<Cluster> {
        let room = Arc::new(Room::here());
        let machines: Vec<Machine> = directories
            .into_iter()
            .enumerate()
            .map(|(number, directory)| Machine::on(kit, number, &room, directory))
            .collect();
        for Machine { number, .. } in &machines {
            link::make(handle, (&room, machine::steward(*number)), (&room, machine::serves(*number)), 0)?;
        }
        Ok(Cluster { kit: Arc::clone(kit), machines, links: Vec::new() })
    }

    /// Starts the first node, and lets the others join.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.machines[0].start(&["--cluster", "init"])?;
        for number in 1..self.machines.len() {
            self.machines[number].start(&["--join", &machine::peers(0).to_string()])?;
        }
        self.wait_until_whole()
    }

    /// Whether the clocks of machines can be set.
    pub(crate) fn has_clock(&self) -> bool {
        self.kit.clock.is_some()
    }

    /// Whether disks of machines can be full.
    pub(crate) fn has_small_disks(&self) -> bool {
        self.kit.has_small_disks
    }

    /// The link from one machine to another.
    pub(crate) fn link(&self, from: usize, to: usize) -> &Conditions {
        self.links[from][to].as_deref().expect("it is another machine")
    }

    /// The link of the clients to a machine.
    pub(crate) fn of_clients(&self, to: usize) -> &Conditions {
        self.link(self.machines.len(), to)
    }

    /// All links, those of clients among them.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Conditions> {
        self.links.iter().flatten().flatten().map(Arc::as_ref)
    }

    /// All links from a machine to others, and from others to it.
    pub(crate) fn links_of(&self, machine: usize) -> impl Iterator<Item = &Conditions> {
        let of_machines = &self.links[..self.machines.len()];
        let from = of_machines[machine].iter();
        from.chain(of_machines.iter().map(move |of| &of[machine])).flatten().map(Arc::as_ref)
    }

    /// Fails if a node has ended by itself.
    pub(crate) fn none_has_ended(&mut self) -> Result<()> {
        for machine in &mut self.machines {
            if let Some(status) = machine.has_ended()? {
                let log = machine.log();
                return Err(format!("the node of {} ended by itself: {status}", log.display()));
            }
        }
        Ok(())
    }

    /// Runs `duramen cluster` with these words, at a machine.
    pub(crate) fn ask(&self, words: &[&str], at: usize) -> Result<String> {
        let asked = Command::new(&self.kit.duramen)
            .arg("cluster")
            .args(words)
            .arg("--at")
            .arg(machine::steward(at).to_string())
            .output()
            .map_err(|error| failed("start", &self.kit.duramen.display(), &error))?;
        if asked.status.success() {
            return Ok(String::from_utf8_lossy(&asked.stdout).into_owned());
        }
        Err(format!("duramen cluster {}: {}", words.join(" "), String::from_utf8_lossy(&asked.stderr).trim()))
    }

    /// What a machine says of the cluster.
    pub(crate) fn status(&self, at: usize) -> Result<Value> {
        let told = self.ask(&["status", "--json"], at)?;
        serde_json::from_str(&told).map_err(|error| format!("cluster status: {error}: {told}"))
    }

    /// What the machine says that leads, as far as any other knows.
    pub(crate) fn status_of_leader(&self) -> Option<(usize, Value)> {
        let up = self.machines.iter().filter(|machine| machine.answers());
        let statuses = up.filter_map(|machine| self.status(machine.number).ok());
        statuses.filter(|status| status["leader"].as_u64().is_some_and(|leader| leader > 0)).find_map(
            |status| {
                let leads = self.machine_of(&status, status["leader"].as_u64()?)?;
                (status["spare"].is_u64()).then_some((leads, status))
            },
        )
    }

    /// The machine of a member.
    fn machine_of(&self, status: &Value, node: u64) -> Option<usize> {
        let members = status["members"].as_array()?;
        let address = &members.iter().find(|member| member["node"] == node)?["address"];
        (0..self.machines.len()).find(|number| *address == machine::peers(*number).to_string())
    }

    /// The member of a machine.
    pub(crate) fn node_of(&self, status: &Value, machine: usize) -> Option<u64> {
        let address = machine::peers(machine).to_string();
        let members = status["members"].as_array()?;
        members.iter().find(|member| member["address"] == address)?["node"].as_u64()
    }

    /// Which node a machine is. A machine tells what its leader does, where there is one: so it is the
    /// member with its address, and not the node that answers.
    pub(crate) fn node_of_machine(&self, machine: usize) -> Result<u64> {
        let status = self.status(machine)?;
        self.node_of(&status, machine)
            .ok_or_else(|| format!("machine {} is no member: {status}", machine + 1))
    }

    /// Whether a machine knows which node leads, and all machines vote and answer.
    pub(crate) fn is_member(&self, machine: usize) -> bool {
        let follows = |status: &Value| status["leader"].as_u64().is_some_and(|leader| leader > 0);
        self.status(machine).is_ok_and(|status| follows(&status)) && self.is_whole()
    }

    /// Whether all machines vote and answer.
    pub(crate) fn is_whole(&self) -> bool {
        self.status_of_leader().is_some_and(|(_, status)| self.is_whole_by(&status))
    }

    fn is_whole_by(&self, status: &Value) -> bool {
        let spare = self.machines.len() - (self.machines.len() / 2 + 1);
        let all = status["members"].as_array().is_some_and(|all| all.len() == self.machines.len());
        all && status["spare"] == spare
    }

    /// Waits until all machines vote and answer.
    pub(crate) fn wait_until_whole(&mut self) -> Result<()> {
        let until = Instant::now() + WHOLE_WITHIN;
        loop {
            self.none_has_ended()?;
            let told = self.status_of_leader();
            if told.as_ref().is_some_and(|(_, status)| self.is_whole_by(status)) {
                return Ok(());
            }
            if Instant::now() > until {
                let told = told.map_or("no node leads".to_owned(), |(_, status)| status.to_string());
                return Err(format!("not whole after {} s: {told}", WHOLE_WITHIN.as_secs()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Removes a member whose disk is lost, and lets an empty machine join in its place.
    pub(crate) fn replace(&mut self, lost: usize) -> Result<()> {
        let until = Instant::now() + WHOLE_WITHIN;
        loop {
            self.none_has_ended()?;
            let removed = match self.status_of_leader() {
                None => Err("no node leads".to_owned()),
                Some((leads, status)) => match self.node_of(&status, lost) {
                    None => break,
                    Some(node) => self.ask(&["remove", &node.to_string()], leads).map(drop),
                },
            };
            match removed {
                Ok(()) => break,
                Err(why) if Instant::now() > until => return Err(why),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        let other = (lost + 1) % self.machines.len();
        self.machines[lost].start(&["--join", &machine::peers(other).to_string()])?;
        self.wait_until_whole()
    }

    /// Stops all nodes, and lets `duramen check` read what they leave.
    pub(crate) fn stop_and_check(&mut self) -> Result<()> {
        self.machines.iter_mut().try_for_each(Machine::ask_to_stop)?;
        self.machines.iter_mut().try_for_each(Machine::wait_until_stopped)?;
        for machine in &self.machines {
            let checked = Command::new(&self.kit.duramen).arg("check").arg(machine.database()).output();
            let checked = checked.map_err(|error| failed("start", &"duramen check", &error))?;
            if !checked.status.success() {
                let said = String::from_utf8_lossy(&checked.stdout);
                return Err(format!("duramen check {}: {said}", machine.database().display()));
            }
        }
        Ok(())
    }
}
