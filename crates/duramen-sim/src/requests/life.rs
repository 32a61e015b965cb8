//! The life of a database with requests, and what is done after a cut.

use std::path::Path;
use std::sync::Arc;

use duramen::requests::{self, Known, RequestId};
use duramen::{Code, Db, Durability, OpenTransaction};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::Options;

use super::asked::{Counts, How, Told, text};
use super::{ANSWERS, Asked, Case, Trace};
use crate::product::life::options_of;
use crate::search::cuts::LOG_DISK;
use crate::search::random::{Random, joined};

const NS_A_MS: u64 = 1_000_000;
const MINUTE_NS: u64 = 60_000 * NS_A_MS;

/// Where the wall clock begins.
const START_NS: u64 = 30_000_000 * MINUTE_NS;

const EVENT_COUNT: usize = 50;

/// So many requests rest at once.
const RESTING_MAX: usize = 3;

/// A life, and what it was told.
pub(super) struct Lived {
    pub(super) trace: Trace,
    options: Options,
    asked: Vec<Asked>,
    wall_ns: u64,
    /// What was told in the life.
    pub(super) counts: Counts,
}

struct Life {
    disk: MemDisk,
    options: Options,
    db: Db,
    random: Random,
    asked: Vec<Asked>,
    /// Requests that rest, by their index.
    resting: Vec<(usize, OpenTransaction)>,
    wall_ns: u64,
    counts: Counts,
}

/// Runs the life of a seed.
///
/// # Errors
/// What is wrong without any cut.
pub(super) fn live(seed: u64) -> Result<Lived, String> {
    let options = options_of(seed);
    let disk = MemDisk::new(seed);
    if options.wal_dir.is_some() {
        disk.create_dir(LOG_DISK.as_ref()).map_err(|error| error.to_string())?;
        disk.sync_dir("/".as_ref()).map_err(|error| error.to_string())?;
    }
    disk.set_wall_clock(START_NS);
    disk.record();
    let db = open(&disk, &options)?;
    let random = Random::new(joined(seed, 30));
    let (asked, resting, counts) = Default::default();
    let mut life = Life { disk, options, db, random, asked, resting, wall_ns: START_NS, counts };
    for _ in 0..EVENT_COUNT {
        life.event()?;
    }
    let Life { disk, options, db, resting, asked, wall_ns, counts, .. } = life;
    drop(resting);
    drop(db);
    Ok(Lived { trace: disk.stop_recording(), options, asked, wall_ns, counts })
}

fn open(disk: &MemDisk, options: &Options) -> Result<Db, String> {
    let options = Db::options().engine(|own| *own = options.clone());
    options.open_on(Arc::new(disk.clone()), Path::new("/db")).map_err(text)
}

/// Lets the wall clock jump, as it may while no database is open.
fn jump(random: &mut Random, wall_ns: u64) -> u64 {
    match random.below(8) {
        0 => wall_ns.saturating_sub(1_440 * MINUTE_NS),
        1 => wall_ns.saturating_sub(MINUTE_NS),
        2 => wall_ns + 3 * MINUTE_NS,
        3 => wall_ns + 30 * MINUTE_NS,
        4 => 0,
        _ => wall_ns,
    }
}

