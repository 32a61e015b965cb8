//! The state of a node for a new one, piece by piece: held at the node that gives it, asked for by number.
//!
//! A piece that was lost on the way is asked for once more. What is not asked for any longer is let go.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use duramen::wire::{Features, ReducerSpec};
use duramen_disk::Disk;
use duramen_engine::{
    CommitSeq, CopyPart, CopySource, Engine, EntryId, Error, LogEnd, NodeHead, RaftLog, Result, TreeId,
};
use openraft::type_config::TypeConfigExt;
use prost::Message as _;

use crate::runtime::Runtime;
use crate::types::Types;
use crate::wire::{Piece, SeedHead, TreeBegins, WireId, WireReducer, WireRow};

/// A state of which no piece was asked for in this time is let go.
const HELD_FOR: Duration = Duration::from_secs(60);
/// States that are held at once. Each holds the space of what was changed since.
const HELD_MAX: usize = 4;

/// The states that are being given.
#[derive(Debug)]
pub(crate) struct Seeds {
    engine: Engine,
    log: Weak<RaftLog>,
    disk: Arc<dyn Disk>,
    /// Counts them, from a random number on: none is taken for one of an earlier process.
    last: AtomicU64,
    held: Mutex<HashMap<u64, Arc<Held>>>,
    /// Members that were told to copy a state, by their addresses.
    told: Mutex<HashMap<String, Told>>,
}

/// A member was told to copy the state after an entry, or a later one.
#[derive(Debug, Clone, Copy)]
struct Told {
    seq: u64,
    at_ns: u64,
}

/// A state that is given.
#[derive(Debug)]
struct Held {
    /// The address of the node that asks.
    of: String,
    /// The commit of the state.
    seq: u64,
    /// When it last asked.
    asked_ns: AtomicU64,
    /// Locked while the disk is read.
    giving: Mutex<Giving>,
}

/// How far a state is given.
#[derive(Debug)]
struct Giving {
    /// `None` once all of it was given.
    source: Option<CopySource>,
    next: u64,
    /// The piece before the next one.
    given: Vec<u8>,
}

