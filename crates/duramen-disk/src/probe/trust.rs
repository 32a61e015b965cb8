//! The verdict from the report and a burst of syncs together.
//!
//! Owns the classes of trust and the rules, as a pure function. Each layer and each disk gets a verdict, and
//! the weakest is the result. In a burst by one thread each sync needs a flush of its own: two consecutive
//! syncs cannot share one. The counter includes other programs' flushes. Too few flushes therefore prove a
//! fault, and enough of them only suggest that there is none. Many more flushes than syncs suggest nothing.

use super::device::{Device, WriteCache};
use super::medium::Medium;
use super::report::Report;
use super::weakness::{Effect, Weakness};
use super::witness::Burst;

/// No rotating disk can turn its platter faster than this for each sync.
const ROTATION_NS_MIN: u64 = 2_000_000;

/// One thread's syncs need a flush each. More than this many for two syncs are not all its own.
const FLUSHES_FOR_TWO_SYNCS_MAX: u64 = 3;

/// No disk completes a write and a flush faster than this.
const SYNC_NS_MIN: u64 = 5_000;

/// How far a returned sync can be trusted. The weakest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Something was found that loses acknowledged data in a power cut.
    Unsafe,
    /// The deciding fact cannot be seen from here, or was not measured.
    Unknown,
    /// All that can be seen is right, but a deciding fact cannot be seen.
    Plausible,
    /// Every layer is known, and every sync reached a drive of this machine as a flush. Only a power cut can
    /// show more.
    Verified,
}

/// A class of trust, and why it is no higher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The class.
    pub trust: Trust,
    /// One sentence.
    pub reason: String,
}

impl Verdict {
    fn new(trust: Trust, reason: impl Into<String>) -> Verdict {
        Verdict { trust, reason: reason.into() }
    }
}

/// Judges a report and, if syncs were measured, their burst. Without one the result is `Unsafe` or `Unknown`.
#[must_use]
pub fn judge(report: &Report, burst: Option<&Burst>) -> Verdict {
    // Of equal verdicts the first is returned: first what forbids trust, then the disks, then other
    // weaknesses.
    let (grave, slight): (Vec<_>, Vec<_>) =
        report.weaknesses.iter().partition(|weakness| weakness.effect() < Effect::Weaker);
    let mut verdicts: Vec<Verdict> = grave.into_iter().filter_map(of_weakness).collect();
    verdicts.extend(report.gaps.iter().map(|gap| Verdict::new(Trust::Unknown, gap)));
    let disks: Vec<&Device> = report.disks().collect();
    if disks.is_empty() {
        verdicts.push(Verdict::new(Trust::Unknown, "no disk was found under the file system"));
    }
    match burst {
        Some(burst) => {
            verdicts.extend(of_burst(&disks, burst));
            verdicts.extend(disks.iter().map(|disk| of_disk(disk, disks.len(), burst)));
        }
        None => verdicts.push(Verdict::new(Trust::Unknown, "no sync was measured")),
    }
    verdicts.extend(slight.into_iter().filter_map(of_weakness));
    let weakest = verdicts.into_iter().min_by_key(|verdict| verdict.trust);
    weakest.unwrap_or_else(|| Verdict::new(Trust::Unknown, "nothing is known"))
}

fn of_weakness(weakness: &Weakness) -> Option<Verdict> {
    let trust = match weakness.effect() {
        Effect::SyncIsWorthless => Trust::Unsafe,
        Effect::CannotBeSeen => Trust::Unknown,
        Effect::Weaker => Trust::Plausible,
        Effect::Costs => return None,
    };
    Some(Verdict::new(trust, &weakness.reason))
}

/// The burst's verdict on the disks together.
fn of_burst(disks: &[&Device], burst: &Burst) -> Option<Verdict> {
    if disks.is_empty() {
        return None;
    }
    if burst.latency.p50_ns < SYNC_NS_MIN {
        let reason = format!("a sync returned in {} ns, faster than any disk can", burst.latency.p50_ns);
        return Some(Verdict::new(Trust::Unsafe, reason));
    }
    let writes: Option<u64> = disks.iter().map(|disk| burst.disk(disk.number)?.writes).sum();
    let writes = writes.filter(|writes| *writes < u64::from(burst.commits))?;
    let reason = format!("{} syncs returned, and the disks saw {writes} writes", burst.commits);
    Some(Verdict::new(Trust::Unsafe, reason))
}

