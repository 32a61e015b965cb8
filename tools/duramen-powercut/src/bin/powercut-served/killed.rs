//! `kill -9` of a server, again and again, while clients send batches.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duramen_client::{Address, Client};
use duramen_disk::memory::Random;

use crate::acks::Acks;
use crate::client::{Clients, Until};
use crate::{Kill, Wrong, wrong};

/// A server lives at most this long, in milliseconds, once something was acknowledged.
const LIFE_MS_MAX: usize = 400;

/// Kills the server `kills` times, and checks what is left.
pub(crate) fn run(args: &Kill) -> Result<(), Wrong> {
    let acks = Mutex::new(Acks::default());
    let is_over = AtomicBool::new(false);
    let addresses = vec![Address::Directory(args.of.db.clone())];
    let clients = Clients { addresses, count: args.clients, seed: args.seed, is_strict: false };
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            clients.run(&Until::Told(&is_over), &|ack, _| {
                acks.lock().expect("no thread panics").add(ack.clone())
            })
        });
        let killed = kill(args, &is_over, &|| acks.lock().expect("no thread panics").count());
        is_over.store(true, Ordering::Relaxed);
        let told = told.join().expect("it does not panic");
        // The last server stays until the clients have ended.
        killed.and_then(|mut last| told.and_then(|()| end(&mut last)))
    });
    told?;
    let acks = acks.into_inner().expect("no thread panics");
    let db = crate::open(&args.of.db)?;
    let present = acks.check(&db)?;
    println!(
        "seed {}: {} kills, {} clients: {} acknowledged, {present} present",
        args.seed,
        args.kills,
        args.clients,
        acks.count()
    );
    if acks.count() == 0 { Err(wrong("nothing was acknowledged: nothing was checked")) } else { Ok(()) }
}

/// Starts and kills servers; returns a last one that lives.
fn kill(args: &Kill, is_over: &AtomicBool, count: &dyn Fn() -> usize) -> Result<Child, Wrong> {
    let mut random = Random::new(args.seed);
    for _ in 0..args.kills {
        let mut server = start(&args.of.db)?;
        let before = count();
        std::thread::sleep(Duration::from_millis(random.below(LIFE_MS_MAX) as u64));
        // Now and then it dies before anything was acknowledged; mostly not.
        if random.below(4) > 0 {
            while count() == before && !is_over.load(Ordering::Relaxed) && is_alive(&mut server)? {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if !is_alive(&mut server)? {
            return Err(wrong("the server ended by itself"));
        }
        end(&mut server)?;
    }
    let last = start(&args.of.db)?;
    // Until a client can be answered: what was in doubt is asked for then.
    while Client::connect(&Address::Directory(args.of.db.clone())).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(last)
}

/// A server in a process of its own.
pub(crate) fn start(db: &Path) -> Result<Child, Wrong> {
    start_with(db, &[])
}

/// With arguments of `serve`.
pub(crate) fn start_with(db: &Path, arguments: &[&std::ffi::OsStr]) -> Result<Child, Wrong> {
    let me = std::env::current_exe().map_err(|error| wrong(error.to_string()))?;
    let started = Command::new(me).arg("serve").arg("--db").arg(db).args(arguments).spawn();
    started.map_err(|error| wrong(format!("the server does not start: {error}")))
}

fn is_alive(server: &mut Child) -> Result<bool, Wrong> {
    server.try_wait().map(|status| status.is_none()).map_err(|error| wrong(error.to_string()))
}

/// By SIGKILL.
pub(crate) fn end(server: &mut Child) -> Result<(), Wrong> {
    server.kill().and_then(|()| server.wait()).map(drop).map_err(|error| wrong(error.to_string()))
}
