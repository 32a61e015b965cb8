//! A memory cgroup for one child, version 1 or 2, where this user may make one.
//!
//! Owns the group's folder and removes it. It ends no process: a child that outgrows its group is killed by the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Result;

/// Where each version has its root, the file that bounds a group, and the one that counts kills.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
];

/// A group that nobody is in yet. Removed when dropped, once whoever joined has ended.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    kills: &'static str,
}

impl Group {
    /// Makes a group that may hold so many bytes, the kernel's cache of what its members read and write included.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn make(bytes: u64) -> Result<Group> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut why = "this system has none".to_owned();
        for (root, bound, kills) in VERSIONS {
            let folder = Path::new(root).join(format!("duramen-bench-{}-{number}", process::id()));
            // A root of the other version may lie there.
            if !Path::new(root).join("cgroup.procs").exists() {
                continue;
            }
            if let Err(error) = fs::create_dir(&folder) {
                why = format!("{root}: {error}");
                continue;
            }
            let group = Group { folder, kills };
            match fs::write(group.folder.join(bound), bytes.to_string()) {
                Ok(()) => return Ok(group),
                Err(error) => why = format!("{root}: {bound}: {error}"),
            }
        }
        Err(why.into())
    }

    /// The file that a process writes its id to, to be in the group.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// A remark if the kernel killed a member for want of memory; else nothing.
    pub fn why_killed(&self) -> &'static str {
        let said = fs::read_to_string(self.folder.join(self.kills)).unwrap_or_default();
        if counts_a_kill(&said) { "; it outgrew its memory cgroup" } else { "" }
    }
}

fn counts_a_kill(said: &str) -> bool {
    said.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
}

impl Drop for Group {
    fn drop(&mut self) {
        // A member that has just ended may still be counted: then the empty folder stays until the machine starts anew.
        drop(fs::remove_dir(&self.folder));
    }
}

#[cfg(test)]
mod tests {
    //! A point that was killed for its memory must not look like a bug of the engine, nor the other way round.
    use super::*;

    #[test]
    fn a_kill_is_read_from_either_version() {
        for (said, killed) in [
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", true),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false),
            ("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n", true),
            ("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n", false),
            ("", false),
        ] {
            assert_eq!(counts_a_kill(said), killed, "{said}");
        }
    }
}
