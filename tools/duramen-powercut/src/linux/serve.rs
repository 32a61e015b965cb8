//! The drives as one process: it serves a FUSE file for each to the kernel and obeys the trial that started
//! it.
//!
//! Owns answers, latencies and the cut. One lock is around all drives, so the cut hits all of them at one
//! instant, and after it nothing is answered. It stays in the mount namespace of its parent's parent, never
//! in that of the file system above it, whose unmount would wait for it. It ends with its trial.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duramen_powercut::content::Content;
use duramen_powercut::drive::{Counts, Drive, Write};
use duramen_powercut::moment::Moment;
use duramen_powercut::survival;
use nix::libc;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::linux::args::{Cache, DriveArgs};
use crate::linux::channel::Channel;
use crate::linux::due::{Waiting, Work};
use crate::linux::failure::{Failure, INTERNAL};
use crate::linux::file_system::FileSystem;
use crate::linux::fuse_protocol::{self as fuse, Request};
use crate::linux::image;
use crate::linux::stage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Serves, without counting.
    Live,
    /// Serves, and waits for the moment of the cut.
    Armed,
    /// Answers nothing.
    Cut,
}

/// A drive, and its file system.
struct Served {
    drive: Drive,
    fs: FileSystem,
}

struct State {
    drives: Vec<Served>,
    phase: Phase,
    moment: Moment,
    begun_at: Instant,
    /// Delayed requests, if answers have a latency.
    waiting: Option<Waiting>,
    /// The channel on which the cut is reported.
    trial: Channel,
}

struct Server {
    state: Mutex<State>,
    /// Signalled when work was queued.
    queued: Condvar,
    device: File,
}

/// Runs until the trial is gone.
pub(crate) fn run(args: &DriveArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            crate::linux::report::failure(&failure, false);
            ExitCode::from(INTERNAL)
        }
    }
}

fn serve(args: &DriveArgs) -> Result<(), Failure> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| failed("die with its trial", &error))?;
    // Allocations of this process must not wait for writes that it serves itself. Without CAP_SYS_RESOURCE
    // this call fails, which matters only on a machine that runs out of memory.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let device =
        io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed("take its device", &error))?;
    let socket =
        io::stdout().as_fd().try_clone_to_owned().map_err(|error| failed("take its socket", &error))?;
    let socket = UnixStream::from(socket);
    let commands = socket.try_clone().map_err(|error| failed("take its socket", &error))?;
    let (mut commands, mut trial) = (Channel::new(commands), Channel::new(socket));
    let Some(drives) = loaded(args, &mut commands, &mut trial)? else { return Ok(()) };
    let server = Arc::new(Server {
        state: Mutex::new(State {
            drives,
            phase: Phase::Live,
            moment: args.moment,
            begun_at: Instant::now(),
            waiting: args.latency_us.map(|span| Waiting::new(span, args.seed)),
            trial,
        }),
        queued: Condvar::new(),
        device: File::from(device),
    });
    let limit = Duration::from_secs(args.give_up_s);
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        // A request that hangs on this drive fails once the last serving thread is gone.
        let _ = nix::sys::signal::raise(Signal::SIGKILL);
    });
    if args.latency_us.is_some() {
        let late = Arc::clone(&server);
        std::thread::spawn(move || late.late_answers());
    }
    // The end of the lines is the end of the trial, and of this process with all its threads.
    while let Some(line) = commands.receive() {
        server.command(&line, args);
    }
    Ok(())
}

fn failed(doing: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::internal(format!("the drive cannot {doing}: {error}"), "this command is for `powercut run` only")
}

