//! The environment of a trial: its own mount namespace, a file system in memory for its results, and its
//! mounts.
//!
//! Owns every mount of the tool. Nothing here is visible outside, and all of it disappears with the last
//! process inside. So no cleanup is needed, whichever process dies. It does not decide when to mount.

use std::fs::{DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::linux::drive_spec::DriveSpec;
use crate::linux::failure::{Failure, Result};
use crate::linux::loop_device::{self, LoopDevice};
use crate::linux::mount_options;

/// The only directory that the tool creates on the machine. It stays, and stays empty.
const ROOT: &str = "/run/powercut";
/// The file of each drive, and the prefix of its images.
pub(crate) const DRIVE_FILES: [&str; 3] = ["disk", "second", "third"];
/// Where the file system of each drive is mounted.
const MOUNT_POINTS: [&str; DRIVE_FILES.len()] = ["mnt", "second", "third"];
/// Room for acknowledgements and outputs beside an image.
const ACK_BYTES_MAX: u64 = 1 << 30;
/// How long an unmount may fail because a process is still inside.
const BUSY_WITHIN: Duration = Duration::from_secs(10);

const NOTHING: Option<&Path> = None;

/// The environment of a trial.
#[derive(Debug)]
pub(crate) struct Stage {
    root: PathBuf,
}

/// A mounted file system and the loop device below it.
#[derive(Debug)]
pub(crate) struct Mounted {
    mount_point: PathBuf,
    backing: PathBuf,
}

impl Stage {
    /// Leaves the machine's mount namespace. The process must have no other thread. `size_bytes` is that of
    /// all drives.
    pub(crate) fn enter(size_bytes: u64) -> Result<Stage> {
        let root = PathBuf::from(ROOT);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(|error| Failure::call("make the directory", &root, &error))?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| {
            Failure::environment(
                format!("cannot make a mount namespace: {}", errno.desc()),
                "a container needs CAP_SYS_ADMIN: docker run --privileged",
            )
        })?;
        mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)
            .map_err(|errno| Failure::call("make mounts private below", Path::new("/"), &errno.desc()))?;
        let room = format!("mode=0700,size={}", size_bytes.saturating_add(ACK_BYTES_MAX));
        mount(Some("powercut"), &root, Some("tmpfs"), MsFlags::MS_NOSUID, Some(room.as_str()))
            .map_err(|errno| Failure::call("mount a tmpfs on", &root, &errno.desc()))?;
        let stage = Stage { root };
        let mount_points = (0..MOUNT_POINTS.len()).map(|drive_index| stage.mount_point(drive_index));
        for folder in mount_points.chain([stage.fuse()]) {
            std::fs::create_dir(&folder)
                .map_err(|error| Failure::call("make the directory", &folder, &error))?;
        }
        Ok(stage)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The same path for the drive process, which is in another mount namespace.
    pub(crate) fn path_from_outside(&self, name: &str) -> PathBuf {
        let inside = self.path(name);
        let inside = inside.strip_prefix("/").unwrap_or(&inside);
        Path::new("/proc").join(std::process::id().to_string()).join("root").join(inside)
    }

    /// The mount point of a drive's file system.
    pub(crate) fn mount_point(&self, drive_index: usize) -> PathBuf {
        self.path(MOUNT_POINTS[drive_index])
    }

    /// The file of acknowledgements, on a file system that loses no power.
    pub(crate) fn acknowledgements(&self) -> PathBuf {
        self.path("ack")
    }

    fn fuse(&self) -> PathBuf {
        self.path("drive")
    }

    /// Mounts the directory with the drives' files.
    ///
    /// The device is closed here: the drive process must be the last to hold it, so that its end fails every
    /// request.
    pub(crate) fn mount_drives(&self, device: File) -> Result<()> {
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("powercut"), &self.fuse(), Some("fuse"), flags, Some(options.as_str())).map_err(
            |errno| {
                Failure::environment(
                    format!("cannot mount a FUSE file system: {}", errno.desc()),
                    "load the module: modprobe fuse",
                )
            },
        )?;
        drop(device);
        Ok(())
    }

    /// The file of a drive.
    pub(crate) fn drive_file(&self, drive_index: usize) -> PathBuf {
        self.fuse().join(own_name(DRIVE_FILES[drive_index]))
    }

    /// Mounts the file system of a drive, through a loop device.
    pub(crate) fn mount(
        &self,
        device: LoopDevice,
        drive_index: usize,
        spec: &DriveSpec<'_>,
    ) -> std::result::Result<Mounted, Errno> {
        let all = [spec.fs.mount_options(), spec.mount_opts.unwrap_or_default()].join(",");
        let (flags, data) = mount_options::flags_and_data(&all);
        let mount_point = self.mount_point(drive_index);
        let kind = Some(spec.fs.name());
        mount(Some(device.path()), &mount_point, kind, flags, Some(data.as_str()))?;
        Ok(Mounted { mount_point, backing: device.backing() })
    }

    /// Fails every waiting request of the drives. After this, file systems that hang on them can be
    /// unmounted.
    pub(crate) fn abort_drives(&self) {
        // It returns EBUSY, because the loop device has the file open; the connection is aborted all the
        // same.
        let _ = umount2(&self.fuse(), MntFlags::MNT_FORCE);
    }

    /// Unmounts the directory of the drives.
    pub(crate) fn unmount_drives(&self) -> Result<()> {
        unmount(&self.fuse())
    }
}

impl Mounted {
    /// Unmounts the file system and waits until its loop device is gone.
    pub(crate) fn unmount(&self) -> Result<()> {
        unmount(&self.mount_point)?;
        loop_device::wait_until_gone(&self.backing)
    }
}

/// A file name that `losetup -l` shows, with the id of its process.
pub(crate) fn own_name(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn unmount(path: &Path) -> Result<()> {
    let deadline = Instant::now() + BUSY_WITHIN;
    loop {
        match umount2(path, MntFlags::empty()) {
            Ok(()) => return Ok(()),
            // Files of killed processes are closed a moment later.
            Err(Errno::EBUSY) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Err(errno) => return Err(Failure::call("unmount", path, &errno.desc())),
        }
    }
}
