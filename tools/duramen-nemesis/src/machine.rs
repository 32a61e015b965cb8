//! A machine of the cluster: its namespace, its directory, its clock, and the process that runs there.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::failure::{Result, failed};
use crate::room::Room;

const PEER_PORT: u16 = 7421;
const PORT: u16 = 7420;
const KEEP_LOG_MIB: &str = "16";
const SMALL_DISK_BYTES: u64 = 768 << 20;
/// The exit code of a Rust program that has panicked.
const PANICKED: i32 = 101;
/// A node that is told to stop ends within this time.
const STOPS_WITHIN: Duration = Duration::from_secs(40);

/// The address of a machine: the same in all namespaces, where links or the machine itself listen.
pub(crate) fn peers(machine: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 1, own_byte(machine)], PEER_PORT))
}

/// Where it serves clients.
pub(crate) fn serves(machine: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 1, own_byte(machine)], PORT))
}

/// Where the tool reaches it whatever is wrong with the links of clients.
pub(crate) fn steward(machine: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 2, own_byte(machine)], PORT))
}

fn own_byte(machine: usize) -> u8 {
    u8::try_from(machine + 1).expect("few machines")
}

/// What all nodes need.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) duramen: PathBuf,
    pub(crate) work: PathBuf,
    /// A library that shifts the wall clock, if it could be built.
    pub(crate) clock: Option<PathBuf>,
    /// Each machine has a disk of its own, which can be full.
    pub(crate) has_small_disks: bool,
    /// Disks are in memory, which a node refuses unless it is told not to mind.
    pub(crate) is_in_memory: bool,
}

impl Kit {
    /// That of a program, with certificates in a directory; disks are as they are, and clocks stay.
    pub(crate) fn of(duramen: &Path, work: PathBuf) -> Result<Kit> {
        let found = duramen.canonicalize();
        let duramen = found.map_err(|error| failed("find", &duramen.display(), &error))?;
        Ok(Kit { duramen, work, clock: None, has_small_disks: false, is_in_memory: false })
    }
}

/// A machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) number: usize,
    pub(crate) room: Arc<Room>,
    kit: Arc<Kit>,
    directory: PathBuf,
    /// Counts its disks: the database of each has a directory of its own.
    disks: u32,
    process: Option<Child>,
    is_paused: bool,
    is_stopping: bool,
    /// How long the log was when the node was started.
    log_bytes: u64,
}

impl Machine {
    pub(crate) fn new(kit: &Arc<Kit>, number: usize) -> Result<Machine> {
        let directory = kit.work.join(format!("machine-{}", number + 1));
        fs::create_dir_all(&directory).map_err(|error| failed("make", &directory.display(), &error))?;
        if kit.has_small_disks {
            mount(&directory)?;
        }
        let machine = Machine::on(kit, number, &Arc::new(Room::new()?), directory);
        machine.set_clock(0)?;
        Ok(machine)
    }

    /// One whose disk is at this directory, in a namespace that others may be in as well.
    pub(crate) fn on(kit: &Arc<Kit>, number: usize, room: &Arc<Room>, directory: PathBuf) -> Machine {
        let (room, kit) = (Arc::clone(room), Arc::clone(kit));
        let (process, is_paused, is_stopping) = (None, false, false);
        Machine { number, room, kit, directory, disks: 0, process, is_paused, is_stopping, log_bytes: 0 }
    }

    /// The directory of its database.
    pub(crate) fn database(&self) -> PathBuf {
        self.directory.join(format!("db-{}", self.disks))
    }

