//! A network namespace with a thread in it: what the thread starts or opens belongs to it.
//!
//! Each node has one, so every node can listen on the same addresses of its own loopback device, and reaches
//! others only through the links that [`crate::link`] makes. Namespaces have no names: they end with their
//! last process.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use crate::failure::{Result, failed};

/// A connection over the loopback device is made at once, or never.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Room {
    jobs: Sender<Job>,
}

impl Room {
    /// A new one, with its loopback device up.
    pub(crate) fn new() -> Result<Room> {
        let room = Room::here();
        room.inside(enter)?;
        Ok(room)
    }

    /// The namespace of the calling thread.
    pub(crate) fn here() -> Room {
        let (jobs, work) = mpsc::channel::<Job>();
        std::thread::spawn(move || work.iter().for_each(|job| job()));
        Room { jobs }
    }

    /// Runs something inside, and returns what it returned.
    pub(crate) fn inside<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (told, answer) = mpsc::channel();
        let job = Box::new(move || drop(told.send(job())));
        self.jobs.send(job).expect("the thread lives as long as this");
        answer.recv().expect("a job returns")
    }

    /// A listener inside.
    pub(crate) fn listen(&self, at: SocketAddr) -> Result<TcpListener> {
        self.inside(move || TcpListener::bind(at)).map_err(|error| failed("listen on", &at, &error))
    }

    /// A connection to an address inside.
    pub(crate) fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        self.inside(move || TcpStream::connect_timeout(&to, CONNECT_WITHIN))
    }
}

/// Lets the calling thread, and what it starts from now on, be in a new namespace.
pub(crate) fn enter() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|error| format!("cannot make a network namespace: {error}: it takes root"))?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    match up {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`ip link set lo up`: {status}")),
        Err(error) => Err(format!("`ip` does not start: {error}: install iproute2")),
    }
}

/// Lets this process have mounts of its own, which go with it and its children.
pub(crate) fn enter_mounts() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("cannot make a mount namespace: {error}"))?;
    match Command::new("mount").args(["--make-rprivate", "/"]).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`mount --make-rprivate /`: {status}")),
        Err(error) => Err(format!("`mount` does not start: {error}")),
    }
}
