//! A run: clients, faults one after the other, and the judgement.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use duramen_disk::memory::Random;
use tokio::runtime::{Handle, Runtime};

use crate::clients::{Client, Load};
use crate::cluster::{Cluster, LOOK};
use crate::failure::{Result, failed};
use crate::faults::{Choice, Fault};
use crate::machine::{self, Kit};
use crate::{ballast, content, kit, room};

/// Writers; there is a reader for each machine besides.
const WRITERS: u64 = 4;
/// A fault lasts at least so long, in milliseconds.
const LASTS_MS_MIN: usize = 100;
/// Once nothing is wrong any more, a write is acknowledged within this time.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);

/// Runs a cluster of real processes under faults, and checks every answer of its clients. Exit codes: 3
/// something was wrong; 2 it cannot run here.
#[derive(Debug, Parser)]
struct Args {
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

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    // Before any other thread: clients, and the links' ends near them, are in a namespace of their own.
    if let Err(why) = room::enter().and_then(|()| room::enter_mounts()) {
        eprintln!("nemesis: {why}");
        return ExitCode::from(2);
    }
    let (runtime, cluster) = match prepare(&args) {
        Ok(prepared) => prepared,
        Err(why) => {
            eprintln!("nemesis: {why}");
            return ExitCode::from(2);
        }
    };
    let done = run(&args, cluster);
    drop(runtime);
    match done {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for what in wrong.iter().take(20) {
                println!("WRONG: {what}");
            }
            println!("{} wrong; see {}", wrong.len(), args.work.display());
            ExitCode::from(3)
        }
        Err(why) => {
            println!("WRONG: {why}; see {}", args.work.display());
            ExitCode::from(3)
        }
    }
}

/// Makes machines and links. The links end with the runtime.
fn prepare(args: &Args) -> Result<(Runtime, Cluster)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| failed("start", &"a runtime", &error))?;
    let cluster = make(args, runtime.handle())?;
    Ok((runtime, cluster))
}

/// Returns what was wrong.
fn run(args: &Args, mut cluster: Cluster) -> Result<Vec<String>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))
            .map_err(|error| failed("wait for", &"signals", &error))?;
    }
    let count = cluster.machines.len();
    cluster.begin()?;
    let load = Load::new(count);
    let clients = WRITERS + count as u64;
    let faults = std::thread::scope(|scope| {
        for number in 0..clients {
            let client = Client::new(&load, number, args.seed);
            scope.spawn(move || if number < WRITERS { client.write() } else { client.read() });
        }
        let faults =
            Faults { args, load: &load, random: Random::new(args.seed), told: BTreeMap::new(), begun: 0 };
        let done = faults.run(&mut cluster, &is_stopped);
        load.is_over.store(true, Ordering::Relaxed);
        done
    });
    load.history.write(&args.work.join("history.jsonl"))?;
    let told = faults?;
    let judged = judge(&load, &mut cluster, clients);
    report(args, &load, &told);
    let mut wrong = load.wrong();
    match judged {
        Ok(more) => wrong.extend(more),
        Err(why) => wrong.push(why),
    }
    Ok(wrong)
}

fn make(args: &Args, handle: &Handle) -> Result<Cluster> {
    let count = usize::from(args.machines);
    std::fs::create_dir_all(&args.work).map_err(|error| failed("make", &args.work.display(), &error))?;
    let work = args.work.canonicalize().map_err(|error| failed("find", &args.work.display(), &error))?;
    let is_empty = std::fs::read_dir(&work).is_ok_and(|mut entries| entries.next().is_none());
    if !is_empty {
        return Err(format!("{} is not empty", work.display()));
    }
    kit::certificates(&work, (0..count).map(|number| machine::peers(number).ip().to_string()).collect())?;
    let duramen = args.duramen.canonicalize();
    let duramen = duramen.map_err(|error| failed("find", &args.duramen.display(), &error))?;
    let clock = kit::clock(&work)?;
    if clock.is_none() {
        println!("no clock jumps: there is no C compiler");
    }
    Cluster::new(
        &Arc::new(Kit { duramen, work, clock, has_small_disks: args.full_disks }),
        count,
        handle,
        args.seed,
    )
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
    args: &'a Args,
    load: &'a Load,
    random: Random,
    told: Told,
    begun: u64,
}

impl Faults<'_> {
    fn run(mut self, cluster: &mut Cluster, is_stopped: &AtomicBool) -> Result<Told> {
        let start = Instant::now();
        self.until_writes(cluster, "no fault")?;
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
            self.until_writes(cluster, &names)?;
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

    /// Waits until a write is acknowledged that was begun after the faults.
    fn until_writes(&self, cluster: &mut Cluster, after: &str) -> Result<()> {
        let wanted = self.load.writes() + WRITERS + 1;
        let until = Instant::now() + GOES_ON_WITHIN;
        while self.load.writes() < wanted {
            cluster.none_has_ended().map_err(|why| format!("after {after}: {why}"))?;
            if Instant::now() > until {
                let status = cluster.status_of_leader().map(|(_, status)| status.to_string());
                return Err(format!("after {after} nothing is written for {GOES_ON_WITHIN:?}: {status:?}"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Compares all machines with each other and with what clients were told.
fn judge(load: &Load, cluster: &mut Cluster, clients: u64) -> Result<Vec<String>> {
    let read = |machine: usize| {
        content::read(machine, clients).map_err(|error| format!("machine {}: {error:?}", machine + 1))
    };
    let first = read(0)?;
    let mut wrong = Vec::new();
    for machine in 1..cluster.machines.len() {
        if read(machine)? != first {
            wrong.push(format!("machine {} has something else than machine 1", machine + 1));
        }
    }
    let documents = first.entries.iter().map(|(id, _)| *id).collect();
    wrong.extend(load.lost_counts(&first));
    load.history.ends_with(&first.lists);
    wrong.extend(load.history.judge(&first.lists, &documents));
    cluster.stop_and_check()?;
    Ok(wrong)
}

fn report(args: &Args, load: &Load, told: &Told) {
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
    let errors = load.errors();
    println!("  errors of calls: {}", if errors.is_empty() { "none".to_owned() } else { errors.join(", ") });
}
