//! Power cuts under key-values: whatever survives is what some commits in a row made, all acknowledged ones among them, documents
//! of the same transactions included; and the expiry index agrees with it (D1, D2).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen::kv::Expiry;
use duramen::prelude::*;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;

const MS: u64 = 1_000_000;

/// When the run begins. What survives is read a while before: whatever is stored is there then, swept or not.
const START_MS: u64 = 1_800_000_000_000;

const NAMESPACES: [&str; 2] = ["sessions", "counters"];

const KEYS: u64 = 12;

/// What is stored: by namespace and key the value and when it expires; how many documents there are.
#[derive(Debug, Clone, PartialEq, Default)]
struct Stored {
    values: BTreeMap<(usize, u64), (i64, Option<u64>)>,
    documents: u64,
}

impl Stored {
    /// When the first of the values expired that are not there any more, and its namespace.
    fn first_expired(&self, now_ms: u64) -> Option<(u64, usize)> {
        let expired = self.values.iter().filter_map(|((namespace, _), (_, at))| Some(((*at)?, *namespace)));
        expired.filter(|(at, _)| *at <= now_ms).min()
    }
}

fn open(disk: &MemDisk) -> Result<Db> {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db"))
}

/// One transaction on the database and on the model, at a time.
fn commit(db: &Db, model: &mut Stored, now_ms: u64, dice: &mut Dice) {
    let (namespace, key) = (dice.index(NAMESPACES.len()), dice.below(KEYS));
    let (kind, lives, by) = (dice.below(8), dice.below(300), i64::try_from(dice.below(9)).unwrap());
    let at = (namespace, key);
    let live = model.values.get(&at).copied().filter(|(_, at)| at.is_none_or(|at| now_ms < at));
    db.transact(|tx| {
        let values = tx.kv(NAMESPACES[namespace]);
        match kind {
            0 => drop(values.delete(key)?),
            1 => drop(values.clear()?),
            2 => drop(values.touch(key, Ttl::millis(lives))?),
            3 | 4 => drop(values.increment(key, by)?),
            5 => values.put(key, &by)?,
            _ => values.put_with(key, &by, Ttl::millis(lives))?,
        }
        if kind % 2 == 0 {
            tx.documents("log").put(doc! { "id": model.documents })?;
        }
        Ok(())
    })
    .unwrap();
    model.documents += u64::from(kind % 2 == 0);
    let mut set = |value: Option<(i64, Option<u64>)>| match value {
        Some((value, expires)) if expires.is_none_or(|expires| now_ms < expires) => {
            model.values.insert(at, (value, expires));
        }
        _ => {
            model.values.remove(&at);
        }
    };
    match kind {
        0 => set(None),
        1 => model.values.retain(|(of, _), _| *of != namespace),
        2 if live.is_none() => {}
        2 => set(live.map(|(value, _)| (value, Some(now_ms + lives)))),
        3 | 4 => set(Some(live.map_or((by, None), |(value, expires)| (value + by, expires)))),
        5 => set(Some((by, None))),
        _ => set(Some((by, Some(now_ms + lives)))),
    }
}

/// What was there after each commit, and how much was recorded when it was acknowledged.
struct Run {
    disk: MemDisk,
    states: Vec<(usize, Stored)>,
    swept: u64,
}