impl Seeds {
    pub(crate) fn new(engine: Engine, log: Weak<RaftLog>, disk: Arc<dyn Disk>, opening: u64) -> Seeds {
        Seeds {
            engine,
            log,
            disk,
            last: AtomicU64::new(opening),
            held: Mutex::default(),
            told: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The member at an address is about to copy the state after an entry, or a later one, or does so.
    /// Nothing is noted of one that was told before and does not.
    pub(crate) fn tell(&self, address: &str, seq: u64, is_new: bool) {
        if is_new || self.held().values().any(|held| held.of == address) {
            self.told().insert(address.to_owned(), Told { seq, at_ns: self.disk.monotonic_ns() });
        }
    }

    /// About how many bytes the state takes.
    pub(crate) fn state_bytes(&self) -> u64 {
        let stats = self.engine.stats();
        stats.space.used_blocks * stats.block_bytes
    }

    /// Lets go what was not asked for in a while.
    pub(crate) fn let_go(&self) {
        let now_ns = self.disk.monotonic_ns();
        let is_new = |at_ns: u64| Duration::from_nanos(now_ns.saturating_sub(at_ns)) < HELD_FOR;
        self.keep(|held| is_new(held.asked_ns.load(Ordering::Relaxed)));
        let copying: HashSet<String> = self.held().values().map(|held| held.of.clone()).collect();
        self.told().retain(|address, told| is_new(told.at_ns) || copying.contains(address));
    }

    fn keep(&self, is_wanted: impl Fn(&Held) -> bool) {
        self.held().retain(|_, held| is_wanted(held));
    }

    /// Lets go of what was given to nodes whose logs have its commit now, as this call says of an address.
    pub(crate) fn let_go_of_taken(&self, has: impl Fn(&str) -> Option<u64>) {
        self.keep(|held| has(&held.of).is_none_or(|has| has < held.seq));
        self.told().retain(|address, told| has(address).is_none_or(|has| has < told.seq));
    }

    /// The entry behind which the nodes that copy a state now, or are about to, need every one.
    pub(crate) fn go_on_after(&self) -> Option<u64> {
        self.let_go();
        let told = self.told().values().map(|told| told.seq).min();
        let held = self.held().values().map(|held| held.seq).min();
        held.into_iter().chain(told).min()
    }

    /// Holds the newest state for the node at an address. Returns what it is.
    ///
    /// # Errors
    /// Those of a read; a text if too many are held.
    pub(crate) fn begin(&self, of: String) -> std::result::Result<SeedHead, String> {
        self.let_go();
        self.keep(|held| held.of != of);
        if self.held().len() >= HELD_MAX {
            return Err(format!("this node gives its state to {HELD_MAX} others already"));
        }
        let log = self.log.upgrade().ok_or("the node has stopped")?;
        let (source, head) = self.engine.node_source(&log).map_err(|error| error.to_string())?;
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (seq, bytes) = (head.end.id.seq.0, self.state_bytes());
        let giving = Mutex::new(Giving { source: Some(source), next: 0, given: Vec::new() });
        let held = Held { of, seq, asked_ns: AtomicU64::new(self.disk.monotonic_ns()), giving };
        self.held().insert(number, Arc::new(held));
        Ok(SeedHead {
            seed: number,
            last: WireId { term: head.end.id.term, seq },
            chain: head.end.chain,
            time_ns: head.end.time_ns,
            next_tree: head.next_tree.0,
            entries: head.entries,
            bytes,
        })
    }

    /// The next piece of a state, or the one before it once more.
    ///
    /// # Errors
    /// Those of a read; a text if that state is not held, or the piece is another one.
    pub(crate) fn piece(&self, seed: u64, number: u64) -> std::result::Result<Piece, String> {
        let held = self.held().get(&seed).cloned();
        let held = held.ok_or("this node does not hold that state any more: it has to be asked for anew")?;
        held.asked_ns.store(self.disk.monotonic_ns(), Ordering::Relaxed);
        let mut giving = held.giving.lock().unwrap_or_else(PoisonError::into_inner);
        if number == giving.next {
            let piece = giving.read().map_err(|error| error.to_string())?;
            giving.given = piece.encode_to_vec();
            giving.next += 1;
        } else if number.checked_add(1) != Some(giving.next) {
            return Err(format!("piece {number} is asked for, and the next one is {}", giving.next));
        }
        Piece::decode(&giving.given[..]).map_err(|error| error.to_string())
    }
}

impl Giving {
    fn read(&mut self) -> Result<Piece> {
        // Values as they are: the copy is a node, and no backup.
        let Some(source) = &mut self.source else {
            return Err(Error::invalid("all pieces of the state were given"));
        };
        let part = source.next(&|_, value| value)?;
        let tree = source.tree().map_or(0, |tree| tree.0);
        Ok(match part {
            None => {
                let digest = source.digest().to_be_bytes().to_vec();
                // Its space is not held any longer.
                self.source = None;
                Piece { digest, ..Piece::default() }
            }
            Some(CopyPart::Entries(rows)) => {
                let rows = rows.into_iter().map(|(key, value)| WireRow { key, value });
                Piece { tree, rows: rows.collect(), ..Piece::default() }
            }
            Some(CopyPart::Tree { name, reducer, features }) => {
                let reducer = reducer.map(|ReducerSpec { name, version, params }| WireReducer {
                    name,
                    version,
                    params,
                });
                let begins = Some(TreeBegins { name, reducer, features: features.bits() });
                Piece { tree, begins, ..Piece::default() }
            }
        })
    }
}

/// Lets go what no node asks for any longer, as long as this node runs.
pub(crate) async fn let_go<R: Runtime>(seeds: Weak<Seeds>) {
    loop {
        Types::<R>::sleep(HELD_FOR / 4).await;
        let Some(seeds) = seeds.upgrade() else { return };
        seeds.let_go();
    }
}

/// What the new node makes of the pieces.
pub(crate) enum Part {
    /// A part of a tree.
    Of(TreeId, CopyPart),
    /// The end, with the digest of all parts.
    End(u128),
}

/// The part in a piece.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn part_of(piece: Piece) -> std::result::Result<Part, String> {
    let Piece { tree, begins, rows, digest } = piece;
    if let Ok(digest) = <[u8; 16]>::try_from(&digest[..]) {
        return Ok(Part::End(u128::from_be_bytes(digest)));
    }
    let part = match begins {
        Some(TreeBegins { name, reducer, features }) => {
            let of_later = || format!("the tree {name:?} has a form that this release does not know");
            let features = Features::from_bits(features).ok_or_else(of_later)?;
            let reducer =
                reducer.map(|WireReducer { name, version, params }| ReducerSpec { name, version, params });
            CopyPart::Tree { name, reducer, features }
        }
        None => CopyPart::Entries(rows.into_iter().map(|WireRow { key, value }| (key, value)).collect()),
    };
    Ok(Part::Of(TreeId(tree), part))
}

pub(crate) fn head_of(head: &SeedHead) -> NodeHead {
    let id = EntryId { term: head.last.term, seq: CommitSeq(head.last.seq) };
    NodeHead {
        end: LogEnd { id, chain: head.chain, time_ns: head.time_ns },
        next_tree: TreeId(head.next_tree),
        entries: head.entries,
    }
}