/// Receives the image of each drive from the trial; `None` if the trial ends before.
fn loaded(
    args: &DriveArgs,
    commands: &mut Channel,
    trial: &mut Channel,
) -> Result<Option<Vec<Served>>, Failure> {
    let mut drives = Vec::new();
    for (fs, cache) in args.fs.iter().zip(&args.cache) {
        let line = commands.receive();
        let Some(path) = line.as_deref().and_then(|line| line.strip_prefix("load ")) else { return Ok(None) };
        let content =
            image::load(Path::new(path)).map_err(|error| failed(&format!("load {path}"), &error))?;
        trial.send("loaded").map_err(|error| failed("answer", &error))?;
        drives.push(Served { drive: Drive::new(Cache::into(*cache), content), fs: *fs });
    }
    Ok(Some(drives))
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes one line of the trial, and answers it with one.
    fn command(self: &Arc<Server>, line: &str, args: &DriveArgs) {
        let mut state = self.state();
        let answer = match line.split_once(' ') {
            // Only after the device is mounted: before, reading it fails for good.
            None if line == "serve" => {
                let server = Arc::clone(self);
                std::thread::spawn(move || server.requests());
                "serving".to_owned()
            }
            None if line == "arm" => {
                state.drives.iter_mut().for_each(|served| served.drive.arm());
                state.phase = Phase::Armed;
                "armed".to_owned()
            }
            None if line == "begin" => {
                self.begin(&mut state);
                return;
            }
            None if line == "cut" => {
                state.cut("the end of the command");
                return;
            }
            Some(("image", rest)) => state.save_survivors(rest, args),
            _ => format!("error knows no such command: {line}"),
        };
        let _ = state.trial.send(&answer);
    }

    /// The command runs: time counts from here.
    fn begin(self: &Arc<Server>, state: &mut State) {
        state.begun_at = Instant::now();
        if let Moment::Ms(ms) = state.moment {
            let server = Arc::clone(self);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(ms));
                server.state().cut("its time");
            });
        }
    }

    /// Reads requests until the connection is aborted.
    fn requests(&self) {
        let mut buffer = vec![0; fuse::BUFFER_BYTES];
        loop {
            match (&self.device).read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if let Some((unique, request)) = fuse::decode(&buffer[..count]) {
                        self.request(unique, request);
                    }
                }
                // A request that was interrupted before it was read.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn request(&self, unique: u64, request: Request<'_>) {
        let mut state = self.state();
        if state.phase == Phase::Cut {
            return;
        }
        match request {
            Request::Init { major: 7, readahead_bytes_max, flags } => {
                self.answer(unique, 0, &fuse::init(readahead_bytes_max, flags));
            }
            Request::Lookup { parent: fuse::ROOT, name } => match state.drive_of_name(name) {
                Some(drive) => {
                    let node = fuse::node(drive);
                    self.answer(unique, 0, &fuse::entry(node, state.size_bytes(node)));
                }
                None => self.answer(unique, libc::ENOENT, &[]),
            },
            Request::Lookup { .. } => self.answer(unique, libc::ENOENT, &[]),
            Request::Attributes { node } => {
                self.answer(unique, 0, &fuse::attributes(node, state.size_bytes(node)));
            }
            Request::Open { node } if fuse::drive(node).is_some() => {
                self.answer(unique, 0, &fuse::opened_disk());
            }
            Request::OpenDirectory => self.answer(unique, 0, &fuse::opened_directory()),
            Request::ReadDirectory | Request::Nothing => self.answer(unique, 0, &[]),
            Request::FileSystem => self.answer(unique, 0, &fuse::file_system()),
            Request::Read { node, offset, bytes } => match state.holder(node, offset, bytes) {
                Some(drive) => self.later(&mut state, unique, Work::Read { drive, offset, bytes }),
                None => self.answer(unique, libc::ENOSPC, &[]),
            },
            Request::Write { node, offset, bytes } => match state.holder(node, offset, bytes.len()) {
                Some(drive) => {
                    let write = Write { offset, bytes: bytes.to_vec() };
                    let write = state.drives[drive].drive.begin_write(write);
                    self.later(&mut state, unique, Work::Written { drive, write, bytes: bytes.len() });
                }
                None => self.answer(unique, libc::ENOSPC, &[]),
            },
            Request::Sync { node } => match state.holder(node, 0, 0) {
                Some(drive) => {
                    if state.moment.is_at_flush(state.counts()) {
                        state.cut("its flush");
                    }
                    let flush = state.drives[drive].drive.begin_flush();
                    self.later(&mut state, unique, Work::Flushed { drive, flush });
                }
                None => self.answer(unique, 0, &[]),
            },
            Request::Silent => {}
            Request::Init { .. } | Request::Open { .. } | Request::Unknown => {
                self.answer(unique, libc::ENOSYS, &[]);
            }
        }
    }

    fn answer(&self, unique: u64, error: i32, payload: &[u8]) {
        // An interrupted request needs no answer any more: the error is expected.
        let _ = (&self.device).write(&fuse::answer(unique, error, payload));
    }

    /// Does the work now, or after its latency. Latencies begin with the command; the setup before it has
    /// none.
    fn later(&self, state: &mut State, unique: u64, work: Work) {
        match &mut state.waiting {
            Some(waiting) if state.phase == Phase::Armed => {
                waiting.push(Instant::now(), unique, work);
                self.queued.notify_one();
            }
            _ => self.work(state, unique, work),
        }
    }

    /// Completes a request and answers it, both under the lock, so that no cut falls in between.
    fn work(&self, state: &mut State, unique: u64, work: Work) {
        if state.phase == Phase::Cut {
            return;
        }
        match work {
            Work::Read { drive, offset, bytes } => {
                let mut buffer = vec![0; bytes];
                state.drives[drive].drive.read(offset, &mut buffer);
                self.answer(unique, 0, &buffer);
            }
            Work::Flushed { drive, flush } => {
                state.drives[drive].drive.complete_flush(flush);
                self.answer(unique, 0, &[]);
            }
            Work::Written { drive, write, bytes } => {
                state.drives[drive].drive.complete_write(write);
                self.answer(unique, 0, &fuse::written(bytes));
                if state.moment.is_at_write(state.counts()) {
                    state.cut("its write");
                }
            }
        }
    }

    /// Answers each request once its latency has passed.
    fn late_answers(&self) {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            state = match state.waiting.as_ref().and_then(Waiting::next_at) {
                Some(at) if at <= now => {
                    if let Some(due) = state.waiting.as_mut().and_then(Waiting::pop) {
                        self.work(&mut state, due.unique, due.work);
                    }
                    state
                }
                Some(at) => {
                    self.queued.wait_timeout(state, at - now).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.queued.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl State {
    /// The counts of all drives together.
    fn counts(&self) -> Counts {
        self.drives.iter().map(|served| served.drive.counts()).sum()
    }

    /// The drive whose file name begins with this name; the suffix is only for `losetup`.
    fn drive_of_name(&self, name: &[u8]) -> Option<usize> {
        let names = stage::DRIVE_FILES.iter().take(self.drives.len());
        names.into_iter().position(|file| name.starts_with(file.as_bytes()))
    }

    /// The size of a file; the directory has none.
    fn size_bytes(&self, node: u64) -> u64 {
        let served = fuse::drive(node).and_then(|drive| self.drives.get(drive));
        served.map_or(0, |served| served.drive.size_bytes())
    }

    /// The drive with this file, if the file has this range.
    fn holder(&self, node: u64, offset: u64, bytes: usize) -> Option<usize> {
        let drive = fuse::drive(node)?;
        self.drives.get(drive).filter(|served| served.drive.holds(offset, bytes)).map(|_| drive)
    }

    /// Cuts the power, once, and reports it.
    fn cut(&mut self, cause: &str) {
        if self.phase != Phase::Armed {
            return;
        }
        self.phase = Phase::Cut;
        let counts = self.counts();
        let each = self.drives.iter().map(|Served { drive, .. }| {
            json!({
                "writes": drive.counts().writes,
                "flushes": drive.counts().flushes,
                "pending": drive.pending_count(),
                "in_flight": drive.in_flight_count(),
            })
        });
        let told = json!({
            "cause": cause,
            "after_ms": u64::try_from(self.begun_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            "writes": counts.writes,
            "flushes": counts.flushes,
            "drives": each.collect::<Vec<_>>(),
        });
        let _ = self.trial.send(&format!("cut {told}"));
    }

    /// Writes the surviving content of a drive for a variant: `image VARIANT DRIVE PATH`.
    fn save_survivors(&self, rest: &str, args: &DriveArgs) -> String {
        let parsed = rest.split_once(' ').and_then(|(variant, rest)| {
            let (drive, path) = rest.split_once(' ')?;
            let index: usize = drive.parse().ok()?;
            Some((variant.parse().ok()?, index, self.drives.get(index)?, path))
        });
        let Some((variant, index, served, path)) = parsed else {
            return format!("error has no such image: {rest}");
        };
        let seed = survival::seed_of_drive(args.seed, index);
        let left = survival::survivors(&served.drive, seed, variant, served.fs.whole_blocks());
        let content: &Content = &left.content;
        match image::save(content, Path::new(path)) {
            Ok(()) => {
                let told = json!({
                    "survival": left.survival.to_string(),
                    "kept": left.kept,
                    "torn": left.torn,
                    "dropped": left.dropped,
                });
                format!("image {told}")
            }
            Err(error) => format!("error cannot write {path}: {error}"),
        }
    }
}
