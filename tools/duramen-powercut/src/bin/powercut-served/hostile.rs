//! Hostile connections beside good clients: the good ones must get every answer, about as soon as without the
//! others, and the server must not grow.

pub(crate) mod attack;
mod frames;
mod manner;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen_client::{Address, Client};
use duramen_proto::discovery::{self, Serving};
use duramen_proto::v1;

pub(crate) use manner::Manner;
use wire::Certificate;

use crate::client::{Clients, Until};
use crate::{Hostile, Wrong, killed, wrong};

/// What the server may hold for its clients, beside the engine's memory.
const SERVER_BYTES: u64 = 128 << 20;

/// Documents that scans send to clients which take nothing.
const BIG_DOCUMENTS: u64 = 2_000;
const BIG_DOCUMENT_BYTES: usize = 32 << 10;
const BIG: &str = "big";

/// A blob for clients which take nothing.
const FILES: &str = "files";
const BLOB_BYTES: usize = 64 << 20;

/// How often the 99th percentile may be that of good clients alone.
const SLOWER_MAX: u32 = 3;

/// Runs good clients alone, beside hostile connections, and alone again.
pub(crate) fn run(args: &Hostile) -> Result<(), Wrong> {
    let path = &args.of.db;
    let engine_bytes = fill(path)?;
    let certificate = Certificate::in_directory(path);
    certificate.make()?;
    let mut server = killed::start_with(path, &["--tls".as_ref(), path.as_os_str()])?;
    let done = beside(args, &certificate, &mut server, engine_bytes);
    killed::end(&mut server)?;
    done
}

/// Documents for the scans; returns the engine's memory.
fn fill(path: &Path) -> Result<u64, Wrong> {
    let db = crate::open(path)?;
    let big = db.ensure(&Schema::new(BIG).key(["id"]))?;
    let text = "x".repeat(BIG_DOCUMENT_BYTES);
    for first in (0..BIG_DOCUMENTS).step_by(100) {
        db.write(|tx| {
            let documents = tx.documents(big.name());
            (first..first + 100).try_for_each(|id| documents.put(doc! { "id": id, "text": text.as_str() }))
        })?;
    }
    db.blobs(FILES).put("big", &vec![7; BLOB_BYTES][..])?;
    let bytes = db.durability_status().memory_bytes;
    db.close()?;
    Ok(bytes)
}

