//! A run: clients, faults one after the other, and the judgement.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use duramen_disk::memory::Random;
use tokio::runtime::Handle;

use crate::clients::Load;
use crate::cluster::{Cluster, LOOK};
use crate::failure::{Result, failed};
use crate::faults::{Choice, Fault};
use crate::machine::{self, Kit};
use crate::{ballast, command, judgement, kit};

/// A fault lasts at least so long, in milliseconds.
const LASTS_MS_MIN: usize = 100;

/// Lets things go wrong in a cluster of real processes, and checks every answer of its clients
#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// The program under test
    #[arg(long)]
    duramen: PathBuf,
    /// A directory for the databases and logs, which must be empty
    #[arg(long)]
    work: PathBuf,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=5))]
    machines: u8,
    #[arg(long, default_value_t = 100)]
    faults: u64,
    /// A fault lasts at most so many milliseconds
    #[arg(long, default_value_t = 2000)]
    lasts: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only faults of this kind, one at a time; can be repeated
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Fault::KINDS))]
    only: Vec<String>,
    /// Each machine has a small ext4 of its own, which is full now and then
    #[arg(long)]
    full_disks: bool,
    /// Only faults of the machine that leads, and of no other one at the same time
    #[arg(long)]
    of_leader: bool,
}

/// Lets faults happen.
pub(crate) fn main(args: &FaultArgs) -> ExitCode {
    command::in_room(&args.work, |handle| make(args, handle), |cluster| run(args, cluster))
}

/// Returns what was wrong.
fn run(args: &FaultArgs, mut cluster: Cluster) -> Result<Vec<String>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))
            .map_err(|error| failed("wait for", &"signals", &error))?;
    }
    let count = cluster.machines.len();
    cluster.begin()?;
    let load = Load::new(count);
    let faults = load.beside(args.seed, || {
        let (random, told) = (Random::new(args.seed), BTreeMap::new());
        Faults { args, load: &load, random, told, begun: 0 }.run(&mut cluster, &is_stopped)
    });
    load.history.write(&args.work.join("history.jsonl"))?;
    let told = faults?;
    let judged = judgement::of(&load, &mut cluster);
    report(args, &load, &told);
    let mut wrong = load.wrong();
    if load.aged() == 0 {
        wrong.push("no read of a state of some age was answered".to_owned());
    }
    match judged {
        Ok(more) => wrong.extend(more),
        Err(why) => wrong.push(why),
    }
    Ok(wrong)
}

fn make(args: &FaultArgs, handle: &Handle) -> Result<Cluster> {
    let count = usize::from(args.machines);
    let work = command::empty_directory(&args.work)?;
    kit::certificates(&work, (0..count).map(|number| machine::peers(number).ip().to_string()).collect())?;
    let clock = kit::clock(&work)?;
    if clock.is_none() {
        println!("no clock jumps: there is no C compiler");
    }
    let kit = Kit { clock, has_small_disks: args.full_disks, ..Kit::of(&args.duramen, work)? };
    Cluster::new(&Arc::new(kit), count, handle, args.seed)
}

/// What happened, by the kind of faults.
type Told = BTreeMap<&'static str, Kind>;

/// The faults of one kind.
#[derive(Debug, Default)]
struct Kind {
    times: u64,
    /// The longest time without an acknowledged write, of each that met no other one.
    pauses: Vec<Duration>,
}

/// The faults of a run.
struct Faults<'a> {
    args: &'a FaultArgs,
    load: &'a Load,
    random: Random,
    told: Told,
    begun: u64,
}

