//! One seeded life of a database: programs of several releases on a recording disk, with everything that may
//! happen.
//!
//! Owns the order of events, and records each in the history. The same seed gives the same life, operation
//! for operation: the database's background work runs only when it is stepped here.

mod compaction;
mod copies;
mod programs;
mod references;
mod work;

use std::path::Path;
use std::sync::Arc;

use duramen::blobs::{BlobWriter, Upload};
use duramen::{Db, Error};
use duramen_disk::MemDisk;
use duramen_engine::{Background, Options};

use super::feed::{AUDIT, MIRROR};
use super::judge::failed;
use super::model::{BlobModel, ExpectedChange, History, State, Step};
use super::references::schemas;
use super::shop::Release;
use super::tally::Tally;
use super::views::{Looks, Shown};
use super::writes::numbers_schema;
use crate::search::random::Random;

pub use copies::{Copied, recover};

/// Where the database lies.
pub const PATH: &str = "/db";

/// A wall clock before any life begins: every stored value is visible then, expired or not.
pub const BEFORE_MS: u64 = 1_700_000_000_000;

/// Where the wall clock of a life begins.
const START_MS: u64 = 1_800_000_000_000;

const NS_A_MS: u64 = 1_000_000;

/// The view that is added and dropped without a type.
pub const BY_CENTS: &str = "by_cents";

macro_rules! events {
    ($($name:ident $weight:literal $text:literal,)*) => {
        /// What happens in a life.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has its words in `name`")]
        pub enum Event { $($name,)* }

        impl Event {
            /// Every kind of event.
            pub const ALL: &'static [Event] = &[$(Event::$name,)*];

            const WEIGHTS: &'static [usize] = &[$($weight,)*];

            /// In words, as in the remarks of the trace.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Event::$name => $text,)* }
            }
        }
    };
}

events! {
    Transaction 14 "transaction",
    GivenUp 2 "transaction given up",
    PutBlob 2 "blob put",
    Upload 4 "upload in pieces",
    UploadDropped 1 "upload given up",
    Expire 1 "values expired",
    Collect 1 "blobs collected",
    Background 5 "step of the background",
    Engine 4 "step of the engine",
    Checkpoint 2 "checkpoint",
    Clock 3 "clock jump",
    Consumer 4 "consumer",
    ViewByName 2 "view by name",
    Reference 4 "reference on data",
    Compact 2 "compaction",
    Upgrade 3 "upgrade",
    Visit 1 "visit of a tool",
    Migration 3 "migration",
    Built 1 "views built",
    Backup 1 "backup",
    Closed 1 "reopened after a close",
    Killed 1 "reopened after a kill",
}

impl Event {
    fn some(random: &mut Random) -> Event {
        let mut left = random.below(Event::WEIGHTS.iter().sum());
        for (event, weight) in Event::ALL.iter().zip(Event::WEIGHTS) {
            if left < *weight {
                return *event;
            }
            left -= weight;
        }
        Event::Transaction
    }
}

/// Opens the database of a disk.
///
/// # Errors
/// The database's error.
pub fn open(disk: &MemDisk, path: &str, options: &Options) -> Result<Db, Error> {
    open_by(disk, path, options, Form::Shapes)
}

/// How a process stores documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By shape.
    Shapes,
    /// With the names of their fields, as earlier builds do.
    Names,
}

impl Form {
    /// Any form: every fourth process is of an earlier build.
    pub fn some(random: &mut Random) -> Form {
        if random.chance(1, 4) { Form::Names } else { Form::Shapes }
    }
}

/// As [`open`], for a process that stores documents in a form.
///
/// # Errors
/// The database's error.
pub fn open_by(disk: &MemDisk, path: &str, options: &Options, form: Form) -> Result<Db, Error> {
    let options = Release::options().engine(|own| *own = options.clone()).names_fields(form == Form::Names);
    options.open_on(Arc::new(disk.clone()), Path::new(path))
}

