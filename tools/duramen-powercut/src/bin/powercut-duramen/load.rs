//! The load that is cut: writers at all levels, a consumer, and a steward. The steward expires, collects,
//! builds, migrates, backs up, and opens the database again as the next release.
//!
//! Owns the threads, and the time of acknowledgements: a line is printed once the call that it is about has
//! returned.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use clap::{Args, ValueEnum};
use duramen::{Db, Durability};
use duramen_disk::memory::{Random, mixed};

use crate::acknowledged::{Counts, commit_line, open_line};
use crate::judge::{self, States};
use crate::mirror;
use crate::opening::{LIFE, Place, RELEASE, Sizes, TERMS, release, terms};
use crate::plan::{State, Terms};
use crate::releases::Release;
use crate::steward::Steward;
use crate::writer::Writer;
use crate::wrong::{Outcome, Wrong};

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Threads that commit
    #[arg(long, default_value_t = 1)]
    writers: u32,
    /// Transactions of each
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Decides what is stored, where the life of the database begins; the one that begins here
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `process`: every commit waits for that only, is said to be durable all the same, and nothing else
    /// syncs
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Nothing is kept that was promised
    Process,
    /// Each commit waits for what its plan says, mostly the disk
    Disk,
}

/// Where acknowledgements go.
#[derive(Debug)]
pub(crate) enum Said {
    Out,
    Kept(Mutex<String>),
}

/// The open database, and the release that has it open.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) db: Db,
    pub(crate) release: Release,
}

/// State that all threads share.
#[derive(Debug)]
pub(crate) struct Shop<'a> {
    pub(crate) place: &'a Place,
    /// Empty only while the database is reopened.
    pub(crate) open: RwLock<Option<Open>>,
    pub(crate) said: Said,
    /// The number of commits of each writer that the next snapshot sees.
    counts: Vec<AtomicU64>,
    /// The number of all commits.
    pub(crate) total: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

impl Said {
    pub(crate) fn say(&self, line: &str) -> Outcome<()> {
        match self {
            Said::Out => {
                let mut out = std::io::stdout().lock();
                let said = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                said.map_err(|error| format!("cannot acknowledge: {error}").into())
            }
            Said::Kept(lines) => {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push_str(line);
                Ok(())
            }
        }
    }
}

/// Writes until its time is over, or the power goes. Each writer continues after what it finds, so that a
/// load can begin on the result of a cut.
pub(crate) fn load(args: &LoadArgs) -> Outcome<()> {
    let is_plain = args.level == Level::Process;
    let level = if is_plain { Durability::Process } else { Durability::Disk };
    let db = args.place.open(level, false)?;
    let said = Said::Out;
    // Before the first commit: acknowledged commits that are missing here have lost their sequences.
    said.say(&open_line(db.stats().commit.published.0))?;
    let wanted = Terms { seed: args.seed, is_heavy: args.place.sizes == Sizes::Shipped, is_plain };
    let (terms, release) = begin(&db, wanted)?;
    let states = judge::commits(&db)?.0;
    let forced = is_plain.then_some(Durability::Process);
    let work = Work { terms, writers: args.writers, count: args.count, forced };
    run(&args.place, Open { db, release }, said, &states, work).map(drop)
}

/// The work of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) terms: Terms,
    pub(crate) writers: u32,
    /// The number of commits of each writer.
    pub(crate) count: u64,
    /// The level of every commit, instead of the planned one. They are acknowledged as if they were durable.
    pub(crate) forced: Option<Durability>,
}

/// Begins the life of a database, or continues it.
pub(crate) fn begin(db: &Db, wanted: Terms) -> Outcome<(Terms, Release)> {
    let terms = match terms(db)? {
        Some(terms) => terms,
        None => {
            let first = if wanted.seed.is_multiple_of(2) { Release::Plain } else { Release::Viewed };
            db.write(|tx| {
                tx.put_bytes(LIFE, TERMS, &wanted.encode())?;
                tx.put_bytes(LIFE, RELEASE, &[first as u8])
            })?;
            wanted
        }
    };
    let release = release(db)?;
    release.register(db)?;
    if !terms.is_plain {
        // Before the first commit that it must see: a checkpoint releases changes that no consumer needs.
        mirror::register(db)?;
    }
    Ok((terms, release))
}

