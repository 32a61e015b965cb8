//! Whether the file system a database lies on can keep level `disk`, before anything is acknowledged there.
//!
//! Refuses what is known to survive no power cut: file systems in memory, an overlay that writes to one, an overlay
//! that leaves out syncs. What cannot be known is taken: a container may not see what its overlay writes to.

use std::io;
use std::path::Path;

use duramen::{Code, Disk, Durability, OsDisk};

use crate::failure::{CANNOT_KEEP, Failure, Result};

/// Refuses level `disk` where it cannot be kept. The other levels promise nothing that a file system could break.
pub(crate) fn check_level(path: &Path, level: Durability) -> Result<()> {
    if level != Durability::Disk {
        return Ok(());
    }
    check(path, "say --durability process, which survives kill -9, or name a directory on a disk")
}

/// Refuses a path, which need not be there yet, if nothing on it survives a power cut.
pub(crate) fn check(path: &Path, hint: &str) -> Result<()> {
    let place = path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let Some(why) = why_not(place).map_err(|error| Failure::io("look at", place, &error))? else {
        return Ok(());
    };
    Err(Failure::said(
        CANNOT_KEEP,
        Code::Unsupported,
        format!("{} is on {why} and survives no power cut", path.display()),
        hint,
    ))
}

/// What the path lies on that forgets, in words; `None` if nothing says that it does.
fn why_not(place: &Path) -> io::Result<Option<String>> {
    let name = OsDisk::default().file_system(place)?.name;
    if is_memory(&name) {
        return Ok(Some(format!("a {name}, which lives in memory")));
    }
    if name != "overlay" {
        return Ok(None);
    }
    Ok(overlay(place).and_then(|overlay| {
        if overlay.volatile {
            return Some("an overlay mounted volatile, which leaves out syncs".to_owned());
        }
        let upper = OsDisk::default().file_system(Path::new(&overlay.upper?)).ok()?.name;
        is_memory(&upper).then(|| format!("an overlay over a {upper}, which lives in memory"))
    }))
}

fn is_memory(name: &str) -> bool {
    name == "tmpfs" || name == "ramfs"
}

/// What the mount table says about an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Overlay {
    /// The directory it writes to; perhaps none that this process can see.
    upper: Option<String>,
    /// Whether it was told to leave out syncs.
    volatile: bool,
}

#[cfg(target_os = "linux")]
fn overlay(place: &Path) -> Option<Overlay> {
    use std::os::unix::fs::MetadataExt;
    let device = place.metadata().ok()?.dev();
    find_overlay(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, device)
}

#[cfg(not(target_os = "linux"))]
fn overlay(_place: &Path) -> Option<Overlay> {
    None
}

/// Finds the overlay with a device number in the text of `/proc/self/mountinfo`: "36 35 0:45 / /mnt rw - overlay
/// overlay rw,lowerdir=/l,upperdir=/u", see `proc_pid_mountinfo(5)`.
#[cfg(any(target_os = "linux", test))]
fn find_overlay(mounts: &str, device: u64) -> Option<Overlay> {
    let (major, minor) =
        ((device >> 32 & 0xffff_f000) | (device >> 8 & 0xfff), (device >> 12 & 0xffff_ff00) | device & 0xff);
    let wanted = format!("{major}:{minor}");
    let found = mounts.lines().rev().find(|line| line.split(' ').nth(2) == Some(wanted.as_str()))?;
    let mut system = found.split_once(" - ")?.1.split(' ');
    let (kind, options) = (system.next()?, system.nth(1)?);
    if kind != "overlay" {
        return None;
    }
    let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="));
    let volatile = options.split(',').any(|option| matches!(option, "volatile" | "fsync=volatile"));
    Some(Overlay { upper: upper.map(unescaped), volatile })
}

/// The table writes blanks and the like as a backslash and three octal digits.
#[cfg(any(target_os = "linux", test))]
fn unescaped(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    //! An overlay hides what it writes to; the mount table tells.
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:38 / /live rw,relatime - overlay overlay rw,lowerdir=/ro,upperdir=/run/up\\040per,workdir=/run/work
41 22 0:39 / /fast rw,relatime shared:9 - overlay overlay rw,lowerdir=/ro,upperdir=/u,workdir=/w,volatile
42 22 0:40 / /seen rw,relatime - overlay overlay ro,lowerdir=/a:/b
43 22 0:300 / /many rw,relatime - overlay overlay rw,lowerdir=/ro,upperdir=/many,fsync=volatile
";

    #[test]
    fn overlays_are_found_by_their_device_number() {
        let check = |device: u64, upper: Option<&str>, volatile| {
            let wanted = Overlay { upper: upper.map(str::to_owned), volatile };
            assert_eq!(find_overlay(MOUNTS, device), Some(wanted));
        };
        check(38, Some("/run/up per"), false);
        check(39, Some("/u"), true);
        check(40, None, false);
        // Minor numbers beyond a byte have their upper bits above the major.
        check(0x10_002c, Some("/many"), true);
        assert_eq!(find_overlay(MOUNTS, 254 << 8), None, "that is an ext4");
        assert_eq!(find_overlay(MOUNTS, 77), None);
    }
}
