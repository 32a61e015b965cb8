//! What an open database does by itself: the thread `duramen-work`, and the jobs that it does in small steps.
//!
//! Owns when a job has its turn. The thread is there only while a job has something to do, and never in a database that was opened
//! read-only, stepped, or with [`DbOptions::background`](crate::DbOptions::background) switched off. It holds its own way to the
//! engine, and the handles of the program hold the thread: with the last of them it stops, and the engine is let go of, before
//! the drop returns. An error of a job is told to the event hook, and the job is done again after a while.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::access::background_work::{BackgroundWork, Outlook};
use crate::access::handle::Db;
use crate::db::views::in_background;
use crate::kv;
use crate::store::error::{Code, ErrorKind, Result};
use crate::store::{Durability, Event, Rest, Worker};
use duramen_disk::Disk;

/// Something that is to be done now and then.
struct Job {
    /// Whether there is anything to do, asked once when the database is opened. Later on, whoever makes work wakes the thread.
    has_work: fn(&Db) -> Result<bool>,
    /// Does a little of it: some milliseconds. Told the time, in nanoseconds of the disk's monotonic clock.
    step: fn(&Db, u64) -> Result<Outlook>,
}

/// Every job. A new one is a line here, and `OpenState::wake` where its work is made.
const JOBS: [Job; 2] = [
    Job { has_work: in_background::has_work, step: in_background::step },
    Job { has_work: kv::has_work, step: kv::background_step },
];

/// Between steps others have the processor, the log and the order lock for themselves.
const PAUSE: Duration = Duration::from_millis(1);

/// A job that failed is done again after this long, then after twice as long, and so on.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(60);

const POISON: &str = "nothing panics while the turns are locked";

/// The thread of an open database. Dropped, it has stopped.
pub(crate) struct Background {
    worker: Worker,
}

/// A job's next turn, by the disk's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    due_ns: u64,
    failures: u32,
}

impl Background {
    /// The background of a database, given a handle of its own. Nothing runs until somebody wakes it.
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

    /// Wakes the thread if a job has something to do.
    pub(crate) fn begin(&self, db: &Db) {
        // What cannot be read now is told to whoever asks for it.
        if JOBS.iter().any(|job| (job.has_work)(db).unwrap_or(false)) {
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

/// Gives every job its turn that is due.
fn round(db: &Db, disk: &dyn Disk, turns: &mut [Turn; JOBS.len()]) -> Rest {
    let mut next: Option<Duration> = None;
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
    /// The handle with a background that works through another one.
    pub(crate) fn with_background(self, disk: Arc<dyn Disk>) -> Db {
        let own = self.at(Durability::Process);
        let background = Background::new(own, disk);
        background.begin(&self);
        self.stopping(Arc::new(background))
    }

    /// Does what is due behind the scenes, once. Returns whether there may be more. For databases opened with
    /// `Background::Stepped` or without [background](crate::DbOptions::background): a simulation takes the steps itself.
    ///
    /// # Errors
    /// What kept a job from working at all.
    pub fn step_background(&self) -> Result<bool> {
        let mut more = false;
        for job in &JOBS {
            more |= (job.step)(self, u64::MAX)? == Outlook::More;
        }
        Ok(more)
    }
}