/// Does the work on top of the existing data. Returns the database and the acknowledgements.
pub(crate) fn run(
    place: &Place,
    open: Open,
    said: Said,
    states: &States,
    work: Work,
) -> Outcome<(Open, Said)> {
    let state = |id: u32| states.get(&id).cloned().unwrap_or_else(|| State::new(work.terms, id));
    let mut writers: Vec<Writer> = (0..work.writers).map(|id| Writer { id, state: state(id) }).collect();
    let begun: u64 = states.values().map(|state| state.count).sum();
    let shop = Shop {
        place,
        open: RwLock::new(Some(open)),
        said,
        counts: writers.iter().map(|writer| AtomicU64::new(writer.state.count)).collect(),
        total: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let done: Outcome<()> = std::thread::scope(|scope| {
        let shop = &shop;
        let seed = mixed(work.terms.seed ^ begun << 20);
        let mut beside = Vec::new();
        if !work.terms.is_plain {
            beside.push(scope.spawn(move || shop.ending(Steward::new(shop, Random::new(seed)).work())));
            beside.push(scope.spawn(move || shop.ending(consume(shop, Random::new(mixed(seed))))));
        }
        let writing: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || shop.ending(shop.write(writer, work))))
            .collect();
        let written = writing.into_iter().map(|thread| thread.join().expect("no writer panics"));
        let written = written.collect::<Vec<_>>();
        shop.is_over.store(true, Ordering::Release);
        let beside =
            beside.into_iter().map(|thread| thread.join().expect("nobody panics")).collect::<Vec<_>>();
        written.into_iter().chain(beside).collect()
    });
    done?;
    let Shop { open, said, .. } = shop;
    let open = open.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((open.ok_or("the database was not opened again")?, said))
}

impl Shop<'_> {
    /// Runs a closure on the open database, which is not reopened meanwhile.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&Open) -> Outcome<T>) -> Outcome<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        run(open.as_ref().ok_or("the database could not be opened again")?)
    }

    /// If one thread has failed, the others end.
    fn ending(&self, done: Outcome<()>) -> Outcome<()> {
        if done.is_err() {
            self.is_over.store(true, Ordering::Release);
        }
        done
    }

    fn write(&self, writer: &mut Writer, work: Work) -> Outcome<()> {
        for _ in 0..work.count {
            if self.is_over.load(Ordering::Acquire) {
                break;
            }
            let (number, level, seq) =
                self.with(|open| writer.commit(&open.db, open.release, work.forced))?;
            // At level `Memory` a commit returns before a snapshot sees it, and so before a backup does.
            if level != Durability::Memory {
                let own = usize::try_from(writer.id).expect("a few writers");
                self.counts[own].store(number + 1, Ordering::Release);
            }
            let claimed = if work.forced.is_some() { Durability::Disk } else { level };
            self.said.say(&commit_line(writer.id, number, claimed, seq))?;
            self.total.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// The number of commits of each writer that the next snapshot sees.
    pub(crate) fn seen_by_all(&self) -> Counts {
        (0..).zip(&self.counts).map(|(writer, count)| (writer, count.load(Ordering::Acquire))).collect()
    }

    /// Waits until that many more commits have returned, or for a while.
    pub(crate) fn wait(&self, commits: u64) {
        let from = self.total.load(Ordering::Acquire);
        for _ in 0..40 {
            if self.is_over.load(Ordering::Acquire) || self.total.load(Ordering::Acquire) >= from + commits {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// The consumer continues as long as there are writers, at any level.
fn consume(shop: &Shop<'_>, mut random: Random) -> Outcome<()> {
    while !shop.is_over.load(Ordering::Acquire) {
        let level = *random.pick(&[Durability::Disk, Durability::Process, Durability::Memory]);
        let (batch, batches) = (random.between(1, 30), random.between(1, 5));
        shop.with(|open| {
            let worked = mirror::work(&open.db.at(level), batch, batches);
            worked.map(drop).map_err(|error| Wrong::from(error).while_doing("the consumer"))
        })?;
        shop.wait(random.between(1, 12) as u64);
    }
    Ok(())
}