fn run(seed: u64) -> Run {
    let (disk, mut dice, mut model) = (MemDisk::new(seed), Dice::new(seed), Stored::default());
    disk.record();
    disk.set_wall_clock(START_MS * MS);
    let (mut states, mut swept) = (vec![(0, model.clone())], 0);
    let mut db = open(&disk).unwrap();
    db.ensure(&Schema::new("log").key(["id"])).unwrap();
    let mut now_ms = START_MS;
    for _ in 0..4 {
        // The first write of a namespace sweeps it, and finds nothing here: sweeps are states of their own in the model.
        // The disk's clock has moved while the database was opened, by a little with each call.
        disk.set_wall_clock(now_ms * MS);
        for (namespace, name) in NAMESPACES.into_iter().enumerate() {
            db.kv(name).put(KEYS, &0).unwrap();
            model.values.insert((namespace, KEYS), (0, None));
            states.push((disk.recorded_len(), model.clone()));
        }
        for step in 0..18 {
            now_ms += dice.below(60);
            disk.set_wall_clock(now_ms * MS);
            commit(&db, &mut model, now_ms, &mut dice);
            states.push((disk.recorded_len(), model.clone()));
            if step % 6 == 5 {
                swept += db.sweep_expired().unwrap();
                // A transaction for each namespace, that of the oldest value first; it waits for no disk, and so is not
                // acknowledged before something behind it is.
                while let Some((_, oldest)) = model.first_expired(now_ms) {
                    model.values.retain(|(namespace, _), (_, expires)| {
                        *namespace != oldest || expires.is_none_or(|expires| now_ms < expires)
                    });
                    states.push((usize::MAX, model.clone()));
                }
            }
        }
        db.close().unwrap();
        drop(db);
        db = open(&disk).unwrap();
    }
    acknowledge_with_what_follows(&mut states);
    Run { disk, states, swept }
}

/// What no disk was waited for is durable with the next commit that was waited for.
fn acknowledge_with_what_follows(states: &mut [(usize, Stored)]) {
    let mut behind = usize::MAX;
    for (recorded, _) in states.iter_mut().rev() {
        behind = behind.min(*recorded);
        *recorded = behind;
    }
}

fn stored(db: &Db) -> Stored {
    let mut found =
        Stored { documents: db.documents("log").count(Span::all()).unwrap_or(0), ..Stored::default() };
    for (namespace, name) in NAMESPACES.into_iter().enumerate() {
        let values = db.kv(name);
        for entry in values.scan::<u64, i64>(Span::all()).unwrap() {
            let (key, value) = entry.unwrap();
            let expires = match values.expiry(key).unwrap() {
                Some(Expiry::At(at)) => {
                    let ms = at.seconds() * 1000 + i64::from(at.nanoseconds() / 1_000_000);
                    Some(u64::try_from(ms).unwrap())
                }
                _ => None,
            };
            found.values.insert((namespace, key), (value, expires));
        }
    }
    found
}

fn check_cut(run: &Run, at: usize, choice: &CrashChoice) -> bool {
    let when = format!("cut at operation {at}, {choice:?}");
    let image = run.disk.trace().crash_image(at, choice);
    image.set_wall_clock((START_MS - 60_000) * MS);
    let acknowledged = run.states.partition_point(|(recorded, _)| *recorded <= at) - 1;
    let db = match open(&image) {
        Ok(db) => db,
        Err(error) => panic!("{when}: {error}"),
    };
    let found = stored(&db);
    let matches = run.states[acknowledged..].iter().position(|(_, state)| *state == found);
    assert!(
        matches.is_some(),
        "{when}: {found:?} is not what any commits made from {:?} on",
        run.states.get(acknowledged..).map(|states| states.iter().take(3).collect::<Vec<_>>())
    );
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{when}: {report:?}");
    image.set_wall_clock(2 * START_MS * MS);
    db.sweep_expired().unwrap();
    let forever = found.values.values().filter(|(_, expires)| expires.is_none()).count() as u64;
    let stats = db.kv_stats().unwrap();
    assert_eq!((stats.values, stats.expired), (forever, 0), "{when}");
    assert!(db.check_documents().unwrap().is_clean() && db.check().unwrap().is_clean(), "{when}");
    matches > Some(0)
}

#[test]
fn key_values_and_their_expiry_survive_power_cuts_together() {
    let (mut cuts, mut ahead, mut swept) = (0, 0, 0);
    for seed in [1, 2, 3] {
        println!("seed {seed}");
        let run = run(seed);
        swept += run.swept;
        let operations = run.disk.recorded_len();
        let mut dice = Dice::new(seed);
        for at in (0..operations).step_by(operations / 150 + 1) {
            let choices =
                [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: dice.below(u64::MAX) }];
            for choice in choices {
                cuts += 1;
                ahead += usize::from(check_cut(&run, at, &choice));
            }
        }
    }
    println!("{cuts} cuts, {ahead} with an unacknowledged commit, {swept} values swept");
    assert!(cuts > 800 && ahead > 0 && swept > 10, "{cuts} cuts, {ahead} ahead, {swept} swept");
}
