//! One trial: a file system on each drive, a program on them, a cut, and a check of each survival.
//!
//! Owns the order of these steps, on which the verdict relies. The program is killed before the drives'
//! requests fail, so it never sees an error that a power cut would not have shown it. This process stays
//! single-threaded.

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
use crate::linux::drive_spec::{self, DriveSpec};
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
/// How many of the last bytes of an output are shown.
const SHOWN_BYTES: usize = 4096;

struct Trial<'a> {
    args: &'a RunArgs,
    stage: Stage,
    specs: Vec<DriveSpec<'a>>,
    drives: DriveProcess,
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
    let specs = drive_spec::all(args)?;
    environment::check(args, &specs)?;
    let moment = moment(args, seed);
    let words = environment::absolute_words(&args.words)?;
    // The drives first: they must not be in the mount namespace that is entered next.
    let (drives, device) = DriveProcess::start(args, &specs, seed, moment)?;
    let stage = Stage::enter(environment::room_bytes(args, &specs))?;
    let variables = environment::variables(&stage, seed, specs.len());
    let mut trial = Trial { args, stage, specs, drives, variables };
    let mounted = trial.prepare(device)?;
    let (cut, command) = trial.run_until_cut(&words, &mounted)?;
    let mut checks: Vec<Checked> = Vec::new();
    for variant in 0..args.variants {
        checks.push(trial.check(variant, &checks)?);
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
    /// From nothing to mounted file systems after SETUP, all of it durable.
    fn prepare(&mut self, device: File) -> Result<Vec<Mounted>> {
        for spec in &self.specs {
            let from_outside = match &spec.image {
                Some(path) => path.clone(),
                None => self.make_file_system(spec)?,
            };
            self.drives.load(&from_outside)?;
            let _ = std::fs::remove_file(self.stage.path("new.img"));
        }
        self.stage.mount_drives(device)?;
        self.drives.serve()?;
        let mounted = (0..self.specs.len()).map(|drive_index| self.mount_drive(drive_index));
        let mounted = mounted.collect::<Result<Vec<_>>>()?;
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
        for drive_index in 0..self.specs.len() {
            sync_file_system(&self.stage.mount_point(drive_index))?;
        }
        Ok(mounted)
    }

    /// Mounts the file system of a drive, with the power on.
    fn mount_drive(&self, drive_index: usize) -> Result<Mounted> {
        let spec = &self.specs[drive_index];
        let device = LoopDevice::attach(&self.stage.drive_file(drive_index), true)?;
        device.assert_flushes_arrive()?;
        self.stage.mount(device, drive_index, spec).map_err(|errno| {
            let (name, drive) = (spec.fs.name(), spec.name);
            let hint = match errno {
                Errno::ENODEV => format!("this kernel has no {name}: modprobe {name}"),
                _ => "a wrong --image, --fs or --mount-opts? `dmesg | tail` says more".to_owned(),
            };
            Failure::environment(format!("cannot mount {name} on {drive}: {}", errno.desc()), hint)
        })
    }

    /// Creates an image of an empty file system. Returns its path as the drive process sees it.
    fn make_file_system(&self, spec: &DriveSpec<'_>) -> Result<PathBuf> {
        let path = self.stage.path("new.img");
        let made = File::create(&path).and_then(|file| file.set_len(self.args.size));
        made.map_err(|error| Failure::call("make", &path, &error))?;
        let options: Vec<String> =
            spec.mkfs_opts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
        let words = spec.fs.mkfs_words(&options, &path);
        let ended = self.tool(&words, "mkfs.log")?;
        if ended != Some(Ended::Exit(0)) {
            return Err(Failure::environment(
                format!("{} failed for {}: {}", spec.fs.mkfs(), spec.name, self.shown("mkfs.log").trim()),
                "a wrong --mkfs-opts or --size?",
            ));
        }
        Ok(self.stage.path_from_outside("new.img"))
    }

    /// Runs the command until the power goes, then unmounts everything.
    fn run_until_cut(&mut self, words: &[OsString], mounted: &[Mounted]) -> Result<(Value, Option<Ended>)> {
        let ack = self.stage.acknowledgements();
        let stdout = OpenOptions::new().append(true).create(true).open(&ack);
        let stdout = stdout.map_err(|error| Failure::call("make", &ack, &error))?;
        let stderr = self.log("command.log")?;
        self.drives.arm()?;
        let mut jail = self.jail(words, stdout, stderr)?;
        self.drives.begin()?;
        let heard = self.wait_for_cut(&mut jail);
        // Killed first, so that no process in there sees the errors that follow.
        jail.kill()?;
        self.stage.abort_drives();
        jail.gone()?;
        mounted.iter().try_for_each(Mounted::unmount)?;
        self.stage.unmount_drives()?;
        heard
    }

    fn wait_for_cut(&mut self, jail: &mut Jail) -> Result<(Value, Option<Ended>)> {
        let deadline = Instant::now() + Duration::from_secs(self.args.timeout_s);
        let mut ended = None;
        loop {
            match hear(&mut [&mut self.drives.channel, &mut jail.channel], deadline) {
                Heard::Line(0, line) => {
                    let told = line.strip_prefix("cut ").unwrap_or(&line);
                    return Ok((drive_process::parsed(told)?, ended));
                }
                Heard::Line(_, line) => {
                    ended = Some(jail::decode(&line));
                    self.drives.cut_now()?;
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

    /// Mounts one survival, runs the check and, if requested, fsck.
    fn check(&mut self, variant: u64, before: &[Checked]) -> Result<Checked> {
        let names = stage::DRIVE_FILES.map(|file| stage::own_name(&format!("crash-{file}")));
        let names = &names[..self.specs.len()];
        let mut survivals = Vec::new();
        for (drive_index, name) in names.iter().enumerate() {
            survivals.push(self.drives.save(variant, drive_index, &self.stage.path_from_outside(name))?);
        }
        let images: Vec<PathBuf> = names.iter().map(|name| self.stage.path(name)).collect();
        let (verdict, output) = self.verdict(&images)?;
        for image in &images {
            let _ = std::fs::remove_file(image);
        }
        let failed_before = before.iter().any(|checked| checked.verdict != Verdict::Passed);
        if variant == 0 || verdict != Verdict::Passed && !failed_before {
            for (drive_index, spec) in self.specs.iter().enumerate() {
                if let Some(path) = &spec.kept {
                    self.drives.save(variant, drive_index, path)?;
                }
            }
        }
        Ok(Checked { variant, survivals, verdict, output })
    }

    /// The verdict on a survival, and the output that shows it.
    fn verdict(&self, images: &[PathBuf]) -> Result<(Verdict, String)> {
        let mut mounted = Vec::new();
        let mut refused = None;
        for (drive_index, image) in images.iter().enumerate() {
            let device = LoopDevice::attach(image, false)?;
            let spec = &self.specs[drive_index];
            match self.stage.mount(device, drive_index, spec) {
                Ok(one) => mounted.push(one),
                Err(errno) => {
                    refused = Some(format!("{} on {}: {}", spec.fs.name(), spec.name, errno.desc()));
                    break;
                }
            }
        }
        let verdict = match refused {
            Some(why) => Verdict::Unmountable(why),
            None => match self.shell(&self.args.check, "check.log")? {
                None => Verdict::TimedOut,
                Some(Ended::Exit(0)) => Verdict::Passed,
                Some(ended) => Verdict::CheckFailed(ended),
            },
        };
        mounted.iter().try_for_each(Mounted::unmount)?;
        if verdict == Verdict::Passed && self.args.fsck {
            for (spec, image) in self.specs.iter().zip(images) {
                match self.tool(&spec.fs.fsck_words(image), "fsck.log")? {
                    None => return Ok((Verdict::TimedOut, self.shown("fsck.log"))),
                    Some(Ended::Exit(0)) => {}
                    Some(ended) => {
                        let how = format!("{} on {}: {ended}", spec.fs.name(), spec.name);
                        return Ok((Verdict::FsckFailed(how), self.shown("fsck.log")));
                    }
                }
            }
        }
        let output =
            if matches!(verdict, Verdict::Unmountable(_)) { String::new() } else { self.shown("check.log") };
        Ok((verdict, output))
    }

    fn shell(&self, script: &str, log: &str) -> Result<Option<Ended>> {
        let deadline = Instant::now() + Duration::from_secs(self.args.timeout_s);
        let words = ["sh", "-c", script].map(OsString::from);
        self.logged(&words, &self.stage.mount_point(0), log, deadline)
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
        let directory = self.stage.mount_point(0);
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

/// Syncs a file system.
fn sync_file_system(root: &Path) -> Result<()> {
    let synced = File::open(root)
        .map_err(|error| error.to_string())
        .and_then(|folder| rustix::fs::syncfs(&folder).map_err(|errno| errno.to_string()));
    synced.map_err(|error| Failure::call("sync", root, &error))
}
