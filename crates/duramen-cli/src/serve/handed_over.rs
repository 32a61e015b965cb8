//! What a service manager such as systemd hands over to a server, and is told by it.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::{env, io, process};

use duramen::Code;
use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::failure::{FAILED, Failure, Result};

/// More are no listeners of ours.
const LISTENERS_MAX: usize = 64;

/// Listeners that were open before this process: the variable `LISTEN_FDS` says how many, from file 3 on.
#[derive(Debug, Default)]
pub(super) struct HandedOver {
    pub(super) tcp: Vec<TcpListener>,
    pub(super) sockets: Vec<UnixListener>,
}

impl HandedOver {
    /// Takes them. Later calls find none. What is meant for another process, as a variable that was passed
    /// on, is left alone.
    pub(super) fn take() -> Result<HandedOver> {
        let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == process::id().to_string());
        let count = env::var("LISTEN_FDS").ok().and_then(|count| count.parse::<usize>().ok());
        if !is_ours || count.is_none_or(|count| count > LISTENERS_MAX) {
            return Ok(HandedOver::default());
        }
        let mut files = ListenFd::from_env();
        let mut handed_over = HandedOver::default();
        for index in 0..files.len() {
            if let Ok(Some(listener)) = files.take_tcp_listener(index) {
                handed_over.tcp.push(listener);
                continue;
            }
            let socket = files.take_unix_listener(index).map_err(|error| no_listener(index, &error))?;
            handed_over.sockets.extend(socket);
        }
        Ok(handed_over)
    }

    /// The same listeners, for a server after this one.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn again(&self) -> io::Result<HandedOver> {
        Ok(HandedOver {
            tcp: self.tcp.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?,
            sockets: self.sockets.iter().map(UnixListener::try_clone).collect::<io::Result<_>>()?,
        })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.tcp.is_empty() && self.sockets.is_empty()
    }
}

fn no_listener(index: usize, error: &io::Error) -> Failure {
    let what = format!("listener {} of LISTEN_FDS cannot be used: {error}", index + 1);
    let hint = "hand over sockets of TCP or of this machine that listen (systemd: `ListenStream=` in a .socket unit), or unset LISTEN_FDS";
    Failure::said(FAILED, Code::System, what, hint)
}

/// Tells the service manager that clients can connect, if it wants to know (`Type=notify`).
pub(super) fn is_ready() {
    tell(NotifyState::Ready);
}

/// Tells the service manager that the server goes down.
pub(super) fn is_stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    // Without one it does nothing. One that cannot be told ends a server that it takes for dead.
    let _ = sd_notify::notify(&[state]);
}
