//! Runs the binary in a directory of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use duramen::{Disk, OsDisk};
use tempfile::TempDir;

/// January's flights, as the binary has them.
pub(crate) const JANUARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights-january.csv.gz");

/// The flags every import of flights needs.
pub(crate) const FLIGHTS: &[&str] = &[
    "--collection",
    "flights",
    "--key",
    "carrier,time_hour,flight,origin",
    "--sum",
    "dep_delay,distance",
    "--null",
    "NA",
];

/// A directory to run in, removed at the end.
pub(crate) struct Scratch {
    dir: TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// Keeps the directory, for inspection.
    pub(crate) fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The binary with these arguments. If the scratch is in memory, adds those without which level `disk` is
    /// refused.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        if lies_in_memory(self.dir.path()) {
            return self.command_as_is(&without_level_disk(args));
        }
        self.command_as_is(args)
    }

    pub(crate) fn command_as_is(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// A script of a Unix shell that ends at its first failure.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Whether level `disk` is refused here.
    pub(crate) fn lies_in_memory(&self) -> bool {
        lies_in_memory(self.dir.path())
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        output(&mut self.command(args)).unwrap().into()
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self.spawn(args);
        // A command that refuses its arguments does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap().into()
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        start(self.command(args).stdin(Stdio::piped())).unwrap()
    }

    /// The files of a directory with their sizes and times of change, sorted.
    pub(crate) fn listing(&self, name: &str) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
        let mut found = Vec::new();
        let mut directories = vec![self.path(name)];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.metadata().unwrap();
                if metadata.is_dir() {
                    directories.push(path.clone());
                }
                found.push((path, metadata.len(), metadata.modified().unwrap()));
            }
        }
        found.sort();
        found
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// A database `db` with a collection of these rows.
    pub(crate) fn with_rows(csv: &str, flags: &[&str]) -> Scratch {
        let scratch = Scratch::new();
        scratch.write("rows.csv", csv);
        scratch.ok(&[&["import", "db", "rows.csv", "-c", "rows"], flags].concat());
        scratch
    }

    /// A database `db` with January's flights.
    pub(crate) fn with_january() -> Scratch {
        let scratch = Scratch::new();
        scratch.ok(&[&["import", "db", JANUARY, "--durability", "process"], FLIGHTS].concat());
        scratch
    }
}

/// Until a child runs its program it holds the open files of this process, locks included.
static STARTING: RwLock<()> = RwLock::new(());

/// Prevents other tests from starting children while this one has a database open in this process.
pub(crate) fn no_child_starts() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child whose outputs are read. Every child of these tests is started by this or by
/// [`output_into`].
pub(crate) fn start(command: &mut Command) -> std::io::Result<Child> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Runs a child to its end.
pub(crate) fn output(command: &mut Command) -> std::io::Result<Output> {
    start(command)?.wait_with_output()
}

/// Runs a child to its end, its standard output going to a file.
pub(crate) fn output_into(command: &mut Command, file: std::fs::File) -> std::io::Result<Output> {
    let child = {
        let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        command.stdout(file).stderr(Stdio::piped()).spawn()?
    };
    child.wait_with_output()
}

fn lies_in_memory(path: &Path) -> bool {
    ["tmpfs", "ramfs"].contains(&OsDisk::default().file_system(path).unwrap().name.as_str())
}

fn without_level_disk<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut args = args.to_vec();
    match args.first() {
        Some(&"demo") => args.push("--allow-tmpfs"),
        Some(&("import" | "put" | "del" | "drop")) => {
            match args.iter().position(|word| *word == "--durability") {
                Some(at) if args.get(at + 1) == Some(&"disk") => args[at + 1] = "process",
                Some(_) => {}
                None => args.extend(["--durability", "process"]),
            }
        }
        _ => {}
    }
    args
}

/// Prints that something was not tested, and why.
pub(crate) fn skipped(what: &str) {
    println!("skipped: {what}");
    if let Some(list) = std::env::var_os("DURAMEN_TEST_SKIPS") {
        let mut list = std::fs::OpenOptions::new().append(true).create(true).open(list).unwrap();
        writeln!(list, "{what}").unwrap();
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Lines in order of their text.
pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The plain text of a gzip file.
pub(crate) fn gunzip(path: &Path) -> String {
    let file = std::fs::File::open(path).unwrap();
    std::io::read_to_string(flate2::read::MultiGzDecoder::new(file)).unwrap()
}

/// One JSON object.
pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}