/// Where good clients find the server, and the token of the hostile ones.
fn find(path: &Path, certificate: &Certificate) -> Result<(Vec<Address>, String), Wrong> {
    let start = Instant::now();
    let directory = Address::Directory(path.to_owned());
    let owner = loop {
        match Client::connect(&directory) {
            Ok(client) => break client,
            Err(error) if start.elapsed() > Duration::from_secs(60) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let token = |name: &str, rights: &[&str]| {
        let rights = rights.iter().map(|right| (*right).to_owned()).collect();
        owner.put_user(v1::User { name: name.to_owned(), rights, certificates: Vec::new() }, true)?;
        owner.add_token(name, 0).map(|made| made.text)
    };
    let good = token("good", &["writer=collection:*", "writer=kv:*", "schema"])?;
    let hostile = token("hostile", &["reader", "writer=blob:*"])?;
    Ok((vec![directory, certificate.address(address(path)?, &good)], hostile))
}

/// The address of TCP.
fn address(path: &Path) -> Result<SocketAddr, Wrong> {
    let text =
        std::fs::read_to_string(path.join(discovery::FILE)).map_err(|error| wrong(error.to_string()))?;
    let serving = Serving::parse(&text).ok_or_else(|| wrong("it is not known how the database is served"))?;
    let address = serving.addresses.first().and_then(|address| address.parse().ok());
    address.ok_or_else(|| wrong("the server has no address"))
}

fn beside(
    args: &Hostile,
    certificate: &Certificate,
    server: &mut Child,
    engine_bytes: u64,
) -> Result<(), Wrong> {
    let (addresses, token) = find(&args.of.db, certificate)?;
    let good = Good {
        clients: Clients { addresses, count: args.clients, seed: args.seed, is_strict: true },
        took: [Mutex::default(), Mutex::default()],
        is_beside: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let (made, peak) = std::thread::scope(|scope| {
        let served = scope.spawn(|| good.run());
        let ran = phases(args, &token, server, &good);
        good.is_over.store(true, Ordering::Relaxed);
        served.join().expect("it does not panic").and(ran)
    })?;
    report(args, &good, made, (peak, (engine_bytes + SERVER_BYTES) / 10 * 11))
}

/// How many connections attackers have made, and how many there were at once.
type Counts = (u64, u64);

/// Good clients alone, beside attackers in a process of their own, and alone again. Returns what connections
/// these have made, and the most memory of the server.
fn phases(args: &Hostile, token: &str, server: &mut Child, good: &Good) -> Result<(Counts, u64), Wrong> {
    let failed = |error: std::io::Error| wrong(format!("the attackers: {error}"));
    // Half before and half after: the database grows meanwhile.
    let half = Duration::from_secs(args.alone_seconds) / 2;
    watch(server, half, good)?;
    good.is_beside.store(true, Ordering::Relaxed);
    let me = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(&me);
    command.arg("attack").arg("--db").arg(&args.of.db).args(["--token", token]);
    for (flag, value) in
        [("--connections", args.connections), ("--new-a-second", args.new_a_second), ("--seed", args.seed)]
    {
        command.arg(flag).arg(value.to_string());
    }
    if let Some(manner) = args.manner.as_ref().and_then(clap::ValueEnum::to_possible_value) {
        command.arg("--manner").arg(manner.get_name());
    }
    let mut attackers = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let peak = watch(server, Duration::from_secs(args.seconds), good);
    // It ends with its input.
    drop(attackers.stdin.take());
    let out = attackers.wait_with_output().map_err(failed)?;
    good.is_beside.store(false, Ordering::Relaxed);
    let peak = peak?.max(watch(server, half, good)?);
    let made = String::from_utf8_lossy(&out.stdout);
    let made =
        made.trim().split_once(' ').and_then(|(all, open)| Some((all.parse().ok()?, open.parse().ok()?)));
    match made {
        Some(made) if out.status.success() => Ok((made, peak)),
        _ => Err(wrong("the attack was not made as it should")),
    }
}

fn report(args: &Hostile, good: &Good, (made, open): Counts, (peak, bound): (u64, u64)) -> Result<(), Wrong> {
    let [alone, beside] = good.took.each_ref().map(Quantiles::of);
    println!(
        "seed {}: {} good clients, {} s alone: {alone}; {} s beside {} attackers, {made} connections made, {open} at once: {beside}; no error; {} MiB of memory at most, {} allowed",
        args.seed,
        args.clients,
        args.alone_seconds,
        args.seconds,
        args.connections,
        peak >> 20,
        bound >> 20,
    );
    if peak > bound {
        return Err(wrong("the server grew beyond its memory"));
    }
    if alone.count == 0 || beside.count == 0 {
        return Err(wrong("nothing was acknowledged"));
    }
    if args.check_p99 && beside.p99 > alone.p99 * SLOWER_MAX {
        return Err(wrong("good clients waited too long"));
    }
    Ok(())
}

/// The good clients, and how long each of their batches and closures took: alone, and beside hostile ones.
struct Good {
    clients: Clients,
    took: [Mutex<Vec<Duration>>; 2],
    is_beside: AtomicBool,
    is_over: AtomicBool,
}

impl Good {
    fn run(&self) -> Result<(), Wrong> {
        let ran = self.clients.run(&Until::Told(&self.is_over), &|_, time| {
            let took = &self.took[usize::from(self.is_beside.load(Ordering::Relaxed))];
            took.lock().unwrap_or_else(PoisonError::into_inner).push(time);
            Ok(())
        });
        // Nothing is to be seen without them.
        self.is_over.store(true, Ordering::Relaxed);
        ran
    }
}

struct Quantiles {
    count: usize,
    p50: Duration,
    p99: Duration,
    max: Duration,
}

impl Quantiles {
    fn of(took: &Mutex<Vec<Duration>>) -> Quantiles {
        let mut took = took.lock().unwrap_or_else(PoisonError::into_inner);
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
        Quantiles {
            count: took.len(),
            p50: at(50),
            p99: at(99),
            max: took.last().copied().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Quantiles { count, p50, p99, max } = self;
        write!(f, "{count} acknowledged, half within {p50:.1?}, 99 % within {p99:.1?}, all within {max:.1?}")
    }
}

/// The largest anonymous memory of the server, over some time.
fn watch(server: &mut Child, time: Duration, good: &Good) -> Result<u64, Wrong> {
    let start = Instant::now();
    let mut peak = 0;
    while start.elapsed() < time && !good.is_over.load(Ordering::Relaxed) {
        peak = peak.max(anonymous(server.id())?);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(peak)
}

/// The anonymous memory of a process.
pub(crate) fn anonymous(process: u32) -> Result<u64, Wrong> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|error| wrong(format!("process {process} is gone: {error}")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.ok_or_else(|| wrong(format!("process {process} has ended")))? << 10)
}
