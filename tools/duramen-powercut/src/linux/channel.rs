//! Lines between the processes of a run, over sockets, with deadlines.
//!
//! Owns buffering and waiting. Lines have no meaning here. The process that runs a trial must stay
//! single-threaded (it changes its namespaces), so it waits by poll(2).

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};

/// One end of a socket that carries lines.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// The result of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A line, and which channel it came from.
    Line(usize, String),
    /// The other end of this channel was closed.
    Closed(usize),
    /// The deadline passed.
    Late,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> Channel {
        Channel { stream, buffer: Vec::new() }
    }

    /// Another end of the same socket, for another thread to send on.
    pub(crate) fn try_clone(&self) -> io::Result<Channel> {
        Ok(Channel::new(self.stream.try_clone()?))
    }

    pub(crate) fn send(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes())
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Reads the available bytes; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes)?;
        self.buffer.extend_from_slice(&bytes[..count]);
        Ok(count > 0)
    }

    /// The next line, without a deadline; `None` once the other end was closed.
    pub(crate) fn receive(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(line);
            }
            match self.fill() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(false) | Err(_) => return None,
            }
        }
    }
}

/// The first line of any of the channels.
pub(crate) fn hear(channels: &mut [&mut Channel], deadline: Instant) -> Heard {
    loop {
        for (index, channel) in channels.iter_mut().enumerate() {
            if let Some(line) = channel.take_line() {
                return Heard::Line(index, line);
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Heard::Late;
        }
        for index in ready(channels, left) {
            match channels[index].fill() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(false) | Err(_) => return Heard::Closed(index),
            }
        }
    }
}

/// The channels that are readable or closed.
fn ready(channels: &[&mut Channel], wait: Duration) -> Vec<usize> {
    let polled = |channel: &&mut Channel| channel.stream.as_fd().try_clone_to_owned();
    let Ok(fds) = channels.iter().map(polled).collect::<io::Result<Vec<_>>>() else { return Vec::new() };
    let mut polls: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
    let wait_ms = u16::try_from(wait.as_millis() + 1).unwrap_or(u16::MAX);
    let _ = nix::poll::poll(&mut polls, PollTimeout::from(wait_ms));
    let something = |poll: &PollFd<'_>| poll.revents().is_some_and(|events| !events.is_empty());
    polls.iter().enumerate().filter(|(_, poll)| something(poll)).map(|(index, _)| index).collect()
}