impl Faults<'_> {
    fn run(mut self, cluster: &mut Cluster, is_stopped: &AtomicBool) -> Result<Told> {
        let start = Instant::now();
        self.load.until_writes(cluster)?;
        while self.begun < self.args.faults && !is_stopped.load(Ordering::Relaxed) {
            let leads = cluster.status_of_leader().map(|(leads, _)| leads);
            let mut faults = vec![self.draw(cluster, leads)];
            // Half of them meet another one.
            let is_alone = faults[0].is_alone() || !self.args.only.is_empty();
            while !is_alone && self.random.chance(1, 2) {
                let more = self.draw(cluster, leads);
                let is_new = faults.iter().all(|fault| fault.kind() != more.kind());
                if is_new && !more.is_alone() {
                    faults.push(more);
                }
            }
            let names: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let names = names.join(", ");
            let at = start.elapsed().as_secs_f64();
            println!("{at:8.3} fault {}: {names}", self.begun + 1);
            self.load.watch_pauses();
            self.one_round(cluster, &faults)
                .map_err(|why| format!("fault {}, {names}: {why}", self.begun))?;
            self.load.until_writes(cluster).map_err(|why| format!("after {names}: {why}"))?;
            if let [fault] = &faults[..] {
                self.told.entry(fault.kind()).or_default().pauses.push(self.load.longest_pause());
            }
        }
        cluster.wait_until_whole()?;
        Ok(self.told)
    }

    fn draw(&mut self, cluster: &Cluster, leads: Option<usize>) -> Fault {
        let (machines, has_clock) = (cluster.machines.len(), cluster.has_clock());
        let has_small_disks = cluster.has_small_disks();
        let (kinds, is_of_leader) = (&self.args.only[..], self.args.of_leader);
        let choice = Choice { machines, leads, has_clock, has_small_disks, kinds, is_of_leader };
        Fault::draw(&mut self.random, &choice)
    }

    /// Lets faults begin, last, and end.
    fn one_round(&mut self, cluster: &mut Cluster, faults: &[Fault]) -> Result<()> {
        let takes_a_machine = faults[0].takes_a_machine();
        if takes_a_machine || matches!(faults, [Fault::Behind(_)]) {
            // The others have everything, and serve.
            cluster.wait_until_whole()?;
        }
        if takes_a_machine {
            self.load.may_find_damage.store(true, Ordering::Relaxed);
        }
        let fills = faults.iter().any(|fault| matches!(fault, Fault::Full(_)));
        self.load.may_be_full.store(fills, Ordering::Relaxed);
        for fault in faults {
            self.begun += 1;
            self.told.entry(fault.kind()).or_default().times += 1;
            let says = fault.begin(cluster, &mut self.random)?;
            if !says.is_empty() {
                println!("         {says}");
            }
        }
        if let [Fault::Full(full)] = faults {
            let (machines, has_room) =
                (cluster.machines.len(), full.len() <= (cluster.machines.len() - 1) / 2);
            // Asked at any machine.
            let asked = self.random.below(machines);
            println!("         {}", ballast::press(asked, has_room, &mut self.random)?);
        }
        let lasts = LASTS_MS_MIN + self.random.below(self.args.lasts.max(1));
        let until = Instant::now() + Duration::from_millis(lasts as u64);
        while Instant::now() < until {
            std::thread::sleep(LOOK);
            if takes_a_machine {
                // A node whose file has changed may refuse to start, or end.
                self.tells_of_end(cluster, faults)?;
            } else {
                cluster.none_has_ended()?;
            }
        }
        for link in cluster.links() {
            link.heal();
            // What a cut held back arrives late, or never.
            if self.random.chance(1, 3) {
                link.break_connections();
            }
        }
        // What was asked to stop may wait for what is paused.
        let (stops, others): (Vec<_>, Vec<_>) = faults.iter().partition(|fault| fault.stops());
        others.into_iter().chain(stops).try_for_each(|fault| fault.end(cluster))?;
        self.load.may_find_damage.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn tells_of_end(&self, cluster: &mut Cluster, faults: &[Fault]) -> Result<()> {
        let [Fault::FileFlipped(machine)] = faults else { return cluster.none_has_ended() };
        if let Some(status) = cluster.machines[*machine].has_ended()? {
            let said = std::fs::read_to_string(cluster.machines[*machine].log()).unwrap_or_default();
            println!(
                "         {status}: {}",
                said.lines().rev().find(|line| line.contains("E0")).unwrap_or("")
            );
        }
        cluster.none_has_ended()
    }
}

fn report(args: &FaultArgs, load: &Load, told: &Told) {
    let times = told.values().map(|kind| kind.times).sum::<u64>();
    println!(
        "{} machines, seed {}: {times} faults; pauses of writes by those that came alone:",
        args.machines, args.seed
    );
    for (name, kind) in told {
        let mut pauses = kind.pauses.clone();
        pauses.sort();
        let of = |percent: usize| {
            let pause = pauses.get((pauses.len() * percent).div_ceil(100).saturating_sub(1));
            pause.map_or(0, |pause| pause.as_millis())
        };
        let (alone, times) = (pauses.len(), kind.times);
        println!(
            "  {times:4} {name:12} {alone:4} alone: half below {:5} ms, 95 % {:5} ms, all {:5} ms",
            of(50),
            of(95),
            of(100)
        );
    }
    let (happened, unknown) = load.history.counts();
    let (writes, reads) = (load.writes(), load.reads());
    println!("  {happened} transactions acknowledged, {unknown} unknown; {writes} writes, {reads} reads");
    println!("  {} reads of states of some age", load.aged());
    let errors = load.errors();
    println!("  errors of calls: {}", if errors.is_empty() { "none".to_owned() } else { errors.join(", ") });
}
