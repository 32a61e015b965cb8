//! The background work of an open database: the thread `duramen-work`, and its jobs, which run in small
//! steps.
//!
//! Owns the scheduling of jobs. The thread exists only while a job has work. It never runs in a database that
//! was opened read-only, stepped, or with [`DbOptions::background`](crate::DbOptions::background) switched
//! off. It has its own handle of the engine, and the handles of the program hold the thread. Dropping the
//! last of them stops the thread and releases the engine before the drop returns. An error of a job is
//! reported to the event hook, and the job is retried later. In a node of a cluster the jobs run while it
//! leads; their commits reach the others.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::access::background_work::{BackgroundWork, Outlook};
use crate::access::handle::Db;
use crate::blobs;
use crate::db::views::in_background;
use crate::kv;
use crate::requests;
use crate::store::error::{Code, ErrorKind, Result};
use crate::store::{Durability, Event, Rest, Worker};
use duramen_disk::Disk;

/// A recurring job.
struct Job {
    /// Whether there is work, checked once at opening. Later, the code that makes work wakes the thread.
    has_work: fn(&Db) -> Result<bool>,
    /// Does some milliseconds of work. Its argument is the time, in nanoseconds of the disk's monotonic
    /// clock.
    step: fn(&Db, u64) -> Result<Outlook>,
}

/// Every job. To add one, add a line here, and call `OpenState::wake` where its work is made.
const JOBS: [Job; 4] = [
    Job { has_work: in_background::has_work, step: in_background::step },
    Job { has_work: kv::has_work, step: kv::background_step },
    Job { has_work: requests::has_work, step: requests::background_step },
    Job { has_work: blobs::has_work, step: blobs::background_step },
];

/// The pause between steps, in which other threads have the processor, the log and the order lock.
const PAUSE: Duration = Duration::from_millis(1);

/// How often a node of a cluster looks whether it leads, and whether others have made work that it does then.
const LOOK_OF_NODE: Duration = Duration::from_millis(500);

/// The delay before a failed job is retried. It doubles with each failure.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(60);

const POISON: &str = "nothing panics while the turns are locked";

/// The background thread of an open database. Dropping it stops the thread.
pub(crate) struct Background {
    worker: Worker,
}

/// When a job is next due, by the disk's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    due_ns: u64,
    failures: u32,
}

impl Background {
    /// The background of a database, with a handle of its own. Nothing runs before the first wake-up.
    pub(crate) fn new(db: Db, disk: Arc<dyn Disk>) -> Background {
        let turns = Mutex::new([Turn::default(); JOBS.len()]);
        let (state, failed) = (Arc::clone(db.open_state()), db.hook());
        let work = move || {
            let mut turns = turns.lock().expect(POISON);
            round(&db, &*disk, &mut turns)
        };
        let worker = Worker::new("duramen-work", work, move |error| {
            if let Some(hook) = &failed {
                hook(&Event::BackgroundFailed(error));
            }
        });
        state.work_by(worker.clone());
        Background { worker }
    }

    /// Wakes the thread if a job has work.
    pub(crate) fn begin(&self, db: &Db) {
        // An error of reading is left to the calls that read the same data.
        if db.engine().lineage().is_some() || JOBS.iter().any(|job| (job.has_work)(db).unwrap_or(false)) {
            self.worker.wake();
        }
    }
}

impl BackgroundWork for Background {
    fn stop(&self) {
        self.worker.stop();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

/// Runs every job that is due.
fn round(db: &Db, disk: &dyn Disk, turns: &mut [Turn; JOBS.len()]) -> Rest {
    let is_node = db.engine().lineage().is_some();
    if !db.engine().takes_transactions().unwrap_or(false) {
        return if is_node { Rest::For(LOOK_OF_NODE) } else { Rest::UntilWoken };
    }
    let mut next: Option<Duration> = is_node.then_some(LOOK_OF_NODE);
    for (job, turn) in JOBS.iter().zip(turns) {
        let now_ns = disk.monotonic_ns();
        let outlook = if turn.due_ns > now_ns {
            Ok(Outlook::Due(Duration::from_nanos(turn.due_ns - now_ns)))
        } else {
            (job.step)(db, now_ns)
        };
        let rest = match outlook {
            Ok(outlook) => {
                if turn.due_ns <= now_ns {
                    *turn = Turn::default();
                }
                match outlook {
                    Outlook::More => PAUSE,
                    Outlook::Due(rest) => rest.max(PAUSE),
                    Outlook::Nothing => continue,
                }
            }
            Err(error) if error.code() == Code::Closed || error.kind() == ErrorKind::Poisoned => {
                return Rest::UntilWoken;
            }
            Err(error) => {
                let rest = AGAIN.saturating_mul(1 << turn.failures.min(16)).min(AGAIN_MAX);
                let rest_ns = u64::try_from(rest.as_nanos()).expect("a minute fits");
                *turn = Turn { due_ns: now_ns.saturating_add(rest_ns), failures: turn.failures + 1 };
                db.tell(error);
                rest
            }
        };
        next = Some(next.map_or(rest, |next| next.min(rest)));
    }
    next.map_or(Rest::UntilWoken, Rest::For)
}

impl Db {
    /// This handle, with a background that works through another handle.
    pub(crate) fn with_background(self, disk: Arc<dyn Disk>) -> Db {
        let own = self.at(Durability::Process);
        let background = Background::new(own, disk);
        background.begin(&self);
        self.of_program(Some(Arc::new(background)))
    }

    /// Runs every background job that is due once. Returns whether there may be more work.
    ///
    /// For databases opened with `Background::Stepped` or without [background](crate::DbOptions::background):
    /// a simulation takes the steps itself.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits) and of [writing a document](crate::Error#documents), if they
    /// kept a job from working at all. A node of a cluster has none to do unless it leads.
    pub fn step_background(&self) -> Result<bool> {
        let mut more = false;
        if !self.engine().takes_transactions().unwrap_or(false) {
            return Ok(more);
        }
        for job in &JOBS {
            more |= (job.step)(self, u64::MAX)? == Outlook::More;
        }
        Ok(more)
    }
}
