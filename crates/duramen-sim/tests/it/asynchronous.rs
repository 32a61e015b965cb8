//! Power cuts under awaited commits: whatever an awaited call has returned survives any cut (D1, D2).
//!
//! That holds also with many waiters and with dropped futures. Whatever survives is a prefix of the commits.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use duramen::prelude::*;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;
use duramen_sim::seeds;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "entries", view(All, key = id, reduce = Count))]
struct Entry {
    #[key]
    id: u64,
    text: String,
}

fn open(disk: &MemDisk) -> Result<Db> {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db"))
}

#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// Polls all futures until all are ready, and reports each outcome at once.
fn join<F: Future>(mut tasks: Vec<Pin<Box<F>>>, mut told: impl FnMut(F::Output)) {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    while !tasks.is_empty() {
        tasks.retain_mut(|task| match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => {
                told(out);
                false
            }
            Poll::Pending => true,
        });
        if !tasks.is_empty() {
            let woken = signal.woken.lock().unwrap();
            *signal.changed.wait_while(woken, |woken| !*woken).unwrap() = false;
        }
    }
}

/// Acknowledged commits, each with the length of the recording at that time.
struct Run {
    disk: MemDisk,
    acknowledged: Vec<(usize, u64)>,
}

fn run(seed: u64) -> Run {
    let (disk, mut dice) = (MemDisk::new(seed), Dice::new(seed));
    disk.record();
    let mut acknowledged = Vec::new();
    let mut next = 0;
    for _ in 0..3 {
        let db = AsyncDb::with_threads(open(&disk).unwrap(), 2);
        for _ in 0..6 {
            let mut tasks = Vec::new();
            for _ in 0..=dice.below(5) {
                let (id, text) = (next, "x".repeat(dice.index(40)));
                next += 1;
                let db = db.clone();
                let mut task = Box::pin(async move { db.put(Entry { id, text }).await.map(|_| id) });
                if dice.below(6) == 0 {
                    drop(task.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                } else {
                    tasks.push(task);
                }
            }
            join(tasks, |id| acknowledged.push((disk.recorded_len(), id.unwrap())));
        }
        if dice.below(2) == 0 {
            join(vec![Box::pin(db.close())], |closed| closed.unwrap());
        }
    }
    Run { disk, acknowledged }
}

fn check_cut(run: &Run, at: usize, choice: &CrashChoice) {
    let when = format!("cut at operation {at}, {choice:?}");
    let db = match open(&run.disk.trace().crash_image(at, choice)) {
        Ok(db) => db,
        Err(error) => panic!("{when}: {error}"),
    };
    let found: BTreeSet<u64> =
        db.collection::<Entry>().to_vec().unwrap().into_iter().map(|entry| entry.id).collect();
    for (recorded, id) in &run.acknowledged {
        assert!(*recorded > at || found.contains(id), "{when}: {id} was acknowledged and is gone");
    }
    assert_eq!(db.view::<All>().reduce().unwrap(), found.len() as u64, "{when}");
    assert!(db.check().unwrap().is_clean(), "{when}");
}

#[test]
fn what_was_awaited_survives_power_cuts() {
    let fresh = seeds::of_this_commit("asynchronous", 1);
    for seed in [1, 2, 3].into_iter().chain(fresh.range) {
        println!("seed {seed}");
        let run = run(seed);
        assert!(run.acknowledged.len() > 20, "{} acknowledged", run.acknowledged.len());
        let mut dice = Dice::new(seed);
        for at in (0..=run.disk.recorded_len()).step_by(run.disk.recorded_len() / 120 + 1) {
            for choice in
                [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: dice.below(u64::MAX) }]
            {
                check_cut(&run, at, &choice);
            }
        }
        // Right after each acknowledgement, with nothing kept that was not synced.
        run.acknowledged.iter().for_each(|(recorded, _)| check_cut(&run, *recorded, &CrashChoice::None));
    }
}
