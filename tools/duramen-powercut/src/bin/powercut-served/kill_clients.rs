//! `kill -9` of clients, again and again, while each runs closures on a served database; and of its server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen::{Reads as _, doc};
use duramen_client::{Address, Client, Remote};
use duramen_disk::memory::Random;

use crate::acks::{Ack, Acks};
use crate::client::{COLLECTION, COUNTERS};
use crate::killed::{end, start};
use crate::{Wrong, wrong};

/// A client lives at most this long, in milliseconds, once something was acknowledged to it.
const LIFE_MS_MAX: usize = 600;

/// What a client that is gone may leave open for so long: a server gives a transaction five seconds without
/// a message.
const LEFT_OPEN: Duration = Duration::from_secs(16);

/// Numbers of such a run.
#[derive(Debug, clap::Args)]
pub(crate) struct KillClients {
    #[command(flatten)]
    of: crate::Of,
    /// Kills of clients
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// Kills of the server meanwhile
    #[arg(long, default_value_t = 0)]
    server_kills: u64,
    /// Clients at once, each a process
    #[arg(long, default_value_t = 16)]
    clients: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One client, a process of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct OneClient {
    #[command(flatten)]
    of: crate::Of,
    #[arg(long)]
    number: u64,
    #[arg(long)]
    seed: u64,
}

/// Runs closures for ever; prints what was committed.
pub(crate) fn run_one(args: &OneClient) -> Result<(), Wrong> {
    let remote = Remote::from(connect(&args.of.db)?);
    let mut random = Random::new(args.seed);
    loop {
        let (id, number) = remote.transact(|tx| {
            // Drawn by each run: what is told is that of the run that was committed.
            let id = format!("{:016x}", random.bits());
            let number = tx.kv(COUNTERS).get::<i64>(args.number)?.unwrap_or(0);
            tx.documents(COLLECTION)
                .insert(&doc! { "client": args.number, "number": number, "id": id.as_str() })?;
            tx.kv(COUNTERS).put(args.number, &(number + 1))?;
            Ok((id, number))
        })?;
        let number = u64::try_from(number).map_err(|_| wrong("a number below zero"))?;
        let mut out = std::io::stdout().lock();
        let told = writeln!(out, "{}", Ack { client: args.number, number, id }).and_then(|()| out.flush());
        told.map_err(|error| wrong(error.to_string()))?;
    }
}

/// Kills clients, and checks what they were told.
pub(crate) fn run(args: &KillClients) -> Result<(), Wrong> {
    drop(crate::open(&args.of.db)?);
    let server = Mutex::new(start(&args.of.db)?);
    let (left, acks) = (AtomicU64::new(args.kills), Mutex::new(Acks::default()));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for number in 0..args.clients {
            let (left, acks, failed) = (&left, &acks, &failed);
            scope.spawn(move || {
                if let Err(error) = kill_again_and_again(args, number, left, acks) {
                    failed.lock().expect("no thread panics").get_or_insert(error);
                    left.store(0, Ordering::Relaxed);
                }
            });
        }
        if let Err(error) = kill_server(args, &server, &left) {
            failed.lock().expect("no thread panics").get_or_insert(error);
            left.store(0, Ordering::Relaxed);
        }
    });
    if let Some(failed) = failed.into_inner().expect("no thread panics") {
        return Err(failed);
    }
    nothing_is_open(&args.of.db)?;
    end(&mut server.into_inner().expect("no thread panics"))?;
    let db = crate::open(&args.of.db)?;
    let acks = acks.into_inner().expect("no thread panics");
    let present = acks.check(&db)?;
    println!(
        "seed {}: {} kills of {} clients, {} of the server: {} acknowledged, {present} present",
        args.seed,
        args.kills,
        args.clients,
        args.server_kills,
        acks.count()
    );
    if acks.count() == 0 { Err(wrong("nothing was acknowledged: nothing was checked")) } else { Ok(()) }
}

/// One client after the other, under the same number.
fn kill_again_and_again(
    args: &KillClients,
    number: u64,
    left: &AtomicU64,
    acks: &Mutex<Acks>,
) -> Result<(), Wrong> {
    let mut random = Random::new(args.seed ^ number << 32);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    while take() {
        let mut client = begin(&args.of.db, number, random.bits())?;
        let out = client.stdout.take().ok_or_else(|| wrong("no output"))?;
        let reading = std::thread::spawn(move || -> String {
            let (mut reader, mut text) = (BufReader::new(out), String::new());
            // The first acknowledgement alone: the caller waits for it.
            drop(reader.read_line(&mut text));
            drop(reader.read_to_string(&mut text));
            text
        });
        std::thread::sleep(Duration::from_millis(5 + random.below(LIFE_MS_MAX) as u64));
        if client.try_wait().map_err(|error| wrong(error.to_string()))?.is_some() {
            return Err(wrong(format!("client {number} ended by itself")));
        }
        end(&mut client)?;
        let text = reading.join().map_err(|_| wrong("a reader panicked"))?;
        let whole = text.rfind('\n').map_or("", |last| &text[..=last]);
        acks.lock().expect("no thread panics").add_all(Acks::parse(whole)?)?;
    }
    Ok(())
}

fn kill_server(args: &KillClients, server: &Mutex<Child>, left: &AtomicU64) -> Result<(), Wrong> {
    let mut random = Random::new(args.seed ^ 0xdead);
    let every = args.kills / (args.server_kills + 1);
    for kill in 1..=args.server_kills {
        while left.load(Ordering::Relaxed) > args.kills - kill * every {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(random.below(20) as u64));
        let mut server = server.lock().expect("no thread panics");
        end(&mut server)?;
        *server = start(&args.of.db)?;
    }
    Ok(())
}

/// A client in a process of its own.
fn begin(db: &Path, number: u64, seed: u64) -> Result<Child, Wrong> {
    let me = std::env::current_exe().map_err(|error| wrong(error.to_string()))?;
    let mut command = Command::new(me);
    command.arg("client").arg("--db").arg(db);
    command.args(["--number", &number.to_string(), "--seed", &seed.to_string()]);
    let started = command.stdout(Stdio::piped()).spawn();
    started.map_err(|error| wrong(format!("the client does not start: {error}")))
}

/// A connection, once the server takes one.
pub(crate) fn connect(db: &Path) -> Result<Client, Wrong> {
    let begun = Instant::now();
    loop {
        match Client::connect(&Address::Directory(db.to_owned())) {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > LEFT_OPEN => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// No transaction of a client that is gone holds a state.
fn nothing_is_open(db: &Path) -> Result<(), Wrong> {
    let (client, begun) = (connect(db)?, Instant::now());
    // A state that is held shows once a newer one is there.
    Remote::from(connect(db)?).transact(|tx| tx.kv("ended").increment("runs", 1))?;
    loop {
        let held = client.stats(LEFT_OPEN)?.held_snapshots.len();
        if held == 0 {
            println!("nothing is held after {} ms", begun.elapsed().as_millis());
            return Ok(());
        }
        if begun.elapsed() > LEFT_OPEN {
            return Err(wrong(format!("{held} states are still held after {LEFT_OPEN:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
