//! What goes wrong, and how it ends.

use std::fmt;
use std::time::Duration;

use duramen_disk::memory::Random;

use crate::ballast;
use crate::cluster::Cluster;
use crate::failure::Result;

/// Clocks jump at most so far, in seconds.
const JUMP_SECONDS_MAX: usize = 4000;
/// Links are at most so slow, in milliseconds. Members answer within a few times that.
const SLOW_MS_MAX: usize = 80;
/// So many chunks of a link have a flipped bit.
const FLIPS: u64 = 4;

/// A fault. Machines are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL.
    Killed(Vec<usize>),
    /// SIGTERM, which a node has time to end after.
    Stopped(usize),
    /// SIGSTOP.
    Paused(Vec<usize>),
    /// A machine hears nothing of the others, and they nothing of it.
    Isolated(usize),
    /// What one sends does not reach the other.
    OneWay(usize, usize),
    /// Two hear nothing of each other, and both hear the rest.
    Apart(usize, usize),
    /// No client reaches it.
    Hidden(usize),
    Slow(usize),
    /// One chunk in ten is sent again.
    Lossy,
    /// All connections end.
    Broken,
    /// Bits on its links to other machines flip.
    Garbled(usize),
    /// The wall clock of a machine jumps, by seconds.
    Clock(usize, i64),
    /// Another node leads.
    HandedOver(usize),
    /// An empty disk is in the place of its own.
    DiskLost(usize),
    /// A bit of a file has flipped while its node was down.
    FileFlipped(usize),
    /// No block of the disk is free.
    Full(Vec<usize>),
    /// Killed, and started again when the others do not have all entries any more that it lacks.
    Behind(usize),
}

/// What faults are drawn from.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) machines: usize,
    /// The machine of the leader, if that is known: half of the faults are of it.
    pub(crate) leads: Option<usize>,
    /// Whether clocks can be set.
    pub(crate) has_clock: bool,
    /// Whether disks can be full.
    pub(crate) has_small_disks: bool,
    /// Only of these kinds, if there are any.
    pub(crate) kinds: &'a [String],
    /// All are of the leader, and of no other machine.
    pub(crate) is_of_leader: bool,
}

impl Fault {
    /// All kinds: for the report.
    pub(crate) const KINDS: [&'static str; 17] = [
        "killed",
        "stopped",
        "paused",
        "isolated",
        "one way",
        "apart",
        "hidden",
        "slow",
        "lossy",
        "broken",
        "garbled",
        "clock",
        "handed over",
        "disk lost",
        "file flipped",
        "full",
        "behind",
    ];

