//! The life of one node: a scripted consensus decides, delays, refuses, cuts, changes terms and starts anew.
//!
//! The script plays a cluster as far as this node can see it. What is decided never changes; what is not may
//! be cut, taken over by another leader, or come to stand where it was not ordered.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use duramen_disk::MemDisk;
use duramen_disk::memory::Trace;
use duramen_engine::{
    Background, CommitSeq, Durability, Engine, Entry, EntryId, EntryKind, Fate, Founding, Geometry, Hooks,
    Ident, LogEnd, OpenReplica, Options, Proposer, Receipt, Transaction, TreeId,
};

use super::transactions::{embedded, write};
use super::truth::{Effect, MEMBERS, Truth, Write, foreign};
use super::{Counts, text};
use crate::contents::Contents;
use crate::search::random::{Random, joined};

const RUNS: &str = "the process runs, except while it is started anew";

/// Where the database lies.
pub(super) const PATH: &str = "/db";

const EVENT_COUNT: usize = 150;

/// A value of so many bytes has extents of its own.
const BIG_VALUE_BYTES: usize = 300;

/// What was known at an operation of the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at_op: usize,
    /// Entries that were decided.
    pub(super) decided: u64,
    /// Decided entries that this node has acknowledged as synced.
    pub(super) kept: u64,
}

/// A life, and what it knew when.
pub(super) struct Lived {
    pub(super) trace: Trace,
    pub(super) truth: Truth,
    pub(super) moments: Vec<Moment>,
    pub(super) term: u64,
    pub(super) counts: Counts,
}

/// The proposals that the script has not looked at.
#[derive(Debug, Default)]
pub(super) struct Proposals(Mutex<VecDeque<(u64, Vec<Entry>)>>);

impl Proposer for Proposals {
    fn propose(&self, term: u64, entries: Vec<Entry>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((term, entries));
    }
}

