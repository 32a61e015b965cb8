//! Whole clusters in one thread, under one seed: engines, logs, consensus, network, power and clocks.
//!
//! Five nodes, of which three or five vote: each is a database on a simulated disk, with a Raft log, and
//! openraft over both. Clients write and read through any of them. Time is virtual, and jumps to the next
//! thing that is due. Requests are delayed, lost, sent twice, or arrive when their sender waits no more;
//! links are cut, in one direction, too; nodes stall, are killed, and lose power, one or all at once, also at
//! a sync; all campaign at once; voters change. Interleavings come from drawn delays: of each request, of
//! each step of a log, of an engine, and of each call into it.
//!
//! While it lives, nodes have applied the same entries, one leads a term, and none ends of itself. At the end
//! all is healed, and judged (`judge`), and once more after a power cut of all: every answer is that of one
//! order of all transactions, that of their commit sequences, and that order agrees with time as clients saw
//! it; what was acknowledged is in it, what was refused is not; all nodes have equal contents.
//!
//! Not in it: disks that fail, fill up or lie (duramen-sim's other searches have them, for one node), nodes
//! that join or lag behind a purged log, clocks by which something expires.
//!
//! Reading order: `world` (the state of a run), `machine`, `network`, `client`, `chaos`, `judge`.

mod chaos;
mod client;
mod history;
mod judge;
mod machine;
mod network;
mod run;
mod world;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::boundaries::guarded;
use crate::kind_counts::KindCounts;
use crate::lives;
use run::{Ran, run};
use world::Tell;

/// What may be met in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    Acknowledged,
    Unknown,
    Never,
    ToldAgain,
    Conflict,
    Read,
    ReadAtFollower,
    ReadOfAge,
    Term,
    Kill,
    PowerCut,
    PowerCutOfAll,
    PowerCutAfterAnswer,
    PowerCutAtSync,
    Pause,
    CutLink,
    LostRequest,
    Transfer,
    Voters,
    Storm,
    Purge,
    FullDisk,
    RefusedForRoom,
    Copied,
}

const MET: [(Met, &str); 24] = [
    (Met::Acknowledged, "an acknowledged write"),
    (Met::Unknown, "a write of unknown outcome"),
    (Met::Never, "a write that was told never to happen"),
    (Met::ToldAgain, "an outcome that is told again"),
    (Met::Conflict, "a conflict"),
    (Met::Read, "a linearizable read"),
    (Met::ReadAtFollower, "a linearizable read at a follower"),
    (Met::ReadOfAge, "a read that may see a state of some age"),
    (Met::Term, "a change of leader"),
    (Met::Kill, "a killed node"),
    (Met::PowerCut, "a power cut of one node"),
    (Met::PowerCutOfAll, "a power cut of all nodes"),
    (Met::PowerCutAfterAnswer, "a power cut after an answer"),
    (Met::PowerCutAtSync, "a power cut at a sync of a log or a start"),
    (Met::Pause, "a paused node"),
    (Met::CutLink, "a cut link"),
    (Met::LostRequest, "a lost request"),
    (Met::Transfer, "a transfer of the leadership"),
    (Met::Voters, "a change of the voters"),
    (Met::Storm, "an election that all stand in"),
    (Met::Purge, "a log that lets go of entries"),
    (Met::FullDisk, "a full disk"),
    (Met::RefusedForRoom, "a write refused since a disk is full"),
    (Met::Copied, "a node that has copied the state"),
];

/// How often each was met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts([u64; MET.len()]);

impl Counts {
    fn note(&mut self, met: Met) {
        self.0[met as usize] += 1;
    }

    fn kinds(&self) -> impl Iterator<Item = (u64, &'static str)> {
        MET.iter().map(|(met, name)| (self.0[*met as usize], *name))
    }

    fn add(&mut self, more: &Counts) {
        self.0.iter_mut().zip(more.0).for_each(|(sum, more)| *sum += more);
    }
}

/// A run that broke a promise, and what.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cluster of seed {}: {}", self.seed, self.what)?;
        write!(f, "again: duramen-sim cluster --seed {} --seeds 1", self.seed)
    }
}

/// Figures of many runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs.
    pub seeds: u64,
    /// The seed to begin with next.
    pub next_seed: u64,
    counts: Counts,
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    /// What the runs must have met.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        counts.extend(self.counts.kinds());
        counts
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seeds, next_seed, counts, elapsed } = self;
        let acknowledged = counts.0[Met::Acknowledged as usize];
        writeln!(f, "{seeds} clusters, {acknowledged} acknowledged writes, {:.1} s", elapsed.as_secs_f64())?;
        writeln!(f, "figures: seeds={seeds} acknowledged={acknowledged} next_seed={next_seed}")?;
        write!(f, "{}", self.counts())
    }
}

/// Runs the cluster of one seed. Returns the hash of everything that happened, too: it is that of the seed.
///
/// # Errors
/// What is wrong, a panic included.
pub fn run_seed(seed: u64) -> Result<(Report, u64), Failure> {
    let Ran { counts, trace } = ran(seed, None)?;
    Ok((Report { seeds: 1, counts, ..Report::default() }, trace))
}

/// Runs the cluster of one seed, and tells everything that happens.
///
/// # Errors
/// What is wrong, a panic included.
pub fn run_traced(seed: u64, tell: impl FnMut(&str) + Send + 'static) -> Result<(), Failure> {
    ran(seed, Some(Box::new(tell))).map(drop)
}

fn ran(seed: u64, tell: Tell) -> Result<Ran, Failure> {
    guarded(|| run(seed, tell)).map_err(|what| Failure { seed, what })
}

/// Runs the clusters of these seeds on several threads, until all are done or the time is over.
///
/// # Errors
/// The first failure.
pub fn search(seeds: Range<u64>, thread_count: usize, time: Option<Duration>) -> Result<Report, Failure> {
    let add = |sum: &mut Report, more: &Report| {
        sum.seeds += more.seeds;
        sum.counts.add(&more.counts);
    };
    let found =
        lives::search(&seeds, thread_count, time, |seed, _| run_seed(seed).map(|(report, _)| report), add)?;
    Ok(Report { elapsed: found.elapsed, next_seed: found.next_seed, ..found.report })
}
