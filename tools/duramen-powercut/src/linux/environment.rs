//! The requirements of a run on the machine, and the environment variables of its commands.
//!
//! Owns the failures before anything is started: each names what is missing and how to get it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::linux::args::{self, RunArgs};
use crate::linux::drive_spec::DriveSpec;
use crate::linux::failure::{Failure, Result};
use crate::linux::stage::Stage;

/// The directories of file system tools, which the PATH of a service may lack.
const SYSTEM_PATHS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Fails on a machine that cannot run a trial.
pub(crate) fn check(args: &RunArgs, specs: &[DriveSpec<'_>]) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::environment(
            "only root can mount file systems",
            "run it by sudo, in a machine of yours",
        ));
    }
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if !Path::new(device).exists() {
            return Err(Failure::environment(
                format!("there is no {device}"),
                format!("load the module (modprobe {module}), or give the container the device"),
            ));
        }
    }
    specs.iter().try_for_each(|spec| check_drive(args, spec))
}

/// Checks the requirements of one drive: tools, room for its file system, its image.
fn check_drive(args: &RunArgs, spec: &DriveSpec<'_>) -> Result<()> {
    let fs = spec.fs;
    let tools = [(spec.image.is_none(), fs.mkfs()), (args.fsck, fs.fsck())];
    for (_, tool) in tools.iter().filter(|(needed, _)| *needed) {
        if !has(tool) {
            return Err(Failure::environment(
                format!("there is no {tool}"),
                format!("install {} (its name on Debian)", fs.package()),
            ));
        }
    }
    if let Some(image) = spec.image.as_deref().filter(|image| !image.is_file()) {
        return Err(Failure::environment(
            format!("there is no image {}", image.display()),
            "--keep-image makes FILE, and of further drives FILE.second and FILE.third; --image begins with them",
        ));
    }
    if let Some(kept) = &spec.kept {
        check_kept(kept)?;
    }
    if spec.image.is_none() && args.size >> 20 < fs.mebibytes_min() {
        return Err(Failure::environment(
            format!("{} cannot be made on {} MiB", fs.name(), args.size >> 20),
            format!("--size {}M or more", fs.mebibytes_min()),
        ));
    }
    Ok(())
}

/// Refuses an image path whose failure would show only after the run.
fn check_kept(kept: &Path) -> Result<()> {
    if kept.is_dir() {
        return Err(Failure::environment(
            format!("cannot keep an image in {}: it is a directory", kept.display()),
            "--keep-image takes the name of a file",
        ));
    }
    match kept.parent().filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(Failure::environment(
            format!("there is no directory {} to keep an image in", folder.display()),
            "make it, or name another --keep-image",
        )),
        None => Ok(()),
    }
}

/// The total size of all full drives: that of their images, if they begin with these.
pub(crate) fn room_bytes(args: &RunArgs, specs: &[DriveSpec<'_>]) -> u64 {
    let of_image = |image: &PathBuf| image.metadata().map_or(args.size, |found| found.len());
    specs.iter().map(|spec| spec.image.as_ref().map_or(args.size, of_image)).fold(0, u64::saturating_add)
}

fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(SYSTEM_PATHS);
    path
}

fn has(tool: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(tool).is_file())
}

/// The environment variables of each command of a trial.
pub(crate) fn variables(stage: &Stage, seed: u64, drive_count: usize) -> Vec<(String, OsString)> {
    let mut variables = vec![
        ("PATH".to_owned(), search_path()),
        ("POWERCUT_MNT".to_owned(), stage.mount_point(0).into_os_string()),
        ("POWERCUT_ACK".to_owned(), stage.acknowledgements().into_os_string()),
        ("POWERCUT_SEED".to_owned(), OsString::from(seed.to_string())),
    ];
    for (name, drive_index) in [("POWERCUT_SECOND", 1), ("POWERCUT_THIRD", 2)] {
        if drive_index < drive_count {
            variables.push((name.to_owned(), stage.mount_point(drive_index).into_os_string()));
        }
    }
    variables
}

/// A path that stays right when the working directory is the mount point.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::call("find the directory of", path, &error))
}

/// The absolute path of an image, which is sent to the drives in a line.
///
/// The path itself was checked before; here the working directory may not fit.
pub(crate) fn absolute_image(path: &Path) -> Result<PathBuf> {
    let path = absolute(path)?;
    match args::one_line(path.as_os_str()) {
        Ok(_) => Ok(path),
        Err(why) => Err(Failure::environment(
            format!("cannot name the image {}: {why}", path.display()),
            "run it in another working directory",
        )),
    }
}

/// The command with its program's path made absolute; a bare name is searched in PATH as usual.
pub(crate) fn absolute_words(words: &[OsString]) -> Result<Vec<OsString>> {
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut()
        && program.as_encoded_bytes().contains(&b'/')
    {
        *program = absolute(Path::new(OsStr::new(&*program)))?.into_os_string();
    }
    Ok(words)
}