    pub(crate) fn kind(&self) -> &'static str {
        let number = match self {
            Fault::Killed(_) => 0,
            Fault::Stopped(_) => 1,
            Fault::Paused(_) => 2,
            Fault::Isolated(_) => 3,
            Fault::OneWay(..) => 4,
            Fault::Apart(..) => 5,
            Fault::Hidden(_) => 6,
            Fault::Slow(_) => 7,
            Fault::Lossy => 8,
            Fault::Broken => 9,
            Fault::Garbled(_) => 10,
            Fault::Clock(..) => 11,
            Fault::HandedOver(_) => 12,
            Fault::DiskLost(_) => 13,
            Fault::FileFlipped(_) => 14,
            Fault::Full(_) => 15,
            Fault::Behind(_) => 16,
        };
        Fault::KINDS[number]
    }

    /// Whether the machine has to be replaced, so that all others must be well meanwhile.
    pub(crate) fn takes_a_machine(&self) -> bool {
        matches!(self, Fault::DiskLost(_) | Fault::FileFlipped(_))
    }

    /// Whether no other fault may meet it. A node that is started on a full disk again and again finds no
    /// room at last. To leave one behind, the other machines must take writes.
    pub(crate) fn is_alone(&self) -> bool {
        self.takes_a_machine() || matches!(self, Fault::Full(_) | Fault::Behind(_))
    }

    /// Whether a node was asked to stop.
    pub(crate) fn stops(&self) -> bool {
        matches!(self, Fault::Stopped(_))
    }

    /// Draws one.
    pub(crate) fn draw(random: &mut Random, from: &Choice<'_>) -> Fault {
        loop {
            let fault = Fault::draw_any(random, from);
            if from.kinds.is_empty() || from.kinds.iter().any(|kind| kind == fault.kind()) {
                return fault;
            }
        }
    }

    fn draw_any(random: &mut Random, from: &Choice<'_>) -> Fault {
        let &Choice { machines, leads, has_clock, has_small_disks, is_of_leader, .. } = from;
        let one = match leads {
            Some(leads) if is_of_leader || random.chance(1, 2) => leads,
            _ => random.below(machines),
        };
        let other = (one + 1 + random.below(machines - 1)) % machines;
        let several = |random: &mut Random| {
            let mut all: Vec<usize> = (0..machines).filter(|machine| *machine != one).collect();
            random.shuffle(&mut all);
            // Mostly none of the others, now and then one, and now and then all.
            all.truncate(if is_of_leader { 0 } else { [0, 0, 0, 1, machines][random.below(5)] });
            all.push(one);
            all
        };
        match random.below(if has_small_disks { 23 } else { 21 }) {
            0..=3 => Fault::Killed(several(random)),
            4 => Fault::Stopped(one),
            5..=6 => Fault::Paused(several(random)),
            7..=8 => Fault::Isolated(one),
            9 => Fault::OneWay(one, other),
            10 => Fault::Apart(one, other),
            11 => Fault::Hidden(one),
            12 => Fault::Slow(1 + random.below(SLOW_MS_MAX)),
            13 => Fault::Lossy,
            14 => Fault::Broken,
            15 => Fault::Garbled(one),
            16 if has_clock => {
                let by = i64::try_from(1 + random.below(JUMP_SECONDS_MAX)).expect("seconds");
                Fault::Clock(one, if random.chance(1, 2) { by } else { -by })
            }
            16 | 17 => Fault::HandedOver(other),
            18 => Fault::DiskLost(one),
            19 => Fault::FileFlipped(one),
            20 => Fault::Behind(one),
            _ => Fault::Full(several(random)),
        }
    }

    /// Lets it begin. Returns what is to be told of it.
    pub(crate) fn begin(&self, cluster: &mut Cluster, random: &mut Random) -> Result<String> {
        match self {
            Fault::Killed(machines) => {
                machines.iter().try_for_each(|machine| cluster.machines[*machine].kill())?;
            }
            Fault::Stopped(machine) => cluster.machines[*machine].ask_to_stop()?,
            Fault::Paused(machines) => {
                machines.iter().try_for_each(|machine| cluster.machines[*machine].pause())?;
            }
            Fault::Isolated(machine) => {
                cluster.links_of(*machine).for_each(|link| link.cut(true, true));
                if random.chance(1, 2) {
                    cluster.of_clients(*machine).cut(true, true);
                }
            }
            Fault::OneWay(from, to) => {
                cluster.link(*from, *to).cut(true, false);
                cluster.link(*to, *from).cut(false, true);
            }
            Fault::Apart(one, other) => {
                cluster.link(*one, *other).cut(true, true);
                cluster.link(*other, *one).cut(true, true);
            }
            Fault::Hidden(machine) => cluster.of_clients(*machine).cut(true, true),
            Fault::Slow(ms) => {
                cluster.links().for_each(|link| link.delay(Duration::from_millis(*ms as u64)));
            }
            Fault::Lossy => cluster.links().for_each(|link| link.lose(10)),
            Fault::Broken => cluster.links().for_each(|link| link.break_connections()),
            Fault::Garbled(machine) => {
                // TLS guards what nodes say to each other; clients here have none.
                cluster.links_of(*machine).for_each(|link| link.flip(FLIPS));
            }
            Fault::Clock(machine, seconds) => {
                cluster.machines[*machine].set_clock(seconds * 1_000_000_000)?;
            }
            Fault::HandedOver(machine) => return Ok(hand_over(cluster, *machine)),
            Fault::DiskLost(machine) => cluster.machines[*machine].lose_disk()?,
            Fault::Full(machines) => {
                machines.iter().try_for_each(|machine| cluster.machines[*machine].fill())?;
            }
            Fault::FileFlipped(machine) => return flip(cluster, *machine, random),
            Fault::Behind(machine) => {
                cluster.machines[*machine].kill()?;
                return ballast::leave_behind((*machine + 1) % cluster.machines.len(), random);
            }
        }
        Ok(String::new())
    }

    /// Ends it. Links are healed by the caller.
    pub(crate) fn end(&self, cluster: &mut Cluster) -> Result<()> {
        match self {
            Fault::Killed(machines) => {
                for machine in machines {
                    // Another fault may have it started.
                    if !cluster.machines[*machine].is_up() {
                        cluster.machines[*machine].start(&[])?;
                    }
                }
            }
            Fault::Behind(machine) if !cluster.machines[*machine].is_up() => {
                cluster.machines[*machine].start(&[])?;
            }
            Fault::Stopped(machine) => {
                let machine = &mut cluster.machines[*machine];
                // Another fault may have ended it.
                if machine.is_stopping() {
                    machine.wait_until_stopped()?;
                    machine.start(&[])?;
                }
            }
            Fault::Paused(machines) => {
                machines.iter().try_for_each(|machine| cluster.machines[*machine].resume())?;
            }
            Fault::Clock(machine, _) => cluster.machines[*machine].set_clock(0)?,
            Fault::DiskLost(machine) => cluster.replace(*machine)?,
            Fault::Full(machines) => {
                machines.iter().try_for_each(|machine| cluster.machines[*machine].make_room())?;
            }
            Fault::FileFlipped(machine) => {
                cluster.machines[*machine].lose_disk()?;
                cluster.replace(*machine)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |machine: &usize| (machine + 1).to_string();
        let names = |machines: &[usize]| machines.iter().map(name).collect::<Vec<_>>().join(" ");
        write!(f, "{} ", self.kind())?;
        match self {
            Fault::Killed(machines) | Fault::Paused(machines) | Fault::Full(machines) => {
                f.write_str(&names(machines))
            }
            Fault::OneWay(one, other) | Fault::Apart(one, other) => f.write_str(&names(&[*one, *other])),
            Fault::Slow(ms) => write!(f, "{ms} ms"),
            Fault::Clock(machine, seconds) => write!(f, "{} by {seconds} s", name(machine)),
            Fault::Stopped(machine)
            | Fault::Isolated(machine)
            | Fault::Hidden(machine)
            | Fault::Garbled(machine)
            | Fault::HandedOver(machine)
            | Fault::DiskLost(machine)
            | Fault::Behind(machine)
            | Fault::FileFlipped(machine) => f.write_str(&name(machine)),
            Fault::Lossy | Fault::Broken => Ok(()),
        }
    }
}

/// It may be refused: the member may not answer.
fn hand_over(cluster: &Cluster, to: usize) -> String {
    let Some((leads, status)) = cluster.status_of_leader() else { return "no node leads".to_owned() };
    let Some(node) = cluster.node_of(&status, to) else { return "it is no member".to_owned() };
    cluster.ask(&["transfer", &node.to_string()], leads).err().unwrap_or_default()
}

fn flip(cluster: &mut Cluster, machine: usize, random: &mut Random) -> Result<String> {
    let machine = &mut cluster.machines[machine];
    machine.kill()?;
    let files = machine.files()?;
    let file = random.pick(&files);
    let bit = u8::try_from(random.below(8)).expect("a bit");
    let offset = machine.flip(file, random.below(1000) as u64, bit)?;
    machine.start(&[])?;
    Ok(format!("bit {bit} of byte {offset} of {}", file.display()))
}
