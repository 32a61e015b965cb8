//! A served database whose server or power ends at any moment, under clients that retry with request ids.
//!
//! Owns what is checked of a server: every acknowledged request id has had its effect once, every retry got
//! the first answer, and what `Outcome` said is true. `kill` kills the server again and again; `load` is a
//! `CMD` for `powercut run`, and `check` its `--check`. `hostile` attacks a server beside good clients, and
//! `history` checks the order of their transactions. `blobs` and `kill-consumer` do what their names say.

#![allow(
    clippy::disallowed_methods,
    reason = "a program that is no part of the library: it has files, threads and processes of its own"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to powercut and to a person")]

mod acks;
mod blobs;
mod client;
mod consumer;
mod history;
mod hostile;
mod kill_clients;
mod killed;
mod restart;

use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};
use duramen::prelude::*;
use duramen_client::Address;

use acks::Acks;
use client::{Clients, Until};
use hostile::wire::Certificate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Between two looks at whether the server is to stop.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a database until it is killed, or stopped by SIGTERM
    Serve(Serve),
    /// Serves a database, with clients in the same process, until the power goes; prints what was
    /// acknowledged
    Load(Load),
    /// Kills a server again and again under clients, and checks what they were told
    Kill(Kill),
    /// Kills clients again and again, and the server if asked, and checks what the clients were told
    KillClients(kill_clients::KillClients),
    /// One of these clients: runs closures until it is killed
    Client(kill_clients::OneClient),
    /// Stops a server and starts it again under clients, none of whose calls may fail
    Restart(restart::Restart),
    /// Attacks a server with hostile connections beside good clients, and watches its memory
    Hostile(Hostile),
    /// These connections: attacks until the input ends
    Attack(hostile::attack::Attack),
    /// Runs transactions of several messages by many clients, and checks that they could have run one after
    /// the other
    History(history::History),
    /// Sends a large blob through a server and back, and kills clients in the middle of their uploads
    Blobs(blobs::Blobs),
    /// One of these clients: uploads until it is killed
    Upload(blobs::Upload),
    /// Kills a consumer of changes again and again, and checks that each change was handled once
    KillConsumer(consumer::KillConsumer),
    /// This consumer: handles changes until it is killed
    Consumer(consumer::OneConsumer),
    /// Checks that what was acknowledged is there, once. Exit codes: 3 it is not; 4 the database cannot be
    /// opened or read
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Of {
    /// The database
    #[arg(long)]
    db: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Serve {
    #[command(flatten)]
    of: Of,
    /// Also by TCP, with the certificate in this directory
    #[arg(long)]
    tls: Option<PathBuf>,
    /// Also by a listener of TCP that the parent has open: it is in the place of the standard input
    #[arg(long)]
    listener_in_stdin: bool,
}

#[derive(Debug, clap::Args)]
struct Load {
    #[command(flatten)]
    of: Of,
    #[arg(long, default_value_t = 16)]
    clients: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Kill {
    #[command(flatten)]
    of: Of,
    #[arg(long, default_value_t = 50)]
    kills: u64,
    #[arg(long, default_value_t = 16)]
    clients: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Hostile {
    #[command(flatten)]
    of: Of,
    /// Hostile connections at once
    #[arg(long, default_value_t = 500)]
    connections: u64,
    /// New ones a second at most, of all
    #[arg(long, default_value_t = 200)]
    new_a_second: u64,
    /// Good clients: half of them by the socket, half by TLS
    #[arg(long, default_value_t = 16)]
    clients: u64,
    /// How long good clients run alone, half of it before and half after
    #[arg(long, default_value_t = 30)]
    alone_seconds: u64,
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Fail if the 99th percentile of good clients is more than three times that of them alone
    #[arg(long)]
    check_p99: bool,
    /// All of them behave like this; without it each like another
    #[arg(long)]
    manner: Option<hostile::Manner>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct Check {
    #[command(flatten)]
    of: Of,
    /// What was acknowledged: the output of `load`
    #[arg(long)]
    ack: PathBuf,
}

/// What did not hold, and the exit code for it.
pub(crate) struct Wrong(pub(crate) u8, pub(crate) String);

/// Something is not as it was told.
pub(crate) fn wrong(what: impl Into<String>) -> Wrong {
    Wrong(3, what.into())
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong(4, format!("{error:?}"))
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve(&args),
        Command::Load(args) => load(&args),
        Command::Kill(args) => killed::run(&args),
        Command::KillClients(args) => kill_clients::run(&args),
        Command::Client(args) => kill_clients::run_one(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Hostile(args) => hostile::run(&args),
        Command::Attack(args) => hostile::attack::run(&args),
        Command::History(args) => history::run(&args),
        Command::Blobs(args) => blobs::run(&args),
        Command::Upload(args) => blobs::upload(&args),
        Command::KillConsumer(args) => consumer::run(&args),
        Command::Consumer(args) => consumer::run_one(&args),
        Command::Check(args) => check(&args.of.db, &args.ack),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Wrong(exit, what)) => {
            eprintln!("{what}");
            ExitCode::from(exit)
        }
    }
}

/// A database with the collection of the clients.
fn open(path: &Path) -> Result<Db> {
    let db = Db::open(path)?;
    db.ensure(&Schema::new(client::COLLECTION).key(["client", "number"]))?;
    Ok(db)
}

fn serve(args: &Serve) -> Result<(), Wrong> {
    let db = open(&args.of.db)?;
    let mut server = duramen_server::Server::builder(db.clone());
    if let Some(directory) = &args.tls {
        let files = Certificate::in_directory(directory);
        let any_port = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        server = server.listen(any_port).tls(files.certificate, files.key);
    }
    if args.listener_in_stdin {
        let listener = std::io::stdin().as_fd().try_clone_to_owned();
        server = server.listener(TcpListener::from(listener.map_err(|error| wrong(error.to_string()))?));
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&is_stopped))
        .map_err(|error| wrong(error.to_string()))?;
    let server = server.start()?;
    while !is_stopped.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    server.stop();
    Ok(db.close()?)
}

fn load(args: &Load) -> Result<(), Wrong> {
    let path = &args.of.db;
    let db = open(path)?;
    let _server = duramen_server::local(&db)?;
    let addresses = vec![Address::Directory(path.clone())];
    let clients = Clients { addresses, count: args.clients, seed: args.seed, is_strict: false };
    // A line for each acknowledgement, whole.
    clients.run(&Until::Forever, &|ack, _| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{ack}").and_then(|()| out.flush()).map_err(|error| wrong(error.to_string()))
    })
}

fn check(path: &Path, ack: &Path) -> Result<(), Wrong> {
    let text =
        std::fs::read_to_string(ack).map_err(|error| Wrong(1, format!("{}: {error}", ack.display())))?;
    let acks = Acks::parse(&text)?;
    // A cut may come before there is a database.
    if acks.count() == 0 && Db::options().create(false).open(path).is_err() {
        println!("0 acknowledged, and no database");
        return Ok(());
    }
    let db = open(path)?;
    let present = acks.check(&db)?;
    if let Some(problem) = db.check_documents()?.problems.first() {
        return Err(wrong(problem.to_string()));
    }
    println!("{} acknowledged, {present} present", acks.count());
    Ok(())
}
