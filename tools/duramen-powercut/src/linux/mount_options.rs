//! Converts mount options from their text to the arguments of mount(2).
//!
//! Owns which words are flags of every file system. All others belong to the file system, and are passed
//! unchanged. It mounts nothing.

#[cfg(test)]
mod tests;

use nix::mount::MsFlags;

/// Only one of these holds at a time: the last one given.
const ACCESS_TIMES: MsFlags = MsFlags::MS_NOATIME.union(MsFlags::MS_RELATIME).union(MsFlags::MS_STRICTATIME);

/// The flags, and the words for the file system, joined by commas. Of a word and its opposite the last one
/// holds.
pub(crate) fn flags_and_data(options: &str) -> (MsFlags, String) {
    let mut flags = MsFlags::empty();
    let mut data: Vec<&str> = Vec::new();
    for word in options.split(',').filter(|word| !word.is_empty()) {
        match generic(word) {
            Some(change) => flags = flags.difference(change.cleared).union(change.set),
            None => data.push(word),
        }
    }
    (flags, data.join(","))
}

/// The effect of a word on the flags.
struct Change {
    cleared: MsFlags,
    set: MsFlags,
}

fn generic(word: &str) -> Option<Change> {
    let on = |flag: MsFlags| Change { cleared: MsFlags::empty(), set: flag };
    let off = |flag: MsFlags| Change { cleared: flag, set: MsFlags::empty() };
    let access_time = |flag: MsFlags| Change { cleared: ACCESS_TIMES, set: flag };
    Some(match word {
        "defaults" => on(MsFlags::empty()),
        "ro" => on(MsFlags::MS_RDONLY),
        "rw" => off(MsFlags::MS_RDONLY),
        "noatime" => access_time(MsFlags::MS_NOATIME),
        "relatime" => access_time(MsFlags::MS_RELATIME),
        "strictatime" => access_time(MsFlags::MS_STRICTATIME),
        "atime" => off(MsFlags::MS_NOATIME),
        "norelatime" => off(MsFlags::MS_RELATIME),
        "nostrictatime" => off(MsFlags::MS_STRICTATIME),
        "nodiratime" => on(MsFlags::MS_NODIRATIME),
        "diratime" => off(MsFlags::MS_NODIRATIME),
        "nodev" => on(MsFlags::MS_NODEV),
        "dev" => off(MsFlags::MS_NODEV),
        "nosuid" => on(MsFlags::MS_NOSUID),
        "suid" => off(MsFlags::MS_NOSUID),
        "noexec" => on(MsFlags::MS_NOEXEC),
        "exec" => off(MsFlags::MS_NOEXEC),
        "sync" => on(MsFlags::MS_SYNCHRONOUS),
        "async" => off(MsFlags::MS_SYNCHRONOUS),
        "dirsync" => on(MsFlags::MS_DIRSYNC),
        "lazytime" => on(MsFlags::MS_LAZYTIME),
        "nolazytime" => off(MsFlags::MS_LAZYTIME),
        _ => return None,
    })
}