/// A running database, and what it must hold.
#[derive(Debug)]
pub struct Life {
    /// Its disk, recording.
    pub disk: MemDisk,
    /// How it is opened.
    pub options: Options,
    /// Everything that was committed and promised.
    pub history: History,
    /// The program that runs.
    pub release: Release,
    /// The release of the shop: a tool may run for a while.
    shop: Release,
    /// How often each kind of event happened and did something.
    pub events: [u64; Event::ALL.len()],
    /// The remarks of events that did nothing, by their operations.
    idle: Vec<usize>,
    /// Figures on what was compared and done.
    pub tally: Tally,
    /// The views at each look.
    looks: Looks,
    /// The commit after which both consumers exist.
    registered: u64,
    /// For each of these operations, the time up to which expired values may have been deleted since.
    pub clock: Vec<(usize, u64)>,
    /// For each of these operations, the program that runs since, and the release of the shop.
    pub programs: Vec<(usize, Release, Release)>,
    db: Option<Db>,
    random: Random,
    state: State,
    wall_ms: u64,
    /// The latest time used by a transaction of this process.
    now_ms: u64,
    /// The latest time that the clock may have shown to this process.
    latest_ms: u64,
    /// The newest commit that survives the end of the process.
    handed_over: u64,
    writer: Option<(BlobWriter, BlobModel, usize)>,
    upload: Option<(Upload, BlobModel)>,
    copies: Vec<Copied>,
    /// Distinguishes the copies that this life makes.
    copy_suffix: &'static str,
}

impl Life {
    /// Continues with an open database on a recording disk. `copy_suffix` distinguishes the copies that are
    /// made.
    ///
    /// # Errors
    /// The database's error.
    pub fn over(
        db: Db,
        (disk, options): (MemDisk, Options),
        (history, state): (History, State),
        (release, shop): (Release, Release),
        random: Random,
        copy_suffix: &'static str,
    ) -> Result<Life, String> {
        let seq = db.stats().commit.published.0;
        let mut looks = Looks::default();
        looks.push(0, seq, Shown::of(&db)?, true);
        let mut life = Life {
            disk,
            options,
            history,
            release,
            shop,
            events: [0; Event::ALL.len()],
            idle: Vec::new(),
            tally: Tally::default(),
            looks,
            registered: u64::MAX,
            clock: Vec::new(),
            programs: vec![(0, release, shop)],
            db: Some(db),
            random,
            state,
            wall_ms: START_MS,
            now_ms: 0,
            latest_ms: 0,
            handed_over: seq,
            writer: None,
            upload: None,
            copies: Vec::new(),
            copy_suffix,
        };
        life.set_clock();
        Ok(life)
    }

