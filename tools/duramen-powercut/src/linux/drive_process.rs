//! The process of the drives, as seen by its trial: started outside of the trial's mount namespace,
//! controlled by lines.
//!
//! Owns the trial's side of their socket. Dropping it ends the process, and fails every waiting request.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use duramen_powercut::moment::Moment;
use serde_json::Value;

use crate::linux::args::RunArgs;
use crate::linux::channel::{Channel, Heard, hear};
use crate::linux::drive_spec::DriveSpec;
use crate::linux::failure::{Failure, Result};

/// How long the drive may take to load or write an image.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// How long the tools of a drive may take in a trial, and again for each check.
const TOOLS_S: u64 = 240;

/// Running drives.
#[derive(Debug)]
pub(crate) struct DriveProcess {
    _process: Child,
    pub(crate) channel: Channel,
}

impl DriveProcess {
    /// Starts it, and returns the device to mount.
    pub(crate) fn start(
        args: &RunArgs,
        specs: &[DriveSpec<'_>],
        seed: u64,
        moment: Moment,
    ) -> Result<(DriveProcess, File)> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|error| {
            Failure::environment(format!("cannot open /dev/fuse: {error}"), "load the module: modprobe fuse")
        })?;
        let failed = |doing: &str, error: &dyn std::fmt::Display| {
            Failure::internal(
                format!("cannot {doing}: {error}"),
                "the machine may be short of processes or files",
            )
        };
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("make a socket", &error))?;
        let shared = device.try_clone().map_err(|error| failed("share /dev/fuse", &error))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("drive");
        for spec in specs {
            command.args(["--fs", spec.fs.name(), "--cache", spec.cache.name()]);
        }
        command.args(["--seed", &seed.to_string(), "--moment", &moment.to_string()]);
        command.args(["--give-up-s", &give_up_s(args, specs.len() as u64).to_string()]);
        if let Some(span) = args.latency_us {
            command.args(["--latency-us", &span.to_string()]);
        }
        command.stdin(Stdio::from(shared)).stdout(Stdio::from(OwnedFd::from(theirs))).current_dir("/");
        let process = command.spawn().map_err(|error| failed("start the drive", &error))?;
        Ok((DriveProcess { _process: process, channel: Channel::new(ours) }, device))
    }

    /// Sends a line and waits for its answer.
    fn ask(&mut self, line: &str, wanted: &str) -> Result<String> {
        let broken = |why: &str| {
            Failure::internal(
                format!("the drive {why} at `{line}`"),
                "was it killed? its own words are above",
            )
        };
        self.channel.send(line).map_err(|_| broken("is gone"))?;
        match hear(&mut [&mut self.channel], Instant::now() + ANSWER_WITHIN) {
            Heard::Line(_, answer) => match answer.strip_prefix(wanted) {
                Some(rest) => Ok(rest.trim_start().to_owned()),
                None => match answer.strip_prefix("error ") {
                    Some(why) => Err(Failure::internal(
                        format!("the drive {why}"),
                        "is there room for its image, and may it be written?",
                    )),
                    None => Err(broken(&format!("answered `{answer}`"))),
                },
            },
            Heard::Closed(_) => Err(broken("went away")),
            Heard::Late => Err(broken(&format!("did not answer within {} s", ANSWER_WITHIN.as_secs()))),
        }
    }

    /// Loads an image as the durable content of the next drive.
    pub(crate) fn load(&mut self, image: &Path) -> Result<()> {
        self.ask(&format!("load {}", image.display()), "loaded").map(drop)
    }

    /// Begins to serve; the device is mounted.
    pub(crate) fn serve(&mut self) -> Result<()> {
        self.ask("serve", "serving").map(drop)
    }

    /// From here on writes and flushes are counted, and the power can go.
    pub(crate) fn arm(&mut self) -> Result<()> {
        self.ask("arm", "armed").map(drop)
    }

    /// From here on time is counted: the command runs.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.tell("begin")
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        self.channel
            .send(line)
            .map_err(|error| Failure::internal(format!("the drive is gone: {error}"), "was it killed?"))
    }

    /// Cuts the power now, unless it was cut already; `cut` is reported in both cases.
    pub(crate) fn cut_now(&mut self) -> Result<()> {
        self.tell("cut")
    }

    /// Writes the surviving content of a drive for one variant. Returns the choice.
    pub(crate) fn save(&mut self, variant: u64, drive_index: usize, path: &Path) -> Result<Value> {
        let told = self.ask(&format!("image {variant} {drive_index} {}", path.display()), "image")?;
        parsed(&told)
    }
}

/// Longer than any trial that does not hang: SETUP, CMD, each CHECK, and the tools around them.
fn give_up_s(args: &RunArgs, drive_count: u64) -> u64 {
    args.timeout_s * (2 + args.variants) + TOOLS_S * drive_count * (1 + args.variants)
}

/// Parses a drive's line as JSON.
pub(crate) fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|error| Failure::internal(format!("the drive said `{text}`: {error}"), "report this"))
}