impl Life {
    fn event(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..=4 => {
                let index = self.new_request()?;
                self.ask(index, How::Try)
            }
            5..=8 => self.ask_again(How::Try),
            9 => {
                let index = self.new_request()?;
                self.ask(index, How::Outcome)
            }
            10 => self.ask_again(How::Outcome),
            11 | 12 if self.resting.len() < RESTING_MAX => self.rest(),
            11..=13 => self.commit_rested(),
            14 | 15 => self.let_time_pass(),
            16 => self.db.step_background().map(drop).map_err(text),
            17 => self.db.step_engine().map_err(text),
            18 => self.db.checkpoint_with(&mut || ()).map_err(text),
            _ => self.reopen(),
        }
    }

    /// A new request, of a caller whose clock may be off.
    fn new_request(&mut self) -> Result<usize, String> {
        let id = requests::new_id(&self.db).map_err(text)?;
        let off_ms = match self.random.below(6) {
            0 => 55_000,
            1 => 70_000,
            2 => -600_000,
            3 => -60_000,
            _ => 0,
        };
        let id = moved(id, off_ms)?;
        let index = self.asked.len();
        self.asked.push(Asked { id, index: index as u64, told: Vec::new() });
        Ok(index)
    }

    fn ask(&mut self, index: usize, how: How) -> Result<(), String> {
        // A power cut may take back a commit at level `Process`: the cuts hold nothing against it.
        let (is_durable, db) = match how {
            How::Try if self.random.chance(1, 4) => (false, self.db.at(Durability::Process)),
            _ => (true, self.db.clone()),
        };
        let asked = &mut self.asked[index];
        let known = asked.told.len();
        asked.ask(&db, how, &mut self.counts)?;
        let at = if is_durable { self.disk.recorded_len() } else { usize::MAX };
        asked.told[known..].iter_mut().for_each(|told| told.0 = at);
        Ok(())
    }

    fn ask_again(&mut self, how: How) -> Result<(), String> {
        if self.asked.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.asked.len());
        self.ask(index, how)
    }

    /// Begins a request that rests, old or new.
    fn rest(&mut self) -> Result<(), String> {
        let is_new = self.asked.is_empty() || self.random.chance(2, 3);
        let index = if is_new { self.new_request()? } else { self.random.below(self.asked.len()) };
        let asked = &self.asked[index];
        let mut open = self.db.begin().map_err(text)?;
        let found = open.with(|tx| {
            let found = requests::find(tx, &asked.request())?;
            if found == Known::New {
                let answer = asked.run(tx)?;
                requests::remember(tx, &asked.request(), &answer)?;
            }
            Ok(found)
        });
        match found {
            Ok(Known::New) => self.resting.push((index, open)),
            Err(error) if error.code() != Code::InvalidArgument => return Err(text(error)),
            // It is known, or ahead of the clock.
            _ => {}
        }
        Ok(())
    }

    fn commit_rested(&mut self) -> Result<(), String> {
        if self.resting.is_empty() {
            return Ok(());
        }
        let (index, open) = self.resting.swap_remove(self.random.below(self.resting.len()));
        let ended = open.commit();
        let asked = &mut self.asked[index];
        match ended {
            Ok(_) => {
                let at = self.disk.recorded_len();
                let answer = self.db.kv("answer").get(asked.index).map_err(text)?;
                let answer = answer.ok_or_else(|| format!("{}: committed without an effect", asked.id))?;
                asked.told.push((at, Told::Committed(answer)));
                self.counts[0] += 1;
            }
            Err(error) if error.code() == Code::WriteConflict => self.counts[ANSWERS.len() - 1] += 1,
            Err(error) => return Err(text(error)),
        }
        asked.check(&self.db)
    }

    /// Minutes go by, and the background forgets.
    fn let_time_pass(&mut self) -> Result<(), String> {
        let minutes = self.random.between(0, 7) as u64;
        self.disk.advance_clock(minutes * MINUTE_NS);
        self.wall_ns += minutes * MINUTE_NS;
        if self.random.chance(1, 2) { self.db.step_background().map(drop).map_err(text) } else { Ok(()) }
    }

    /// Another process goes on, at a clock that has jumped.
    fn reopen(&mut self) -> Result<(), String> {
        self.resting.clear();
        if self.random.chance(1, 2) {
            self.db.close().map_err(text)?;
        }
        // The old handles end before the new ones begin.
        self.db = Db::in_memory().map_err(text)?;
        self.wall_ns = jump(&mut self.random, self.wall_ns);
        self.disk.set_wall_clock(self.wall_ns);
        self.db = open(&self.disk, &self.options)?;
        Ok(())
    }
}

/// An id that was made so many milliseconds later or earlier.
fn moved(id: RequestId, by_ms: i64) -> Result<RequestId, String> {
    let mut bytes = id.bytes();
    let mut ms = [0; 8];
    ms[2..].copy_from_slice(&bytes[..6]);
    let moved = u64::from_be_bytes(ms).saturating_add_signed(by_ms);
    bytes[..6].copy_from_slice(&moved.to_be_bytes()[2..]);
    RequestId::from_bytes(bytes).map_err(text)
}

impl Lived {
    pub(super) fn has_log_disk(&self) -> bool {
        self.options.wal_dir.is_some()
    }

    /// Opens what a cut has left, and asks for every request again, twice, in two processes.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn survive(&self, case: Case, disk: &MemDisk) -> Result<Counts, String> {
        let mut random = Random::new(joined(joined(case.seed, case.op as u64), 32));
        let mut asked = self.asked.clone();
        // What was told after the cut was told to nobody.
        asked.iter_mut().for_each(|asked| asked.told.retain(|(at, _)| *at <= case.op));
        let (mut counts, mut wall_ns) = (Counts::default(), self.wall_ns);
        for _ in 0..2 {
            wall_ns = jump(&mut random, wall_ns);
            disk.set_wall_clock(wall_ns);
            let db = open(disk, &self.options)?;
            for _ in 0..2 {
                random.shuffle(&mut asked);
                for asked in &mut asked {
                    let how = if random.chance(1, 4) { How::Outcome } else { How::Try };
                    asked.ask(&db, how, &mut counts)?;
                }
                let minutes = random.between(0, 13) as u64;
                disk.advance_clock(minutes * MINUTE_NS);
                wall_ns += minutes * MINUTE_NS;
                db.step_background().map_err(text)?;
            }
            let documents = db.check_documents().map_err(text)?;
            if !documents.is_clean() {
                return Err(format!("{documents:?}"));
            }
            if random.chance(1, 2) {
                db.close().map_err(text)?;
            }
        }
        Ok(counts)
    }
}