    /// What its nodes have said.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    /// Starts its node: a new cluster, one that joins at another machine, or one that goes on.
    pub(crate) fn start(&mut self, begin: &[&str]) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.map_err(|error| failed("open", &self.log().display(), &error))?;
        self.log_bytes = log.metadata().map_or(0, |log| log.len());
        let says = log.try_clone().map_err(|error| failed("open", &self.log().display(), &error))?;
        let mut command = Command::new(&self.kit.duramen);
        command.arg("serve").arg(self.database()).args(["--json", "--no-auth"]);
        // Little, so that one that was down for a while needs a copy of the state.
        command.args(["--keep-log", KEEP_LOG_MIB]);
        command.arg("--peer-listen").arg(peers(self.number).to_string());
        command.arg("--listen").arg(serves(self.number).to_string());
        for (word, file) in [("--peer-cert", "node.pem"), ("--peer-key", "node.key"), ("--peer-ca", "ca.pem")]
        {
            command.arg(word).arg(self.kit.work.join(file));
        }
        command.args(begin).stdout(log).stderr(says).stdin(std::process::Stdio::null());
        // ^C is for the tool, which ends its nodes.
        command.process_group(0);
        if self.kit.is_in_memory {
            command.arg("--allow-tmpfs");
        }
        if let Some(clock) = &self.kit.clock {
            command.env("LD_PRELOAD", clock).env("NEMESIS_CLOCK", self.clock_file());
        }
        let started = self.room.inside(move || command.spawn());
        let process = started.map_err(|error| failed("start", &self.kit.duramen.display(), &error))?;
        (self.process, self.is_stopping) = (Some(process), false);
        Ok(())
    }

    /// Whether its node runs and is not paused.
    pub(crate) fn answers(&self) -> bool {
        self.is_up() && !self.is_paused
    }

    /// Whether its node runs, paused or not.
    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// How its node has ended by itself, or otherwise than a node that was asked to stop, if it has.
    pub(crate) fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let ended = process.try_wait().map_err(|error| failed("wait for", &"a node", &error))?;
        if ended.is_some() {
            self.process = None;
        }
        Ok(ended.filter(|status| !(self.is_stopping && status.success())))
    }

    /// The power of the process goes: SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        (self.is_paused, self.is_stopping) = (false, false);
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process
            .kill()
            .and_then(|()| process.wait())
            .map(drop)
            .map_err(|error| failed("kill", &"a node", &error))
    }

    /// Asks it to stop.
    pub(crate) fn ask_to_stop(&mut self) -> Result<()> {
        self.resume()?;
        // Asked twice, it ends at once.
        if !self.is_up() || std::mem::replace(&mut self.is_stopping, true) {
            return Ok(());
        }
        self.signal(Signal::SIGTERM)
    }

    /// Whether it was asked to stop, and has not been started again.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Waits until it has stopped as it should, after it was asked.
    pub(crate) fn wait_until_stopped(&mut self) -> Result<()> {
        let until = Instant::now() + STOPS_WITHIN;
        loop {
            let log = self.log();
            match self.has_ended()? {
                Some(status) => return Err(format!("the node of {} stops with {status}", log.display())),
                None if !self.is_up() => return Ok(()),
                None if Instant::now() > until => {
                    return Err(format!("the node of {} does not stop", log.display()));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    pub(crate) fn pause(&mut self) -> Result<()> {
        self.is_paused = true;
        self.signal(Signal::SIGSTOP)
    }

    pub(crate) fn resume(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_paused) { self.signal(Signal::SIGCONT) } else { Ok(()) }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        let pid = Pid::from_raw(i32::try_from(process.id()).expect("a pid is one"));
        kill(pid, signal).map_err(|error| failed("send a signal to", &"a node", &error))
    }

    /// The disk is lost: the next start is with an empty one.
    pub(crate) fn lose_disk(&mut self) -> Result<()> {
        self.kill()?;
        let lost = self.database();
        fs::remove_dir_all(&lost).map_err(|error| failed("remove", &lost.display(), &error))?;
        self.disks += 1;
        Ok(())
    }

    /// Fills its disk, which is one of its own, to the last block.
    pub(crate) fn fill(&self) -> Result<()> {
        let path = self.filler();
        let mut file = File::create(&path).map_err(|error| failed("make", &path.display(), &error))?;
        let mut piece = vec![0xa5; 1 << 20];
        while !piece.is_empty() {
            match file.write(&piece) {
                Ok(1..) => {}
                Ok(0) => piece.truncate(piece.len() / 2),
                Err(error) if error.kind() == ErrorKind::StorageFull => piece.truncate(piece.len() / 2),
                Err(error) => return Err(failed("fill", &path.display(), &error)),
            }
        }
        Ok(())
    }

    /// Gives its disk the room back.
    pub(crate) fn make_room(&self) -> Result<()> {
        let path = self.filler();
        fs::remove_file(&path).map_err(|error| failed("remove", &path.display(), &error))
    }

    fn filler(&self) -> PathBuf {
        self.directory.join("filler")
    }

    /// Flips a bit of a file of the database: `at` of a thousand parts into it.
    pub(crate) fn flip(&self, file: &Path, at: u64, bit: u8) -> Result<u64> {
        let path = self.database().join(file);
        let bytes = fs::metadata(&path).map_err(|error| failed("look at", &path.display(), &error))?.len();
        let offset = bytes.saturating_sub(1) * at / 1000;
        flip_bit(&path, offset, bit)?;
        Ok(offset)
    }

    /// The code of the error that its last node has ended with, if it has told one and ended by itself.
    pub(crate) fn told_code(&self, ended: ExitStatus) -> Option<String> {
        let said = fs::read(self.log()).unwrap_or_default();
        let said = said.get(usize::try_from(self.log_bytes).ok()?..)?;
        let is_panic = ended.code().is_none_or(|code| code == PANICKED);
        let line = String::from_utf8_lossy(said).lines().last().map(str::to_owned)?;
        let line: serde_json::Value = serde_json::from_str(&line).ok()?;
        line["code"].as_str().filter(|_| !is_panic).map(str::to_owned)
    }

    /// The files of the database, and of Raft's log: not those that say where it is served.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let root = self.database();
        let mut files = Vec::new();
        for directory in [root.clone(), root.join("wal"), root.join("raft")] {
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries {
                let path = entry.map_err(|error| failed("list", &directory.display(), &error))?.path();
                let is_of_server = path
                    .file_name()
                    .is_some_and(|name| name == "lock" || name.to_string_lossy().starts_with("serve"));
                let has_bytes = fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() > 0);
                if has_bytes && !is_of_server {
                    files.push(path.strip_prefix(&root).expect("it is inside").to_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn clock_file(&self) -> PathBuf {
        self.directory.with_extension("clock")
    }

    /// Lets its wall clock be so much ahead, or behind.
    pub(crate) fn set_clock(&self, ahead_ns: i64) -> Result<()> {
        let path = self.clock_file();
        let failing = |error: std::io::Error| failed("write", &path.display(), &error);
        // In its place: the node has it mapped. All that Duramen runs on is little-endian.
        let mut file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(failing)?;
        file.write_all(&ahead_ns.to_le_bytes()).map_err(failing)
    }
}

/// Flips a bit of a file.
pub(crate) fn flip_bit(path: &Path, offset: u64, bit: u8) -> Result<()> {
    let failing = |error: std::io::Error| failed("change", &path.display(), &error);
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failing)?;
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut byte)).map_err(failing)?;
    byte[0] ^= 1 << bit;
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(&byte)).map_err(failing)
}

/// Mounts a small file system of its own at a directory. It goes with the last process of its namespace.
fn mount(at: &Path) -> Result<()> {
    let image = at.with_extension("image");
    let file = File::create(&image).map_err(|error| failed("make", &image.display(), &error))?;
    file.set_len(SMALL_DISK_BYTES).map_err(|error| failed("make", &image.display(), &error))?;
    let run = |program: &str, words: &[&OsStr]| match Command::new(program).args(words).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} of {}: {status}", image.display())),
        Err(error) => Err(failed("start", &program, &error)),
    };
    run("mkfs.ext4", &["-q".as_ref(), "-m0".as_ref(), image.as_os_str()])?;
    run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()])
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.kill();
    }
}
