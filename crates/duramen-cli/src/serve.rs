//! `duramen serve`: opens a database and serves it, until a signal comes or the database cannot commit any
//! more.

mod handed_over;
mod node;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use duramen::{Code, Error, Event, doc};
use duramen_proto::discovery::PORT;
use duramen_repl::CopyOf;
use duramen_server::{Builder, Server};

use crate::args::ServeArgs;
use crate::database;
use crate::failure::{Failure, POISONED, Result};
use crate::numbers::{bytes, counted};
use crate::output::{Output, shell_word};
use crate::signals::Signals;
use handed_over::HandedOver;
pub(crate) use node::failure as failure_of_node;
use node::{COPY_PAUSE_MAX, COPY_PAUSE_MIN, Opened, Served};

/// Between two looks at the signals.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &ServeArgs, out: Output) -> Result<()> {
    let signals = Signals::watch()?;
    let is_new = !args.database.db.exists();
    let (poisoned, poison) = channel();
    let handed_over = HandedOver::take()?;
    if args.socket_only && !handed_over.tcp.is_empty() {
        let what = "--socket-only, and a listener of TCP was handed over (LISTEN_FDS)";
        return Err(Failure::usage(what, "leave out --socket-only, or hand over none of TCP"));
    }
    // A node that joins copies the users, too.
    if is_new && args.node.join.is_empty() {
        check_new(args)?;
    }
    let (mut copy, mut is_new, mut pause) = (None, is_new, COPY_PAUSE_MIN);
    loop {
        let again = handed_over.again().map_err(|error| no_listeners(&error))?;
        let copies = copy.is_some();
        let opened = match open(args, copy.take(), poisoned.clone(), &signals, out) {
            Err(_) if copies && signals.received().is_some() => {
                out.note("stopped");
                return Ok(());
            }
            opened => opened?,
        };
        let copies_from = Instant::now() + if copies { pause } else { Duration::ZERO };
        // A log that lies elsewhere is not replaced.
        let copies_from = args.database.wal.is_none().then_some(copies_from);
        let server = start(&opened, args, again)?;
        told(&opened, &server, args, is_new, out)?;
        handed_over::is_ready();
        let ended = wait(&signals, &poison, &opened, copies_from, out);
        if !matches!(ended, Ended::Copies(_)) {
            handed_over::is_stopping();
        }
        // No new calls; those under way end. Then the database is closed.
        server.stop();
        match ended {
            Ended::Failed(failure) => return Err(failure),
            Ended::Stopped => {
                let closed = opened.close();
                out.note("stopped");
                return Ok(closed?);
            }
            Ended::Copies(of) => {
                if let Err(error) = opened.close() {
                    // On a full disk, for example. What is acknowledged is in Raft's log.
                    out.warning(&error.to_string(), "the node goes on: it is opened as after a crash");
                }
                let what = "this node lacks entries that the others have let go of: it stops serving, and copies the state";
                out.warning(
                    &format!("{what} of {}", of.from),
                    "this takes about as long as a join; it goes on by itself",
                );
                pause = if copies { (2 * pause).min(COPY_PAUSE_MAX) } else { COPY_PAUSE_MIN };
                (copy, is_new) = (Some(of), false);
            }
        }
    }
}

/// Why a database is not served any more, for now or for good.
enum Ended {
    /// A signal came.
    Stopped,
    /// It cannot commit any more.
    Failed(Failure),
    /// It is a node that needs a copy of another one's state.
    Copies(CopyOf),
}

fn no_listeners(error: &std::io::Error) -> Failure {
    Error::new(Code::System, format!("the listeners of LISTEN_FDS cannot be used: {error}")).into()
}

/// Refuses to make a database that could not be served: a new one has no user.
fn check_new(args: &ServeArgs) -> Result<()> {
    match args.listen.iter().find(|address| is_wide(address)) {
        Some(wide) if !args.no_auth => {
            let path = args.database.db.display();
            let what = format!(
                "other machines can reach {wide}, and {path} does not exist: it has no user that could call"
            );
            let hint =
                "make the database first (`duramen import` does), and add a user with `duramen user add`";
            Err(Error::new(Code::Forbidden, what).with_hint(hint).into())
        }
        _ => Ok(()),
    }
}

/// Whether other machines can reach an address.
fn is_wide(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

fn open(
    args: &ServeArgs,
    copy: Option<CopyOf>,
    poisoned: Sender<String>,
    signals: &Signals,
    out: Output,
) -> Result<Opened> {
    let path = &args.database.db;
    if path.exists() && !args.node.is_node() {
        database::check_path(path)?;
    }
    if !args.allow_tmpfs {
        let hint = "name a directory on a disk, or use --allow-tmpfs for data that may be lost";
        database::check_file_systems(&args.database, hint)?;
    }
    let options = database::options(&args.database).on_event(move |event: &Event| {
        if let Event::Poisoned(cause) = event {
            // Without a receiver the command is ending anyway.
            let _ = poisoned.send(cause.to_string());
        }
    });
    if args.node.is_node() {
        return node::start(args, options, copy, signals, out).map(Opened::Node);
    }
    Ok(Opened::Alone(options.open(path)?))
}

fn start(opened: &Opened, args: &ServeArgs, handed_over: HandedOver) -> Result<Server> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let builder = |addresses: &[SocketAddr]| {
        let builder = Server::builder(opened.db().clone());
        let mut server = addresses.iter().fold(builder, |server, at| server.listen(*at));
        if let Opened::Node(running) = opened {
            server = server.cluster(Arc::new(Served::new(running)));
        }
        if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
            server = server.tls(certificate, key);
        }
        if let Some(authorities) = &args.tls_client_ca {
            server = server.tls_client_ca(authorities);
        }
        if args.no_tls {
            server = server.without_tls();
        }
        if args.no_auth {
            server = server.without_auth();
        }
        server
    };
    if args.socket_only || !args.listen.is_empty() || !handed_over.is_empty() {
        let server = handed_over.tcp.into_iter().fold(builder(&args.listen), Builder::listener);
        let server = handed_over.sockets.into_iter().fold(server, Builder::socket_listener);
        return Ok(server.start()?);
    }
    match builder(&[loopback(PORT)]).start() {
        // The usual port may be another server's.
        Err(error) if error.code() == Code::System => Ok(builder(&[loopback(0)]).start()?),
        started => Ok(started?),
    }
}