/// The burst's verdict on one disk.
fn of_disk(disk: &Device, disk_count: usize, burst: &Burst) -> Verdict {
    let name = &disk.name;
    match disk.write_cache.value {
        Some(WriteCache::Volatile) => {}
        Some(WriteCache::WriteThrough) => return of_write_through(disk),
        None => {
            let reason = format!("{name}: whether its cache is volatile is unknown");
            return Verdict::new(Trust::Unknown, reason);
        }
    }
    let commits = u64::from(burst.commits);
    let Some(flushes) = burst.disk(disk.number).and_then(|count| count.flushes) else {
        return Verdict::new(Trust::Unknown, format!("{name}: its flushes are not counted"));
    };
    if flushes < commits {
        return too_few(disk, flushes, disk_count, burst);
    }
    let is_physical = disk.medium.is(&Medium::Physical);
    let p50_ns = burst.latency.p50_ns;
    if is_physical && disk.rotational.is(&true) && p50_ns < ROTATION_NS_MIN {
        let reason = format!(
            "{name} rotates and says that its cache is volatile, yet a sync took {} us: the flush is ignored, or the \
             cache is not what it says",
            p50_ns / 1000
        );
        return Verdict::new(Trust::Unsafe, reason);
    }
    match disk.medium.value {
        Some(Medium::Physical) if flushes * 2 > commits * FLUSHES_FOR_TWO_SYNCS_MAX => {
            let reason = format!(
                "{name} got {flushes} flushes for {commits} syncs, so they may be others': other programs flush too; repeat \
                 when it is quiet (some file systems flush twice)"
            );
            Verdict::new(Trust::Plausible, reason)
        }
        Some(Medium::Physical) => {
            let reason =
                format!("{name} got {flushes} flushes for {commits} syncs; only a power cut can show more");
            Verdict::new(Trust::Verified, reason)
        }
        _ => unseen_host(disk),
    }
}

/// The kernel sends no flush to such a disk, so none is counted.
fn of_write_through(disk: &Device) -> Verdict {
    if !disk.medium.is(&Medium::Physical) {
        return unseen_host(disk);
    }
    let name = &disk.name;
    let reason =
        format!("{name} says that it has no volatile cache, so no flush is sent; its word is all there is");
    Verdict::new(Trust::Plausible, reason)
}

fn unseen_host(disk: &Device) -> Verdict {
    let name = &disk.name;
    let reason = match disk.medium.value {
        Some(Medium::Virtual) => format!("{name} is a virtual disk: the host's cache cannot be seen"),
        Some(Medium::Memory) => format!("{name} is memory"),
        Some(Medium::Remote) => format!("{name} is another machine's disk"),
        _ => {
            format!("{name} may be a virtual disk, whose host's cache cannot be seen: {}", disk.medium.source)
        }
    };
    Verdict::new(Trust::Plausible, reason)
}

/// Fewer flushes than syncs on a volatile cache. With several disks (paths to one, or a cache in front of
/// another) not each must get one. With FUA a write can pass the cache without a flush.
fn too_few(disk: &Device, flushes: u64, disk_count: usize, burst: &Burst) -> Verdict {
    let (name, commits) = (&disk.name, burst.commits);
    let elsewhere = disk_count > 1
        && burst.disks.iter().any(|other| other.flushes.is_some_and(|count| count >= u64::from(commits)));
    if elsewhere {
        let reason =
            format!("{name} got {flushes} flushes for {commits} syncs, and another disk got them all");
        return Verdict::new(Trust::Unknown, reason);
    }
    match disk.fua.value {
        Some(false) => Verdict::new(
            Trust::Unsafe,
            format!(
                "{name} has a volatile cache and got {flushes} flushes for {commits} syncs: the sync is dropped on its way to the disk"
            ),
        ),
        Some(true) => Verdict::new(
            Trust::Unknown,
            format!(
                "{name} got {flushes} flushes for {commits} syncs; writes with FUA, which are not counted, may stand for them"
            ),
        ),
        None => Verdict::new(
            Trust::Unknown,
            format!("{name} got {flushes} flushes for {commits} syncs, and whether it has FUA is unknown"),
        ),
    }
}