impl Proposals {
    pub(super) fn take(&self) -> Option<(u64, Vec<Entry>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// A commit whose caller waits.
struct Waiting {
    receipt: Receipt,
    effect: Effect,
    /// The entry that it was proposed as.
    proposed: Option<Entry>,
    told: Option<bool>,
    /// Its leader lost the leadership before it was told.
    has_lost: bool,
}

pub(super) struct Life {
    pub(super) disk: MemDisk,
    pub(super) random: Random,
    /// `None` while the process is down.
    running: Option<OpenReplica>,
    pub(super) proposals: Arc<Proposals>,
    pub(super) truth: Truth,
    /// Raft's log of this node: what follows the decided entries, or is a part of them.
    log: Vec<Entry>,
    ends: Vec<LogEnd>,
    pub(super) term: u64,
    leads: bool,
    waiting: Vec<Waiting>,
    /// Told that they never happened.
    never: Vec<Entry>,
    held: Option<(Transaction, Effect)>,
    moments: Vec<Moment>,
    pub(super) counts: Counts,
}

pub(super) fn options() -> Options {
    Options {
        background: Background::Stepped,
        memory_bytes: 1 << 20,
        geometry: Geometry {
            block_bytes: 512,
            leaf_bytes_max: 512,
            inner_bytes_max: 512,
            big_value_bytes: BIG_VALUE_BYTES,
            big_value_extent_bytes: 1024,
            segment_bytes_min: 4096,
            segment_bytes_max: 16384,
        },
        ..Options::default()
    }
}

/// Opens the node on a disk.
pub(super) fn open(disk: &MemDisk, proposals: &Arc<Proposals>) -> Result<OpenReplica, String> {
    let proposer: Arc<dyn Proposer> = Arc::clone(proposals) as Arc<dyn Proposer>;
    let (disk, hooks) = (Arc::new(disk.clone()), Hooks::default());
    let founding = Founding { ident: Ident { cluster: 1, node: 1 }, members: MEMBERS, time_ns: 0 };
    Engine::open_replica(disk, Path::new(PATH), options(), hooks, Some(founding), proposer).map_err(text)
}

/// Runs the life of a seed.
///
/// # Errors
/// What is wrong without any cut.
pub(super) fn live(seed: u64) -> Result<Lived, String> {
    let disk = MemDisk::new(seed);
    let mut random = Random::new(joined(seed, 40));
    let contents = embedded(&disk, &mut random)?;
    disk.record();
    let proposals = Arc::new(Proposals::default());
    let node = open(&disk, &proposals)?;
    let begins = node.replica.end().map_err(text)?;
    let truth = Truth::new(begins, contents);
    let mut life = Life {
        disk,
        random,
        running: Some(node),
        proposals,
        truth,
        log: Vec::new(),
        ends: Vec::new(),
        term: 0,
        leads: false,
        waiting: Vec::new(),
        never: Vec::new(),
        held: None,
        moments: Vec::new(),
        counts: Counts::default(),
    };
    life.moment();
    life.lead()?;
    for _ in 0..EVENT_COUNT {
        life.event()?;
        life.look()?;
    }
    life.judge()?;
    let Life { disk, running, truth, held, moments, term, counts, .. } = life;
    drop(held);
    if let Some(OpenReplica { engine, .. }) = running {
        engine.abandon();
    }
    Ok(Lived { trace: disk.stop_recording(), truth, moments, term, counts })
}

impl Life {
    fn node(&self) -> &OpenReplica {
        self.running.as_ref().expect(RUNS)
    }

    fn event(&mut self) -> Result<(), String> {
        if !self.leads && self.random.chance(1, 4) {
            self.lead()?;
        }
        match self.random.below(60) {
            0..=14 => self.transact()?,
            15 | 16 => self.hold()?,
            17..=20 => self.commit_held()?,
            21..=30 => self.step()?,
            31..=40 => self.deliver()?,
            41..=50 => self.decide()?,
            51 => self.refuse()?,
            52 => self.lose()?,
            53 => self.lead()?,
            54 => self.restart()?,
            55 | 56 => self.checkpoint()?,
            _ => self.disk.advance_clock(self.random.below(3) as u64 * 70_000_000),
        }
        self.moment();
        Ok(())
    }

    fn is_open(&self) -> Result<bool, String> {
        self.node().replica.is_open().map_err(text)
    }

    /// A transaction, if the order is open: in a simulation no call may wait.
    fn transact(&mut self) -> Result<(), String> {
        if !self.is_open()? {
            return Ok(());
        }
        let (mut effect, random) = (Vec::new(), &mut self.random);
        let OpenReplica { engine, replica, .. } = self.running.as_ref().expect(RUNS);
        let applied = replica.end().map_err(text)?.id.seq;
        let body = |tx: &mut Transaction| {
            write(tx, random, &mut effect)?;
            Ok(tx.base_seq())
        };
        let done = engine.transact_and_wait_later(Durability::Disk, body);
        let (base, receipt) = done.map_err(text)?;
        if base > applied {
            return Err(format!("a transaction reads commit {base}, and {applied} is the last decided one"));
        }
        if !effect.is_empty() {
            self.waiting.push(Waiting { receipt, effect, proposed: None, told: None, has_lost: false });
        }
        Ok(())
    }

    /// Begins a transaction that commits later, perhaps under another leader.
    fn hold(&mut self) -> Result<(), String> {
        let mut tx = self.node().engine.begin().map_err(text)?;
        let mut effect = Vec::new();
        // Half of them read nothing.
        if self.random.chance(1, 2) {
            write(&mut tx, &mut self.random, &mut effect).map_err(text)?;
        } else if let Some(id) = self.tree_of("a")? {
            let (key, value) = (vec![b'h', u8::try_from(self.random.below(4)).expect("small")], vec![9]);
            tx.put(id, &key, &value).map_err(text)?;
            effect.push(Write::Put { tree: "a".to_owned(), key, value });
        }
        let (base, applied) = (tx.base_seq(), self.node().replica.end().map_err(text)?.id.seq);
        if base > applied {
            return Err(format!("a transaction reads commit {base}, and {applied} is the last decided one"));
        }
        self.held = Some((tx, effect));
        self.counts.held_from = Some(self.term);
        Ok(())
    }

    fn tree_of(&self, name: &str) -> Result<Option<TreeId>, String> {
        self.node().engine.snapshot().and_then(|snapshot| snapshot.tree(name)).map_err(text)
    }

    fn commit_held(&mut self) -> Result<(), String> {
        let open = self.is_open()?;
        let Some((tx, effect)) = self.held.take().filter(|(_, effect)| open && !effect.is_empty()) else {
            return Ok(());
        };
        match tx.commit_and_wait_later(Durability::Disk) {
            Ok(_) if self.counts.held_from != Some(self.term) => {
                Err(format!("a transaction of term {:?} was ordered in {}", self.counts.held_from, self.term))
            }
            Ok(receipt) => {
                self.waiting.push(Waiting { receipt, effect, proposed: None, told: None, has_lost: false });
                Ok(())
            }
            Err(error) if error.is_retryable() => {
                self.counts.conflicts += 1;
                Ok(())
            }
            Err(error) => Err(text(error)),
        }
    }

    /// The background of the engine: it proposes the forming group.
    fn step(&mut self) -> Result<(), String> {
        self.node().engine.step().map_err(text)
    }

    /// The end of this node's log.
    fn end(&self) -> LogEnd {
        self.ends.last().copied().unwrap_or(self.truth.begins)
    }

    /// Appends to this node's log, and syncs it.
    fn append(&mut self, entries: Vec<Entry>) -> Result<(), String> {
        for entry in &entries {
            let end = self.end().after(entry);
            self.ends.push(end);
            self.log.push(entry.clone());
        }
        self.node().log.append(entries, done()).map_err(text)?;
        if self.random.chance(3, 4) {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        self.node().log.step().map_err(text)?;
        self.moment();
        Ok(())
    }

    /// Takes a proposal: where it was ordered, or behind an entry of consensus.
    fn deliver(&mut self) -> Result<(), String> {
        let Some((term, entries)) = self.take_proposal() else { return Ok(()) };
        if term != self.term {
            return Ok(());
        }
        if self.random.chance(1, 8) {
            self.counts.stale += 1;
            // The order is given up when this is applied.
            self.leads = false;
            let members = foreign(&self.end(), term, EntryKind::Members, Arc::from(term.to_be_bytes()));
            self.append(vec![members])?;
        }
        let first = self.end().id.seq.0 + 1;
        let placed = |(seq, entry): (u64, Entry)| {
            let time_ns = entry.time_ns.max(self.end().time_ns);
            Entry { id: EntryId { term, seq: CommitSeq(seq) }, time_ns, ..entry }
        };
        let placed: Vec<Entry> = (first..).zip(entries).map(placed).collect();
        self.append(placed)
    }

    /// The next proposal, with its entries noted for those that wait.
    fn take_proposal(&mut self) -> Option<(u64, Vec<Entry>)> {
        let (term, entries) = self.proposals.take()?;
        for entry in &entries {
            let is_of = |waiting: &&mut Waiting| {
                waiting.proposed.is_none() && waiting.receipt.seq() == entry.ordered.seq
            };
            // The newest: an older one of that sequence was given up before it was proposed.
            if let Some(waiting) = self.waiting.iter_mut().rev().find(is_of) {
                waiting.proposed = Some(entry.clone());
                self.truth.effects.insert(entry.bytes.to_vec(), waiting.effect.clone());
            }
        }
        Some((term, entries))
    }

    fn refuse(&mut self) -> Result<(), String> {
        if let Some((_, entries)) = self.take_proposal() {
            self.counts.refused += 1;
            // A refusal that comes late is of no group that is in flight.
            let mut late = entries[0].ordered;
            late.lineage += 1;
            self.node().replica.refused(&late).map_err(text)?;
            self.node().replica.refused(&entries[0].ordered).map_err(text)?;
            self.leads = false;
            // The same leader gives the same sequences again, in the same term.
            let is_applied = self.node().replica.end().map_err(text)? == self.end();
            if is_applied && self.random.chance(2, 3) {
                self.node().replica.lead(self.term, self.end()).map_err(text)?;
                self.leads = true;
            }
        }
        Ok(())
    }

    /// Decides on some of what is synced, and applies some of what is decided: half a group, too.
    fn decide(&mut self) -> Result<(), String> {
        let synced = self.node().log.synced().0;
        let more = synced - self.truth.last().min(synced);
        let through = self.truth.last() + self.random.below(usize::try_from(more).expect("few") + 1) as u64;
        self.decide_through(through)?;
        let applied = self.node().replica.end().map_err(text)?.id.seq.0;
        let left = self.truth.last().min(self.node().log.synced().0) - applied;
        let count = self.random.below(usize::try_from(left).expect("few") + 1) as u64;
        self.apply(applied + count)
    }

    fn decide_through(&mut self, through: u64) -> Result<(), String> {
        while self.truth.last() < through {
            let index = usize::try_from(self.truth.last() - self.truth.begins.id.seq.0).expect("few entries");
            self.truth.decide(self.log[index].clone());
        }
        self.node().log.decide(CommitSeq(through)).map_err(text)?;
        self.moment();
        Ok(())
    }

    /// Applies through an entry, in one call or two.
    fn apply(&mut self, through: u64) -> Result<(), String> {
        let mut applied = self.node().replica.end().map_err(text)?.id.seq.0;
        while applied < through {
            let count = 1 + self.random.below(usize::try_from(through - applied).expect("few")) as u64;
            let range = CommitSeq(applied + 1)..CommitSeq(applied + count + 1);
            let entries = self.node().log.entries(range, 4000).map_err(text)?;
            self.node().replica.apply(&entries).map_err(text)?;
            applied += entries.len() as u64;
        }
        Ok(())
    }

    /// Another node leads: it has what is decided, and perhaps some of the rest.
    fn lose(&mut self) -> Result<(), String> {
        self.counts.terms += 1;
        self.leads = false;
        self.waiting.iter_mut().for_each(|waiting| waiting.has_lost = true);
        while self.take_proposal().is_some() {}
        self.node().replica.follow().map_err(text)?;
        self.term += 1 + self.random.below(2) as u64;
        let decided = self.truth.last();
        let last = self.end().id.seq.0;
        let kept = last - self.random.below(usize::try_from(last - decided).expect("few") + 1) as u64;
        if kept < last {
            self.counts.cut += 1;
            let kept_count = usize::try_from(kept - self.truth.begins.id.seq.0).expect("few entries");
            let cut = self.log[kept_count].clone();
            self.log.truncate(kept_count);
            self.ends.truncate(kept_count);
            self.node().log.cut_after(CommitSeq(kept), done()).map_err(text)?;
            if self.random.chance(1, 3) {
                self.take_for_another(&cut)?;
            }
        }
        let blank = Entry::blank(&self.end(), self.term);
        self.append(vec![blank])?;
        for _ in 0..self.random.below(3) {
            let entry = self.entry_of_another();
            self.append(vec![entry])?;
        }
        Ok(())
    }

    /// A transaction of the other leader: the same writes as one of this node had, or a later time.
    fn entry_of_another(&mut self) -> Entry {
        let plain = |(_, effect): &(&Vec<u8>, &Effect)| {
            let has_tree = |write: &Write| matches!(write, Write::Create { .. } | Write::Drop { .. });
            !effect.iter().any(has_tree)
        };
        let mut contents: Vec<&Vec<u8>> =
            self.truth.effects.iter().filter(plain).map(|(bytes, _)| bytes).collect();
        contents.sort_unstable();
        if contents.is_empty() || self.random.chance(1, 4) {
            return foreign(&self.end(), self.term, EntryKind::Clock, Arc::from(&[][..]));
        }
        let bytes: Arc<[u8]> = Arc::from(&self.random.pick(&contents)[..]);
        let mut entry = foreign(&self.end(), self.term, EntryKind::Changes, bytes);
        // It may not stand where its leader ordered it: it changes nothing then.
        match self.random.below(6) {
            0 => entry.ordered.chain ^= 1,
            1 => entry.ordered.seq = CommitSeq(entry.id.seq.0 - 1),
            2 => entry.ordered.term -= 1,
            _ => return entry,
        }
        self.counts.stale += 1;
        entry
    }

    /// At the place of an entry that was proposed here stands one of the same term and content, of an order
    /// that was given up: it must not be taken for the first.
    fn take_for_another(&mut self, cut: &Entry) -> Result<(), String> {
        if cut.kind != EntryKind::Changes || cut.id.seq != self.end().id.seq.next() {
            return Ok(());
        }
        let mut twin = cut.clone();
        twin.ordered.lineage += 1000;
        self.counts.twins += 1;
        self.append(vec![twin])
    }

    /// This node leads in a new term: its blank entry is decided and applied, and then the order opens.
    pub(super) fn lead(&mut self) -> Result<(), String> {
        while self.take_proposal().is_some() {}
        self.node().replica.follow().map_err(text)?;
        self.term += 1;
        let blank = Entry::blank(&self.end(), self.term);
        self.append(vec![blank])?;
        self.sync()?;
        let last = self.end().id.seq.0;
        self.decide_through(last)?;
        self.apply(last)?;
        self.node().replica.lead(self.term, self.end()).map_err(text)?;
        self.leads = true;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.node().engine.checkpoint().map_err(text)?;
        let through = self.node().replica.checkpointed().map_err(text)?;
        let through = through.min(self.node().log.synced()).min(self.node().log.decided());
        if self.random.chance(1, 2) && through > self.node().log.purged().id.seq {
            self.counts.purged += 1;
            self.node().log.purge(through, done()).map_err(text)?;
            self.sync()?;
        }
        Ok(())
    }

    /// The process ends, cleanly or by a kill, and starts anew. Its waiting calls are gone.
    fn restart(&mut self) -> Result<(), String> {
        self.counts.restarts += 1;
        self.held = None;
        self.waiting.clear();
        while self.proposals.take().is_some() {}
        let is_clean = self.random.chance(1, 2);
        let synced = self.node().log.synced().0;
        let OpenReplica { engine, replica, log, .. } = self.running.take().expect(RUNS);
        drop(replica);
        if is_clean {
            log.close().map_err(text)?;
            engine.close().map_err(text)?;
            drop((engine, log));
        } else {
            drop(log);
            engine.abandon();
        }
        self.running = Some(open(&self.disk, &self.proposals)?);
        // What was not written is gone.
        let last = self.node().found.last.seq.0;
        if last < synced {
            return Err(format!("the log ends with {last} after a restart, {synced} was synced"));
        }
        self.read_log(last)?;
        let applied = self.node().replica.end().map_err(text)?.id.seq.0;
        if applied > self.truth.last() {
            return Err(format!("the database is at {applied}, and {} is decided", self.truth.last()));
        }
        self.moment();
        self.lead()
    }

    /// What is on disk: what was asked for and not carried out is gone, a cut, too.
    fn read_log(&mut self, last: u64) -> Result<(), String> {
        let (begins, decided) = (self.truth.begins, self.truth.last());
        self.log = self.truth.entries(begins.id.seq.0, decided.min(last)).to_vec();
        let mut next = self.log.last().map_or(begins.id.seq, |entry| entry.id.seq).next();
        while next.0 <= last {
            let found = self.node().log.entries(next..CommitSeq(last + 1), 4000).map_err(text)?;
            self.log.extend(found);
            next = self.log.last().map_or(next, |entry| entry.id.seq.next());
        }
        self.ends.clear();
        for entry in self.log.clone() {
            self.ends.push(self.end().after(&entry));
        }
        let (found, wanted) = (self.node().log.end(), self.end());
        if found == wanted { Ok(()) } else { Err(format!("the log ends at {found:?}, want {wanted:?}")) }
    }

    fn moment(&mut self) {
        let (decided, synced) = (self.truth.last(), self.node().log.synced().0);
        self.moments.push(Moment { at_op: self.disk.recorded_len(), decided, kept: decided.min(synced) });
    }

    /// What those that wait are told is so, and they are told as soon as it is known here.
    fn look(&mut self) -> Result<(), String> {
        let applied = self.node().replica.end().map_err(text)?.id.seq.0;
        let node = self.running.as_ref().expect(RUNS);
        for waiting in &mut self.waiting {
            let fate = node.replica.fate(&waiting.receipt).map_err(text)?;
            let happened = waiting.proposed.as_ref().is_some_and(|entry| self.truth.happened(entry));
            let is_applied = happened && waiting.receipt.seq().0 <= applied;
            let seq = waiting.receipt.seq();
            match &fate {
                Fate::Happened if !is_applied => return Err(format!("{seq} is told to have happened")),
                Fate::Never(why) if happened => return Err(format!("{seq} is told never to happen: {why}")),
                Fate::Never(_) | Fate::Open if is_applied => {
                    return Err(format!("{seq} is applied, and not told: {fate:?}"));
                }
                _ => {}
            }
            let told = match fate {
                Fate::Happened => Some(true),
                Fate::Never(_) => Some(false),
                Fate::Open => None,
            };
            if waiting.told.is_some() && waiting.told != told {
                return Err(format!("{seq} was told {:?}, and now {told:?}", waiting.told));
            }
            if told.is_some() && waiting.told.is_none() {
                self.counts.happened += u64::from(told == Some(true));
                self.counts.happened_later += u64::from(told == Some(true) && waiting.has_lost);
                self.counts.never += u64::from(told == Some(false));
                if told == Some(false) {
                    self.never.extend(waiting.proposed.clone());
                }
            }
            waiting.told = told;
        }
        self.counts.open += self.waiting.iter().filter(|waiting| waiting.told.is_none()).count() as u64;
        compare(self.node(), self.truth.contents(applied))
    }

    /// At the end: what was told never to happen has not.
    fn judge(&mut self) -> Result<(), String> {
        match self.never.iter().find(|entry| self.truth.happened(entry)) {
            Some(entry) => Err(format!("{} was told never to happen, and is decided", entry.id.seq)),
            None => Ok(()),
        }
    }
}

/// Compares the database with what it should hold.
pub(super) fn compare(node: &OpenReplica, wanted: &Contents) -> Result<(), String> {
    let snapshot = node.engine.snapshot().map_err(text)?;
    let seq = snapshot.seq();
    let found = wanted.compare(&snapshot);
    match (found.wrong, found.errors.first()) {
        (None, None) => Ok(()),
        (Some(wrong), _) => Err(format!("after commit {seq}: {wrong}")),
        (None, Some(error)) => Err(format!("after commit {seq}: {error}")),
    }
}

pub(super) fn done() -> duramen_engine::Done {
    Box::new(|_| ())
}
