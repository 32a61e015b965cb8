//! A command and all its descendants in a pid namespace of their own, so that one signal ends them all.
//!
//! Owns starting, monitoring and ending them. The first process of the namespace is this program (`powercut
//! init`): it reaps, reports, and dies with its trial. It never mounts.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::linux::channel::{Channel, Heard, hear};
use crate::linux::failure::{Failure, INTERNAL, Result};

/// How long killed processes may take to disappear.
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// How long a program may take to be loaded.
const STARTED_WITHIN: Duration = Duration::from_secs(20);
/// The line of a namespace's first process once the command runs its own program.
const STARTED: &str = "started";
/// The line that makes a namespace's first process kill the others, but not itself.
const KILL: &str = "kill";

/// A command to run.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    /// The program and its arguments.
    pub(crate) words: &'a [OsString],
    /// The directory to run in.
    pub(crate) directory: &'a Path,
    pub(crate) variables: &'a [(String, OsString)],
    pub(crate) stdout: File,
    pub(crate) stderr: File,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exit(code) => write!(f, "exit code {code}"),
            Ended::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

/// A running command.
#[derive(Debug)]
pub(crate) struct Jail {
    init: Child,
    pub(crate) channel: Channel,
}

impl Jail {
    pub(crate) fn start(task: Task<'_>) -> Result<Jail> {
        let failed = |doing: &str, error: &dyn std::fmt::Display| {
            Failure::internal(format!("cannot {doing}: {error}"), "a container may forbid pid namespaces")
        };
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("make a socket", &error))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("init").arg("--directory").arg(task.directory).arg("--").args(task.words);
        command.envs(task.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(task.stdout).stderr(task.stderr);
        let own =
            File::open("/proc/self/ns/pid").map_err(|error| failed("open /proc/self/ns/pid", &error))?;
        unshare(CloneFlags::CLONE_NEWPID).map_err(|error| failed("make a pid namespace", &error))?;
        let started = command.spawn();
        // Only the process just started is in the new namespace; the next one gets its own.
        setns(&own, CloneFlags::CLONE_NEWPID).map_err(|error| failed("leave a pid namespace", &error))?;
        let init = started.map_err(|error| failed("start /proc/self/exe", &error))?;
        let mut jail = Jail { init, channel: Channel::new(ours) };
        match hear(&mut [&mut jail.channel], Instant::now() + STARTED_WITHIN) {
            Heard::Line(_, line) if line == STARTED => Ok(jail),
            Heard::Line(_, line) => Err(Failure::environment(
                format!("cannot start {}", line.trim_start_matches("unstarted ")),
                "it starts in the mounted file system: give an absolute path, or a name that PATH has",
            )),
            Heard::Closed(_) | Heard::Late => Err(failed("start a command", &"its namespace said nothing")),
        }
    }

    /// Sends SIGKILL to all of them. When it returns, none executes its program any more.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let deadline = Instant::now() + GONE_WITHIN;
        let mut told = self.channel.send(KILL).is_ok();
        while told {
            match hear(&mut [&mut self.channel], deadline) {
                Heard::Line(_, line) if line == "killed" => return Ok(()),
                Heard::Line(..) => {}
                Heard::Closed(_) | Heard::Late => told = false,
            }
        }
        // The first process of the namespace has ended, and all others with it.
        let _ = self.init.kill();
        Ok(())
    }

    /// Waits until they are gone.
    pub(crate) fn gone(&mut self) -> Result<()> {
        let deadline = Instant::now() + GONE_WITHIN;
        while Instant::now() < deadline {
            match self.init.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => std::thread::sleep(Duration::from_micros(200)),
                Err(error) => return Err(Failure::internal(format!("cannot wait: {error}"), "report this")),
            }
        }
        Err(Failure::internal(
            format!("killed processes are still there after {} s", GONE_WITHIN.as_secs()),
            "`ps` shows what they wait for; they go with this process",
        ))
    }

    /// Waits for the end of the command, then ends the processes it left. `None` if the deadline passed.
    pub(crate) fn finish(mut self, deadline: Instant) -> Result<Option<Ended>> {
        let ended = match hear(&mut [&mut self.channel], deadline) {
            Heard::Line(_, line) => Some(decode(&line)),
            Heard::Closed(_) => Some(Ended::Signal(Signal::SIGKILL as i32)),
            Heard::Late => None,
        };
        self.kill()?;
        self.gone()?;
        Ok(ended)
    }
}

/// Parses the line of the first process.
pub(crate) fn decode(line: &str) -> Ended {
    let number = |text: &str| text.parse().unwrap_or(-1);
    match line.split_once(' ') {
        Some(("signal", signal)) => Ended::Signal(number(signal)),
        Some((_, code)) => Ended::Exit(number(code)),
        None => Ended::Exit(-1),
    }
}

/// The first process of a namespace: starts the command, reaps its descendants, and obeys its trial.
pub(crate) fn init(directory: &PathBuf, words: &[OsString]) -> ExitCode {
    if nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_err() {
        return ExitCode::from(INTERNAL);
    }
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(INTERNAL) };
    let socket = UnixStream::from(socket);
    let Ok(commands) = socket.try_clone() else { return ExitCode::from(INTERNAL) };
    let (mut commands, mut trial) = (Channel::new(commands), Channel::new(socket));
    let Some((program, arguments)) = words.split_first() else { return ExitCode::from(INTERNAL) };
    let started = Command::new(program).args(arguments).current_dir(directory).stdin(Stdio::null()).spawn();
    match started {
        Ok(child) => {
            let _ = trial.send(STARTED);
            let Ok(mut told) = trial.try_clone() else { return ExitCode::from(INTERNAL) };
            std::thread::spawn(move || reap(&child, &mut told));
        }
        Err(error) => {
            let _ = trial.send(&format!("unstarted {}: {error}", program.display()));
        }
    }
    // `kill`, or the end of the trial: both end everything here.
    let asked = commands.receive();
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    if asked.is_some() {
        let _ = trial.send("killed");
    }
    ExitCode::SUCCESS
}

/// Reaps for ever, and reports how the command ended.
fn reap(command: &Child, trial: &mut Channel) {
    let command = i32::try_from(command.id()).unwrap_or(-1);
    loop {
        let line = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == command => format!("exit {code}"),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == command => {
                format!("signal {}", signal as i32)
            }
            Ok(_) => continue,
            // No children are left.
            Err(_) => return,
        };
        let _ = trial.send(&line);
    }
}
