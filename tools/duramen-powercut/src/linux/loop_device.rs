//! A loop device over a file, which is detached when its last user closes it.
//!
//! Owns finding a free device and checking its cache mode. It never detaches: AUTOCLEAR does, whichever
//! process dies.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;

use crate::linux::failure::{Failure, Result};
use crate::linux::platform;

const CONTROL: &str = "/dev/loop-control";
/// Attempts to take a free device, since another process may take it first.
const TRIES_MAX: u32 = 50;
/// How long a device may stay after its last user.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// An attached device. Mount it, then drop this: the mount keeps it.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    /// Held open until the mount holds the device.
    _open: File,
}

impl LoopDevice {
    /// Attaches a file. `direct` is for the drive under test, whose flushes must arrive unchanged.
    pub(crate) fn attach(backing: &Path, direct: bool) -> Result<LoopDevice> {
        let call =
            |doing: &str, path: &Path, error: &dyn std::fmt::Display| Failure::call(doing, path, error);
        let file = OpenOptions::new().read(true).write(true).open(backing);
        let file = file.map_err(|error| call("open", backing, &error))?;
        let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(|error| {
            Failure::environment(format!("cannot open {CONTROL}: {error}"), "load the module: modprobe loop")
        })?;
        for _ in 0..TRIES_MAX {
            let number = platform::free_loop_device(&control)
                .map_err(|error| call("find a free device by", Path::new(CONTROL), &error))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new().read(true).write(true).open(&path);
            let device = device.map_err(|error| call("open", &path, &error))?;
            match platform::configure_loop_device(&device, file.as_fd(), direct) {
                Ok(()) => return Ok(LoopDevice { path, _open: device }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(call("attach a file to", &path, &error)),
            }
        }
        Err(Failure::environment("no loop device stays free", "`losetup -l` shows who has them"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn attribute(&self, name: &str) -> PathBuf {
        Path::new("/sys/block").join(self.path.file_name().unwrap_or_default()).join(name)
    }

    /// Fails for a device that would swallow flushes.
    pub(crate) fn assert_flushes_arrive(&self) -> Result<()> {
        let attribute = self.attribute("queue/write_cache");
        let found =
            std::fs::read_to_string(&attribute).map_err(|error| Failure::call("read", &attribute, &error))?;
        if found.trim() == "write back" {
            return Ok(());
        }
        Err(Failure::environment(
            format!("{} reads \"{}\", so no flush would reach the drive", attribute.display(), found.trim()),
            format!(
                "somebody set it, and it outlives its file: echo \"write back\" > {}",
                attribute.display()
            ),
        ))
    }

    /// Where the kernel shows the attached file.
    pub(crate) fn backing(&self) -> PathBuf {
        self.attribute("loop/backing_file")
    }
}

/// Waits until an unused device has released its file.
pub(crate) fn wait_until_gone(backing: &Path) -> Result<()> {
    let deadline = Instant::now() + GONE_WITHIN;
    // Another run may attach its own file to the same device as soon as it is free: that file has another
    // name.
    let own = format!("-{}", std::process::id());
    while std::fs::read_to_string(backing).is_ok_and(|now| now.trim_end().ends_with(&own)) {
        if Instant::now() > deadline {
            return Err(Failure::internal(
                format!("{} is still attached after {} s", backing.display(), GONE_WITHIN.as_secs()),
                "`losetup -l` and `lsof` show who holds it",
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