    /// The database.
    #[must_use]
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is taken only while it is opened again")
    }

    fn published(&self) -> u64 {
        self.db().stats().commit.published.0
    }

    /// Sets the disk's clock to the clock of this life.
    fn set_clock(&mut self) {
        self.disk.set_wall_clock(self.wall_ms * NS_A_MS);
        // Each reading of the disk's clock advances it a little.
        self.latest_ms = self.latest_ms.max(self.wall_ms + 100);
        let ever = self.clock.last().map_or(0, |(_, ms)| *ms);
        self.clock.push((self.disk.recorded_len(), ever.max(self.latest_ms)));
    }

    /// The time up to which expired values may have been deleted, after so many operations.
    #[must_use]
    pub fn expired_ms(&self, at_op: usize) -> u64 {
        self.clock.iter().rev().find(|(at, _)| *at <= at_op).map_or(0, |(_, ms)| *ms)
    }

    /// Creates what every life begins with, if it is missing: consumers, and collections of fixed names.
    ///
    /// # Errors
    /// The database's error.
    pub fn found(&mut self) -> Result<(), String> {
        let (began, before) = (self.disk.recorded_len(), self.published());
        for name in [MIRROR, AUDIT] {
            self.db().consumer(name).from_oldest().register().map_err(failed("register"))?;
        }
        self.registered = self.published();
        self.release.register(self.db()).map_err(failed("register"))?;
        for schema in [numbers_schema("log")].into_iter().chain(schemas()) {
            self.db().ensure(&schema).map_err(failed("ensure"))?;
        }
        let after = self.published();
        if after > before {
            self.made(before + 1, after, began, self.state.clone(), Vec::new());
        }
        self.note(began)
    }

    /// One event.
    ///
    /// # Errors
    /// A failure without any cut.
    pub fn event(&mut self) -> Result<(), String> {
        let event = Event::some(&mut self.random);
        self.wall_ms += self.random.below(120) as u64;
        self.set_clock();
        self.disk.annotate(event.name());
        let began = self.disk.recorded_len();
        let did = self.happens(event).map_err(|what| format!("{}: {what}", event.name()))?;
        if did {
            self.events[event as usize] += 1;
        } else {
            self.idle.push(began - 1);
        }
        self.note(began)
    }

    /// Runs an event; returns whether it did something.
    fn happens(&mut self, event: Event) -> Result<bool, String> {
        let (ops, published) = (self.disk.recorded_len(), self.published());
        match event {
            Event::Transaction => return self.transaction(false),
            Event::GivenUp => return self.transaction(true),
            Event::PutBlob => self.put_blob()?,
            Event::Upload => {
                self.upload_some()?;
                return Ok(true);
            }
            Event::UploadDropped => return self.give_up_upload(),
            Event::Expire => return self.expire(),
            Event::Collect => return self.collect(),
            Event::Background => drop(self.db().step_background().map_err(failed("step_background"))?),
            Event::Engine => self.step_engine()?,
            Event::Checkpoint => self.checkpoint()?,
            Event::Clock => return self.jump(),
            Event::Consumer => return self.consume(),
            Event::ViewByName => self.view_by_name()?,
            Event::Reference => self.reference_on_data()?,
            Event::Compact => self.compact()?,
            Event::Upgrade => self.upgrade()?,
            Event::Visit => self.visit()?,
            Event::Migration => self.migrate(true)?,
            Event::Built => self.build()?,
            Event::Backup => self.backup()?,
            Event::Closed => self.reopen(true)?,
            Event::Killed => self.reopen(false)?,
        }
        Ok(self.published() > published || self.disk.recorded_len() > ops)
    }

    /// Notes commits that the database reports as durable: they are promised from now on.
    fn note(&mut self, began: usize) -> Result<(), String> {
        let commit = self.db().stats().commit;
        self.history.made(began, commit.published.0);
        self.history.promise(self.disk.recorded_len(), commit.durable.0);
        self.look_at_views(false).map(drop)
    }

    /// Records the views at the newest commit, and returns them.
    fn look_at_views(&mut self, is_return: bool) -> Result<Option<Shown>, String> {
        let shown = Shown::of(self.db())?;
        self.looks.push(self.disk.recorded_len(), self.published(), shown.clone(), is_return);
        Ok(shown)
    }

    /// Notes that some of these commits made a state.
    fn made(&mut self, from: u64, to: u64, began: usize, state: State, mut told: Vec<ExpectedChange>) {
        told.sort();
        self.state = state;
        let state = Arc::new(self.state.clone());
        self.history.push(Step { from, to, began, state, told, is_return: false });
    }

    /// Ends the life like a killed process, and returns what is needed to judge its cuts.
    #[must_use]
    pub fn end(mut self) -> Ended {
        (self.writer, self.upload) = (None, None);
        if let Some(db) = self.db.take() {
            db.abandon();
        }
        let Life {
            history, clock, programs, options, events, idle, tally, looks, registered, copies, ..
        } = self;
        Ended { history, clock, programs, options, events, idle, tally, looks, registered, copies }
    }
}

/// The record of a life for the judge.
#[derive(Debug)]
pub struct Ended {
    /// Everything that was committed and promised.
    pub history: History,
    /// For each of these operations, the time up to which expired values may have been deleted since.
    pub clock: Vec<(usize, u64)>,
    /// For each of these operations, the program that ran since, and the release of the shop.
    pub programs: Vec<(usize, Release, Release)>,
    /// How it was opened.
    pub options: Options,
    /// How often each kind of event happened and did something.
    pub events: [u64; Event::ALL.len()],
    /// The remarks of events that did nothing, by their operations.
    pub idle: Vec<usize>,
    /// Figures on what was compared and done.
    pub tally: Tally,
    /// The views at each look.
    pub looks: Looks,
    /// The commit after which both consumers exist.
    pub registered: u64,
    /// Copies that were made.
    pub copies: Vec<Copied>,
}

impl Ended {
    /// The program that ran after so many operations, and the release of the shop.
    #[must_use]
    pub fn program(&self, at_op: usize) -> (Release, Release) {
        let found = self.programs.iter().rev().find(|(at, _, _)| *at <= at_op);
        found.map_or((Release::Plain, Release::Plain), |(_, release, shop)| (*release, *shop))
    }

    /// The time up to which expired values may have been deleted, after so many operations.
    #[must_use]
    pub fn expired_ms(&self, at_op: usize) -> u64 {
        self.clock.iter().rev().find(|(at, _)| *at <= at_op).map_or(0, |(_, ms)| *ms)
    }
}

/// The options for the database of a seed: as for the engine's search, with more memory.
#[must_use]
pub fn options_of(seed: u64) -> Options {
    let options = crate::search::run::options_of(seed);
    let scale = options.geometry.block_bytes / 512;
    Options { memory_bytes: 256 * 1024 * scale.min(4), background: Background::Stepped, ..options }
}
