//! The file `incarnations`: how often this node has been opened, and how often it has seen that others were.
//!
//! A directory that was rolled back to an older copy, or that runs in two places, has forgotten what it
//! acknowledged and whom it voted for. It shows itself: each opening has the next number and draws an id, and
//! members keep the newest of each other. A smaller number is an older copy; the same number with another id
//! is a second one. A directory that was told so never takes part again: opened often enough, it would pass
//! for the newest.

use std::path::Path;
use std::sync::Mutex;

use duramen_disk::Disk;

use super::opening::{is_there, no_content, remove_if_there};
use super::start::Ident;
use super::twin::{CONTENT_BYTES_MAX, Twin};
use crate::alarm::locked;
use crate::error::{Code, Error, Result};
use crate::ids::{DatabaseId, LogId};
use crate::wal::LogIdentity;

/// Not removed when a copy of another node's state takes the place of a node's own.
pub(crate) const INCARNATIONS: &str = "incarnations";

/// One opening of a node's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation {
    /// Counts openings, from 1 on.
    pub number: u64,
    /// Drawn at each.
    pub id: u64,
}

/// The newest incarnations of other nodes, in the order in which those were met.
type Known = Vec<(u64, Incarnation)>;

/// The own incarnation, and the newest known of other nodes.
#[derive(Debug)]
pub(super) struct Incarnations {
    own: Incarnation,
    /// Held while the file is written.
    file: Mutex<OfNode>,
    /// Held for moments: consensus looks at each request.
    known: Mutex<Known>,
}

/// The file, and whether it says that the directory is retired: no later write may take that back.
#[derive(Debug)]
struct OfNode {
    twin: Twin,
    is_retired: bool,
}

/// Nodes whose incarnations are kept. Those that were met longest ago are forgotten first: members that were
/// removed, as the others are met again.
const KNOWN_MAX: usize = (CONTENT_BYTES_MAX - 24) / 24;

impl Incarnations {
    /// Begins the next incarnation. It is durable when this returns, before the node says a word.
    ///
    /// # Errors
    /// `IdentityRetired` (E1205) after [`Incarnations::retire`]; `CorruptLog` (E0502) if neither copy of the
    /// file can be read; `DiskFull` (E0301); `System` (E1001).
    pub(super) fn open(disk: &dyn Disk, dir: &Path, ident: Ident) -> Result<Incarnations> {
        // Not of the log: a copy of another node's state brings another log, and this file stays.
        let identity =
            LogIdentity { database: DatabaseId(ident.cluster), log: LogId(u128::from(ident.node)) };
        let (path, fresh, id) = (dir.join(INCARNATIONS), dir.join("incarnations.new"), disk.random());
        if is_there(disk, &path)? {
            let (mut twin, content) = Twin::open(disk, &path, identity)?;
            let (last, is_retired, known) = decode(&content).ok_or_else(|| no_content(&path))?;
            if is_retired {
                return Err(retired(dir, ident));
            }
            let own = Incarnation { number: last.number + 1, id };
            twin.write(&encode(own, false, &known))?;
            return Ok(Incarnations::of_file(twin, own, known));
        }
        remove_if_there(disk, &fresh)?;
        let own = Incarnation { number: 1, id };
        let twin = Twin::create(disk, &fresh, identity, &encode(own, false, &[]))?;
        let sync_names = || disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error));
        sync_names()?;
        disk.rename(&fresh, &path).map_err(|error| Error::io("rename", &fresh, &error))?;
        sync_names()?;
        Ok(Incarnations::of_file(twin, own, Known::new()))
    }

    fn of_file(twin: Twin, own: Incarnation, known: Known) -> Incarnations {
        Incarnations { own, file: Mutex::new(OfNode { twin, is_retired: false }), known: Mutex::new(known) }
    }

    pub(super) fn own(&self) -> Incarnation {
        self.own
    }

    /// The newest known of a node.
    pub(super) fn of(&self, node: u64) -> Option<Incarnation> {
        locked(self.known.lock()).iter().find(|(of, _)| *of == node).map(|(_, newest)| *newest)
    }

    /// Notes what a node is now. Returns another incarnation if that is known to be the newest one.
    ///
    /// # Errors
    /// `System` (E1001): the file must not be used any more.
    pub(super) fn meet(&self, node: u64, met: Incarnation) -> Result<Option<Incarnation>> {
        let mut file = locked(self.file.lock());
        let known = self.of(node);
        if let Some(newest) = known.filter(|newest| newest.number >= met.number) {
            return Ok((newest != met).then_some(newest));
        }
        let mut known = locked(self.known.lock()).clone();
        known.retain(|(of, _)| *of != node);
        known.push((node, met));
        let surplus = known.len().saturating_sub(KNOWN_MAX);
        known.drain(..surplus);
        let content = encode(self.own, file.is_retired, &known);
        file.twin.write(&content)?;
        *locked(self.known.lock()) = known;
        Ok(None)
    }

    /// No later opening succeeds.
    ///
    /// # Errors
    /// `System` (E1001).
    pub(super) fn retire(&self) -> Result<()> {
        let mut file = locked(self.file.lock());
        let known = locked(self.known.lock()).clone();
        file.is_retired = true;
        file.twin.write(&encode(self.own, true, &known))
    }
}

