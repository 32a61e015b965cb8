//! The file of the shell's history: in the user's state directory, readable by the user only.

use std::path::PathBuf;

/// The path of the history; creates its directory. `None` if no place for it is known.
pub(super) fn file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    let directory = state.join("duramen");
    make(&directory).ok()?;
    Some(directory.join("history"))
}

#[cfg(unix)]
fn make(directory: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;

    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make(directory: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)
}
