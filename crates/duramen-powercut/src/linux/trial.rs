//! One trial: a file system on the drive, a program on it, a cut, and a check of each survival.
//!
//! Owns the order of these steps, which is what the verdict rests on: the program is dead before the drive's requests
//! end, so it never sees an error that a power cut would not have shown it. This process stays single-threaded.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duramen_powercut::moment::Moment;
use duramen_powercut::random::Random;
use nix::errno::Errno;
use serde_json::Value;

use crate::linux::args::RunArgs;
use crate::linux::channel::{Heard, hear};
use crate::linux::drive_process::{self, DriveProcess};
use crate::linux::environment;
use crate::linux::failure::{Failure, Result};
use crate::linux::jail::{self, Ended, Jail, Task};
use crate::linux::loop_device::LoopDevice;
use crate::linux::report::{Checked, Report, Verdict};
use crate::linux::stage::{self, Mounted, Stage};

/// The purpose of the stream that the moment is drawn from.
const MOMENT: u64 = 1;
/// How long mkfs and fsck may take.
const TOOL_WITHIN: Duration = Duration::from_secs(120);
/// The newest bytes of an output that are shown.
const SHOWN_BYTES: usize = 4096;

struct Trial<'a> {
    args: &'a RunArgs,
    stage: Stage,
    drive: DriveProcess,
    variables: Vec<(String, OsString)>,
}

/// Draws the moment of the cut.
pub(crate) fn moment(args: &RunArgs, seed: u64) -> Moment {
    let mut random = Random::for_purpose(seed, MOMENT);
    let spans = (args.cut_after_ms, args.cut_after_writes, args.cut_after_flushes);
    match spans {
        (Some(ms), _, _) => Moment::Ms(ms.draw(&mut random)),
        (_, Some(writes), _) => Moment::Writes(writes.draw(&mut random)),
        (_, _, Some(flushes)) => Moment::Flushes(flushes.draw(&mut random)),
        (None, None, None) => unreachable!("clap requires one of them"),
    }
}

/// Runs all of it.
pub(crate) fn run(args: &RunArgs, seed: u64) -> Result<Report> {
    let began = Instant::now();
    environment::check(args)?;
    let moment = moment(args, seed);
    let words = environment::absolute_words(&args.words)?;
    let image = args.image.as_deref().map(environment::absolute).transpose()?;
    let kept = args.keep_image.as_deref().map(environment::absolute).transpose()?;
    // The drive first: it must not be in the mount namespace that is entered next.
    let (drive, device) = DriveProcess::start(args, seed, moment)?;
    let stage = Stage::enter(args.size)?;
    let variables = environment::variables(&stage, seed);
    let mut trial = Trial { args, stage, drive, variables };
    let mounted = trial.prepare(device, image)?;
    let (cut, command) = trial.run_until_cut(&words, &mounted)?;
    let mut checks: Vec<Checked> = Vec::new();
    for variant in 0..args.variants {
        checks.push(trial.check(variant, kept.as_deref(), &checks)?);
    }
    let ack = std::fs::read(trial.stage.acknowledgements()).unwrap_or_default();
    Ok(Report {
        seed,
        moment,
        cut,
        command,
        command_output: trial.shown("command.log"),
        ack_lines: ack.iter().filter(|byte| **byte == b'\n').count(),
        ack_bytes: ack.len(),
        checks,
        elapsed: began.elapsed(),
    })
}