fn retired(dir: &Path, ident: Ident) -> Error {
    let what = format!(
        "{}: this directory is an older copy of node {}, or one of two: its cluster has told it so. It takes no more part",
        dir.display(),
        ident.node
    );
    Error::new(Code::IdentityRetired, what)
        .with_hint("move it away; an empty directory can join in its place")
}

fn encode(own: Incarnation, is_retired: bool, known: &[(u64, Incarnation)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CONTENT_BYTES_MAX);
    let known = known.iter().flat_map(|(node, newest)| [*node, newest.number, newest.id]);
    let of_own = [own.number, own.id, u64::from(is_retired)];
    of_own.into_iter().chain(known).for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

fn decode(bytes: &[u8]) -> Option<(Incarnation, bool, Known)> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
    let ([number, id, is_retired], known) = numbers.split_first_chunk()?;
    let (known, more) = known.as_chunks::<3>();
    if !rest.is_empty() || !more.is_empty() || *number == u64::MAX || *is_retired > 1 {
        return None;
    }
    let known = known.iter().map(|[node, number, id]| (*node, Incarnation { number: *number, id: *id }));
    Some((Incarnation { number: *number, id: *id }, *is_retired == 1, known.collect()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use duramen_disk::MemDisk;
    use duramen_disk::memory::CrashChoice;

    use super::*;

    const IDENT: Ident = Ident { cluster: 7, node: 3 };

    fn open(disk: &MemDisk) -> Incarnations {
        Incarnations::open(disk, Path::new("/"), IDENT).unwrap()
    }

    #[test]
    fn each_opening_is_a_later_one_after_a_power_cut_at_every_operation() {
        let disk = MemDisk::new(1);
        disk.record();
        let mut opened = vec![(0, 0)];
        for _ in 0..3 {
            let own = open(&disk).own();
            opened.push((disk.recorded_len(), own.number));
        }
        let trace = disk.stop_recording();
        let mut cursor = trace.cursor();
        loop {
            let least = opened.iter().rfind(|(at, _)| *at <= cursor.at()).unwrap().1;
            for seed in 0..8 {
                let next = open(&cursor.image(&CrashChoice::Random { seed })).own().number;
                assert!(next > least, "{next} after {least} was opened, cut {}", cursor.at());
            }
            if !cursor.advance() {
                return;
            }
        }
    }

    #[test]
    fn an_older_copy_and_a_second_one_are_told_from_the_newest() {
        let disk = MemDisk::new(2);
        let peer = open(&disk);
        let opening = |number, id| Incarnation { number, id };
        assert_eq!(peer.meet(5, opening(2, 20)).unwrap(), None);
        assert_eq!(peer.meet(5, opening(2, 20)).unwrap(), None);
        assert_eq!(peer.meet(5, opening(3, 30)).unwrap(), None);
        drop(peer);
        let peer = open(&disk.crash(&CrashChoice::None));
        assert_eq!(peer.meet(5, opening(2, 20)).unwrap(), Some(opening(3, 30)), "an older copy");
        assert_eq!(peer.meet(5, opening(3, 31)).unwrap(), Some(opening(3, 30)), "a second one");
        assert_eq!(peer.meet(6, opening(1, 1)).unwrap(), None);
        assert_eq!(peer.of(5), Some(opening(3, 30)));
    }

    #[test]
    fn what_was_retired_is_not_opened_again() {
        let disk = MemDisk::new(4);
        let opened = open(&disk);
        opened.meet(5, Incarnation { number: 1, id: 1 }).unwrap();
        opened.retire().unwrap();
        // A request that was on its way.
        opened.meet(6, Incarnation { number: 1, id: 1 }).unwrap();
        for _ in 0..2 {
            let error =
                Incarnations::open(&disk.crash(&CrashChoice::None), Path::new("/"), IDENT).unwrap_err();
            assert_eq!(error.code(), Code::IdentityRetired, "{error}");
        }
    }

    #[test]
    fn of_many_nodes_those_that_were_met_last_are_known() {
        let disk = MemDisk::new(3);
        let peer = open(&disk);
        let met = Incarnation { number: 1, id: 1 };
        (2..=100).for_each(|node| assert_eq!(peer.meet(node, met).unwrap(), None));
        // The first node of the cluster is met after many that were removed.
        assert_eq!(peer.meet(1, met).unwrap(), None);
        let peer = open(&disk);
        assert_eq!(peer.own().number, 2);
        assert_eq!((peer.of(1), peer.of(100), peer.of(2)), (Some(met), Some(met), None));
    }
}
