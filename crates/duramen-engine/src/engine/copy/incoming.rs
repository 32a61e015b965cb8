//! The state that a node takes in place of its own: a copy in the directory `incoming`, whose files are then
//! moved to where the node's are.
//!
//! A mark in that directory says how far this is. `unfinished-copy`: the copy is being made, and means
//! nothing. `whole`: it is on disk, and the old files may be going. `moving`: they are gone, and the new ones
//! are being moved. With one of the last two, the directory is a database only after [`take_over`]: every
//! other opening refuses it. Each step can be repeated after a power cut.

use std::path::{Path, PathBuf};

use duramen_disk::{Access, Disk, PathKind};

use super::super::directory::{DATA, LOCK, UNFINISHED, WAL, kind};
use super::super::replica::RAFT;
use crate::error::{Code, Error, Result};
use crate::feed::FEED_DIR;
use crate::raft_log::INCARNATIONS;

const INCOMING: &str = "incoming";
const WHOLE: &str = "whole";
const MOVING: &str = "moving";

/// Makes the directory for a copy, marked as unfinished. Nothing is in it.
pub(super) fn begin(disk: &dyn Disk, node: &Path) -> Result<PathBuf> {
    let incoming = node.join(INCOMING);
    if kind(disk, &incoming)?.is_none() {
        disk.create_dir(&incoming).map_err(|error| Error::io("create", &incoming, &error))?;
        sync(disk, node)?;
    }
    let mark = incoming.join(UNFINISHED);
    disk.open(&mark, Access::CREATE).map_err(|error| Error::io("create", &mark, &error))?;
    sync(disk, &incoming)?;
    Ok(incoming)
}

/// Marks a copy that is whole and on disk: from now on it is the state of the node.
pub(super) fn is_whole(disk: &dyn Disk, incoming: &Path) -> Result<()> {
    set_mark(disk, incoming, UNFINISHED, WHOLE)
}

/// Fails if a copy is to take the place of the state in this directory.
pub(super) fn refuse_between(disk: &dyn Disk, node: &Path) -> Result<()> {
    let incoming = node.join(INCOMING);
    for mark in [WHOLE, MOVING] {
        if kind(disk, &incoming.join(mark))?.is_some() {
            let what = format!(
                "{} is a node that has copied the state of another one, and has not taken it over",
                node.display()
            );
            return Err(Error::new(Code::UnfinishedCopy, what)
                .with_hint("start the node with `duramen serve` and its flags: that takes it over"));
        }
    }
    Ok(())
}

/// Whether something is left to take over, or to remove.
pub(in crate::engine) fn is_there(disk: &dyn Disk, node: &Path) -> Result<bool> {
    Ok(kind(disk, &node.join(INCOMING))? == Some(PathKind::Directory))
}

/// Puts a whole copy in the place of the state of the node. A copy that is not whole is removed. The caller
/// holds the lock of the directory.
///
/// # Errors
/// `System` (E1001): the call can be repeated.
pub(in crate::engine) fn take_over(disk: &dyn Disk, node: &Path) -> Result<()> {
    let incoming = node.join(INCOMING);
    if kind(disk, &incoming.join(WHOLE))?.is_some() {
        for dir in [WAL, RAFT, FEED_DIR] {
            remove_files(disk, &node.join(dir), &[LOCK, INCARNATIONS])?;
        }
        set_mark(disk, &incoming, WHOLE, MOVING)?;
    }
    if kind(disk, &incoming.join(MOVING))?.is_some() {
        for dir in [WAL, RAFT] {
            move_files(disk, &incoming.join(dir), &node.join(dir), &|name| !name.ends_with(LOCK))?;
        }
        move_files(disk, &incoming, node, &|name| name.ends_with(DATA))?;
    }
    for dir in [WAL, RAFT] {
        remove_files(disk, &incoming.join(dir), &[])?;
    }
    // The mark last: without it nothing is moved any more.
    remove_files(disk, &incoming, &[MOVING])?;
    remove_files(disk, &incoming, &[])
}

fn set_mark(disk: &dyn Disk, incoming: &Path, before: &str, after: &str) -> Result<()> {
    let (before, after) = (incoming.join(before), incoming.join(after));
    disk.rename(&before, &after).map_err(|error| Error::io("rename", &before, &error))?;
    sync(disk, incoming)
}

/// Moves the files of a directory that are `wanted` to another one.
fn move_files(disk: &dyn Disk, from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    for name in files(disk, from)?.iter().filter(|name| wanted(name)) {
        let (before, after) = (from.join(name), to.join(name));
        disk.rename(&before, &after).map_err(|error| Error::io("rename", &before, &error))?;
    }
    sync(disk, to)?;
    sync(disk, from)
}

/// Removes the files of a directory, if it is there, but for these.
pub(super) fn remove_files(disk: &dyn Disk, dir: &Path, but_for: &[&str]) -> Result<()> {
    if kind(disk, dir)? != Some(PathKind::Directory) {
        return Ok(());
    }
    for name in files(disk, dir)?.iter().filter(|name| !but_for.iter().any(|kept| name.ends_with(kept))) {
        let file = dir.join(name);
        disk.remove(&file).map_err(|error| Error::io("remove", &file, &error))?;
    }
    sync(disk, dir)
}

fn files(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    let names = disk.list(dir).map_err(|error| Error::io("list", dir, &error))?;
    let mut files = Vec::new();
    for name in names {
        if kind(disk, &dir.join(&name))? == Some(PathKind::File) {
            files.push(name);
        }
    }
    Ok(files)
}

fn sync(disk: &dyn Disk, dir: &Path) -> Result<()> {
    disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))
}
