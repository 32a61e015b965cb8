//! Runs the binary in a directory of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// Leaves the directory where it is, for somebody to look at.
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

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self.spawn(args);
        // A command that refuses its arguments does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap().into()
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs what must end well; its standard output.
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