impl Trial<'_> {
    /// From nothing to a mounted file system after SETUP, all of it durable.
    fn prepare(&mut self, device: File, image: Option<PathBuf>) -> Result<Mounted> {
        let from_outside = match image {
            Some(path) => path,
            None => self.make_file_system()?,
        };
        self.drive.load(&from_outside)?;
        let _ = std::fs::remove_file(self.stage.path("new.img"));
        let disk = self.stage.mount_drive(device)?;
        self.drive.serve()?;
        let device = LoopDevice::attach(&disk, true)?;
        device.assert_flushes_arrive()?;
        let fs = self.args.fs;
        let mounted = self.stage.mount(device, fs, self.args.mount_opts.as_deref()).map_err(|errno| {
            let name = fs.name();
            let hint = match errno {
                Errno::ENODEV => format!("this kernel has no {name}: modprobe {name}"),
                _ => "a wrong --image, --fs or --mount-opts? `dmesg | tail` says more".to_owned(),
            };
            Failure::environment(format!("cannot mount {name} on the drive: {}", errno.desc()), hint)
        })?;
        if let Some(setup) = &self.args.setup {
            let ended = self.shell(setup, "setup.log")?;
            if ended != Some(Ended::Exit(0)) {
                let how = ended.map_or("its time is over".to_owned(), |ended| ended.to_string());
                return Err(Failure::environment(
                    format!("--setup failed ({how}): {}", self.shown("setup.log")),
                    "its words run by `sh -c` in the mounted file system",
                ));
            }
        }
        let root = self.stage.mount_point();
        let synced = File::open(&root)
            .map_err(|error| error.to_string())
            .and_then(|folder| rustix::fs::syncfs(&folder).map_err(|errno| errno.to_string()));
        synced.map_err(|error| Failure::call("sync", &root, &error))?;
        Ok(mounted)
    }

    /// An image of an empty file system, by the path that the drive has for it.
    fn make_file_system(&self) -> Result<PathBuf> {
        let path = self.stage.path("new.img");
        let made = File::create(&path).and_then(|file| file.set_len(self.args.size));
        made.map_err(|error| Failure::call("make", &path, &error))?;
        let options: Vec<String> =
            self.args.mkfs_opts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
        let words = self.args.fs.mkfs_words(&options, &path);
        let ended = self.tool(&words, "mkfs.log")?;
        if ended != Some(Ended::Exit(0)) {
            return Err(Failure::environment(
                format!("{} failed: {}", self.args.fs.mkfs(), self.shown("mkfs.log").trim()),
                "a wrong --mkfs-opts or --size?",
            ));
        }
        Ok(self.stage.path_from_outside("new.img"))
    }

    /// Runs the command until the power goes, and clears away what the cut leaves.
    fn run_until_cut(&mut self, words: &[OsString], mounted: &Mounted) -> Result<(Value, Option<Ended>)> {
        let ack = self.stage.acknowledgements();
        let stdout = OpenOptions::new().append(true).create(true).open(&ack);
        let stdout = stdout.map_err(|error| Failure::call("make", &ack, &error))?;
        let stderr = self.log("command.log")?;
        self.drive.arm()?;
        let mut jail = self.jail(words, stdout, stderr)?;
        self.drive.begin()?;
        let heard = self.wait_for_cut(&mut jail);
        // Dead first, so that nobody in there sees the errors that follow.
        jail.kill()?;
        self.stage.abort_drive();
        jail.gone()?;
        self.stage.unmount(mounted)?;
        self.stage.unmount_drive()?;
        heard
    }

    fn wait_for_cut(&mut self, jail: &mut Jail) -> Result<(Value, Option<Ended>)> {
        let deadline = Instant::now() + Duration::from_secs(self.args.timeout_s);
        let mut ended = None;
        loop {
            match hear(&mut [&mut self.drive.channel, &mut jail.channel], deadline) {
                Heard::Line(0, line) => {
                    let told = line.strip_prefix("cut ").unwrap_or(&line);
                    return Ok((drive_process::parsed(told)?, ended));
                }
                Heard::Line(_, line) => {
                    ended = Some(jail::decode(&line));
                    self.drive.cut_now()?;
                }
                Heard::Closed(0) => return Err(Failure::internal("the drive went away", "was it killed?")),
                Heard::Closed(_) => {
                    return Err(Failure::internal("the command's namespace went away", "was it killed?"));
                }
                Heard::Late => {
                    return Err(Failure::internal(
                        format!(
                            "neither the cut nor the end of the command came in {} s",
                            self.args.timeout_s
                        ),
                        "lower --cut-after-..., or raise --timeout-s",
                    ));
                }
            }
        }
    }

    /// Mounts one survival, runs the check and, if asked for, the file system's own.
    fn check(&mut self, variant: u64, kept: Option<&Path>, before: &[Checked]) -> Result<Checked> {
        let name = stage::own_name("crash");
        let survival = self.drive.save(variant, &self.stage.path_from_outside(&name))?;
        let image = self.stage.path(&name);
        let (verdict, output) = self.verdict(&image)?;
        let _ = std::fs::remove_file(&image);
        if let Some(path) = kept {
            let failed_before = before.iter().any(|checked| checked.verdict != Verdict::Passed);
            if variant == 0 || verdict != Verdict::Passed && !failed_before {
                self.drive.save(variant, path)?;
            }
        }
        Ok(Checked { variant, survival, verdict, output })
    }

    fn verdict(&self, image: &Path) -> Result<(Verdict, String)> {
        let device = LoopDevice::attach(image, false)?;
        let mounted = match self.stage.mount(device, self.args.fs, self.args.mount_opts.as_deref()) {
            Ok(mounted) => mounted,
            Err(errno) => return Ok((Verdict::Unmountable(errno.desc().to_owned()), String::new())),
        };
        let ended = self.shell(&self.args.check, "check.log")?;
        self.stage.unmount(&mounted)?;
        match ended {
            None => return Ok((Verdict::TimedOut, self.shown("check.log"))),
            Some(Ended::Exit(0)) => {}
            Some(ended) => return Ok((Verdict::CheckFailed(ended), self.shown("check.log"))),
        }
        if self.args.fsck {
            match self.tool(&self.args.fs.fsck_words(image), "fsck.log")? {
                None => return Ok((Verdict::TimedOut, self.shown("fsck.log"))),
                Some(Ended::Exit(0)) => {}
                Some(ended) => return Ok((Verdict::FsckFailed(ended), self.shown("fsck.log"))),
            }
        }
        Ok((Verdict::Passed, self.shown("check.log")))
    }

    fn shell(&self, script: &str, log: &str) -> Result<Option<Ended>> {
        let deadline = Instant::now() + Duration::from_secs(self.args.timeout_s);
        let words = ["sh", "-c", script].map(OsString::from);
        self.logged(&words, &self.stage.mount_point(), log, deadline)
    }

    fn tool(&self, words: &[OsString], log: &str) -> Result<Option<Ended>> {
        self.logged(words, Path::new("/"), log, Instant::now() + TOOL_WITHIN)
    }

    fn logged(
        &self,
        words: &[OsString],
        directory: &Path,
        log: &str,
        deadline: Instant,
    ) -> Result<Option<Ended>> {
        let stdout = self.log(log)?;
        let stderr = stdout.try_clone().map_err(|error| Failure::call("share", Path::new(log), &error))?;
        let jail = Jail::start(Task { words, directory, variables: &self.variables, stdout, stderr })?;
        jail.finish(deadline)
    }

    fn jail(&self, words: &[OsString], stdout: File, stderr: File) -> Result<Jail> {
        let directory = self.stage.mount_point();
        Jail::start(Task { words, directory: &directory, variables: &self.variables, stdout, stderr })
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.stage.path(name);
        let _ = std::fs::remove_file(&path);
        let made = OpenOptions::new().append(true).create(true).open(&path);
        made.map_err(|error| Failure::call("make", &path, &error))
    }

    /// The end of an output.
    fn shown(&self, log: &str) -> String {
        let bytes = std::fs::read(self.stage.path(log)).unwrap_or_default();
        let from = bytes.len().saturating_sub(SHOWN_BYTES);
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }
}