/// Waits until the database is not served any more. A copy is made from this time on, or never; and not
/// before there is room for it, so that the node serves until then.
fn wait(
    signals: &Signals,
    poison: &Receiver<String>,
    opened: &Opened,
    mut copies_from: Option<Instant>,
    out: Output,
) -> Ended {
    let mut is_told = false;
    let poisoned = |cause: &str| {
        Failure::said(
            POISONED,
            Code::EnginePoisoned,
            format!("nothing is acknowledged any more since {cause}"),
            "look at the disk (dmesg), and start the server again: opening finds what is durable",
        )
    };
    loop {
        match opened.failure() {
            Some(removed) if removed.code() == Code::IdentityRetired => return Ended::Failed(removed.into()),
            Some(failure) => return Ended::Failed(poisoned(failure.message())),
            None => {}
        }
        match copies_from {
            Some(from) if from <= Instant::now() => match opened.needs_copy() {
                Ok(None) => is_told = false,
                Ok(Some(copy)) => return Ended::Copies(copy),
                Err(why) => {
                    copies_from = Some(Instant::now() + COPY_PAUSE_MIN);
                    if !std::mem::replace(&mut is_told, true) {
                        node::has_no_copy(why.message(), out);
                    }
                }
            },
            None if opened.lacks_entries() && !std::mem::replace(&mut is_told, true) => {
                let what = "this node lacks entries that the others have let go of, and takes no copy, since its log lies elsewhere (--wal)";
                out.warning(what, "`duramen cluster remove` it, and join with an empty directory");
            }
            _ => {}
        }
        match poison.recv_timeout(LOOK) {
            Ok(cause) => return Ended::Failed(poisoned(&cause)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                if signals.received().is_some() {
                    return Ended::Stopped;
                }
            }
        }
    }
}

/// Prints how the database is reached.
fn told(opened: &Opened, server: &Server, args: &ServeArgs, is_new: bool, out: Output) -> Result<()> {
    let (db, node) = (opened.db(), opened.node());
    let path = &args.database.db;
    let socket = server.socket().map(|socket| socket.display().to_string());
    let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
    if let Some(error) = server.without_socket() {
        out.warning(&format!("there is no socket: {}", error.message()), "clients use the address");
    }
    if let Some(error) = server.without_notice() {
        let what = format!("commands do not find the server by the directory: {}", error.message());
        out.warning(&what, "name its address, `--at HOST:PORT`; make room, and start it again");
    }
    warn(server, args, out);
    if out.is_json() {
        let addresses = addresses.iter().map(|address| duramen::Value::from(address.as_str()));
        let fields = doc! {
            "path": path.display().to_string(), "database": db.durability_status().database.to_string(),
            "created": is_new, "socket": socket.as_deref(), "addresses": addresses.collect::<Vec<_>>(),
            "tls": args.tls_cert.is_some(), "auth": !args.no_auth,
            "node": node.map(|(node, _)| node), "peers": node.map(|(_, peers)| peers.to_string()),
        };
        return out.object("serve", fields);
    }
    let stats = db.stats();
    let collections = counted(db.collections()?.len() as u64, "collection");
    let size = bytes(stats.space.used_blocks * stats.block_bytes);
    let verb = if is_new { "created and serving" } else { "serving" };
    let word = shell_word(&path.display().to_string());
    out.line(&format!("{verb} {} ({collections}, {size}); ^C stops it", path.display()))?;
    out.line(&format!("command line  duramen collections {word}"))?;
    match socket {
        Some(socket) => out.line(&format!("socket        unix:{socket}"))?,
        None => out.line("socket        none")?,
    }
    if let Some((node, peers)) = node {
        let tls = if args.node.peer_cert.is_some() { " with TLS" } else { "" };
        out.line(&format!("node          {node}, for other nodes at {peers}{tls}"))?;
    }
    if addresses.is_empty() {
        return out.line("gRPC          off; --listen 127.0.0.1:7420 turns it on");
    }
    let tls = if args.tls_cert.is_some() { " with TLS" } else { "" };
    for address in server.addresses() {
        let who = match is_wide(address) {
            _ if args.no_auth => "everybody may do everything".to_owned(),
            false => format!("token in {word}/serve.token"),
            true => "tokens of users: `duramen token add`".to_owned(),
        };
        out.line(&format!("gRPC          {address}{tls}, {who}"))?;
    }
    Ok(())
}

/// Warns of what the options leave open.
fn warn(server: &Server, args: &ServeArgs, out: Output) {
    if args.no_auth {
        let what = "every client that reaches an address of the server may read and change everything";
        out.warning(what, "stop it, and start it without --no-auth");
    }
    if server.addresses().iter().any(is_wide) && args.tls_cert.is_none() {
        let what = "tokens and data are sent without TLS: anyone on the network between can read them";
        out.warning(what, "stop it, and start it with --tls-cert and --tls-key");
    }
}
