//! Views added to all flights while four writers continue. The program is killed (`kill -9`) and restarted
//! twice on the way. At the end every key, count and sum equals the documents, added up without a view.
//!
//! The quick form takes every hundredth flight and steps by hand, so that each kill hits a build.
//! `scripts/views-under-fire` takes all flights, and leaves the build to the background.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use duramen::ViewPhase;
use duramen::prelude::*;
use duramen::view::{CodedView, Emitter, Reduce, ViewSpec, reduce};

use crate::flights_table::cells;

const COLUMNS: [&str; 10] =
    ["carrier", "time_hour", "flight", "origin", "month", "day", "dest", "tailnum", "dep_delay", "distance"];

/// The child's directory, and how far it may build before it waits for the kill.
const DIRECTORY: &str = "DURAMEN_FIRE_DIRECTORY";
const BUILD_UNTIL: &str = "DURAMEN_FIRE_UNTIL";

fn is_long() -> bool {
    env::var_os("DURAMEN_LONG").is_some()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "flights",
    view(ByRoute, key = (origin, dest), value = distance, reduce = (Count, Sum)),
    view(ByNumber, key = number, unique),
    coded(ByMonth),
)]
struct Flight {
    #[key]
    number: u64,
    origin: String,
    dest: String,
    month: u8,
    delay: Option<i32>,
    distance: u32,
}

struct ByMonth;

impl CodedView for ByMonth {
    type Collection = Flight;
    type Key = (u8, bool);
    type Value = Option<i32>;
    type Reduce = (reduce::Count, reduce::Sum);
    const NAME: &'static str = "by_month";
    const VERSION: u32 = 1;

    fn map(flight: &Flight, emit: &mut Emitter<'_, ByMonth>) {
        emit.row((flight.month, flight.delay.is_some_and(|delay| delay > 0)), flight.delay);
    }
}

/// The same flights without views.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "flights")]
struct Plain {
    #[key]
    number: u64,
    origin: String,
    dest: String,
    month: u8,
    delay: Option<i32>,
    distance: u32,
}

fn import(directory: &Path) -> u64 {
    let db = Db::options().background(false).durability(Durability::Process).open(directory).unwrap();
    let every = if is_long() { 1 } else { 100 };
    let flights: Vec<[String; 10]> = cells(COLUMNS).into_iter().step_by(every).collect();
    for (batch, cells) in flights.chunks(2_000).enumerate() {
        let plain = |(index, cells): (usize, &[String; 10])| Plain {
            number: (batch * 2_000 + index) as u64,
            origin: cells[3].clone(),
            dest: cells[6].clone(),
            month: cells[4].parse().unwrap(),
            delay: cells[8].parse().ok(),
            distance: cells[9].parse().unwrap(),
        };
        let plain: Vec<Plain> = cells.iter().enumerate().map(plain).collect();
        db.transact(|tx| plain.iter().try_for_each(|flight| tx.put(flight))).unwrap();
    }
    db.close().unwrap();
    flights.len() as u64
}

/// Delays flights, cancels them and adds new ones until it is stopped. Returns the number of its
/// transactions.
fn disturb(db: &Db, writer: u64, of: u64, stop: &AtomicBool) -> u64 {
    let mut random = 0x5eed_0020 + writer;
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let number = random % of;
        match random >> 60 {
            0..=2 => drop(db.delete::<Flight>(number).unwrap()),
            3..=11 => drop(
                db.modify::<Flight>(number, |flight| {
                    flight.delay = flight.delay.map(|delay| delay - 3);
                    flight.dest = format!("X{}", random % 7);
                    Ok(())
                })
                .unwrap(),
            ),
            _ => {
                let (origin, dest) = ("NEW".to_owned(), format!("Y{}", random % 5));
                let (month, distance) = (u8::try_from(random % 12).unwrap() + 1, 7);
                drop(db.put(&Flight { number, origin, dest, month, delay: None, distance }).unwrap());
            }
        }
        done += 1;
    }
    done
}

/// How many documents the walks of all views have passed, and of how many.
fn built(db: &Db) -> (u64, u64) {
    let of = |phase| match phase {
        ViewPhase::Building { documents, of } => (documents, of),
        _ => (1, 1),
    };
    let states = db.view_states().unwrap();
    let part = |(documents, of): (u64, u64)| documents * 1_000 / of.max(1);
    (states.iter().map(|state| part(of(state.phase))).sum(), states.len() as u64 * 1_000)
}

// The child of the test below; called by anything else it does nothing.
#[test]
fn the_one_who_is_killed() {
    let (Some(directory), Ok(until)) = (env::var_os(DIRECTORY), env::var(BUILD_UNTIL)) else { return };
    let until: u64 = until.parse().unwrap();
    let db = Db::options().background(is_long()).durability(Durability::Process).open(directory).unwrap();
    let of = db.collection::<Plain>().count().unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        db.put(&Flight {
            number: of,
            origin: "A".into(),
            dest: "B".into(),
            month: 1,
            delay: None,
            distance: 1,
        })
        .unwrap();
        let named = ViewSpec::new("by_delay", ["delay"]).values(["distance"]).reduce([Reduce::Sum(0)]);
        db.documents("flights").add_view(named).unwrap();
        for writer in 0..4 {
            let (db, stop, written) = (&db, &stop, &written);
            scope.spawn(move || written.fetch_add(disturb(db, writer, of, stop), Ordering::Relaxed));
        }
        loop {
            let (built, all) = built(&db);
            if built == all {
                break;
            }
            if built >= until {
                // The writers continue until the kill.
                println!("\nbuilt {built}");
                std::io::stdout().flush().unwrap();
                thread::park();
            }
            if is_long() {
                // Polling costs processor time that the others need; its frequency does not matter.
                thread::park_timeout(Duration::from_millis(50));
            } else {
                db.step_background().unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("\nbuilt all beside {} transactions", written.load(Ordering::Relaxed));
    db.close().unwrap();
}

/// Starts the program, and kills it once it has built a given part. Returns its last output.
fn run(directory: &Path, until: u64, kill: bool) -> String {
    let mut child: Child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "under_fire::the_one_who_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(BUILD_UNTIL, until.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let said = lines.find(|line| line.starts_with("built ")).expect("it says how far it is");
    if kill {
        child.kill().unwrap();
        child.wait().unwrap();
    } else {
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }
    said
}

#[test]
fn views_added_under_fire_are_right_after_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flights");
    let begun = Instant::now();
    let flights = import(&path);
    println!("{flights} flights imported in {:?}", begun.elapsed());
    for (until, kill) in [(1_100, true), (2_600, true), (u64::MAX, false)] {
        let begun = Instant::now();
        let said = run(&path, until, kill);
        println!("{said}, of 4000, killed: {kill}, after {:?}", begun.elapsed());
        assert_eq!(said.starts_with("built all"), !kill, "{said}");
    }
    let db = Db::options().background(false).open(&path).unwrap();
    compare(&db);
    assert!(db.check().unwrap().is_clean());
    // The code of the view is known since the query above.
    let report = db.check_documents().unwrap();
    assert!(report.is_clean() && report.unchecked.is_empty(), "{report:?}");
}

/// Every view against the documents, added up one by one.
fn compare(db: &Db) {
    let mut routes: BTreeMap<(String, String), (u64, i128)> = BTreeMap::new();
    let mut months: BTreeMap<(u8, bool), (u64, i128)> = BTreeMap::new();
    let mut delays: BTreeMap<i32, (u64, i128)> = BTreeMap::new();
    let mut numbers = Vec::new();
    for flight in db.collection::<Plain>().iter().unwrap() {
        let Plain { number, origin, dest, month, delay, distance } = flight.unwrap();
        let route = routes.entry((origin, dest)).or_default();
        *route = (route.0 + 1, route.1 + i128::from(distance));
        let of_month = months.entry((month, delay.is_some_and(|delay| delay > 0))).or_default();
        *of_month = (of_month.0 + 1, of_month.1 + i128::from(delay.unwrap_or(0)));
        if let Some(delay) = delay {
            let all = delays.entry(delay).or_default();
            *all = (all.0 + 1, all.1 + i128::from(distance));
        }
        numbers.push(number);
    }
    let found = db.view::<ByRoute>().group_by::<(String, String)>().unwrap();
    assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), routes);
    let found = db.view::<ByMonth>().group_by::<(u8, bool)>().unwrap();
    assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), months);
    let found: Vec<u64> = db.view::<ByNumber>().iter().unwrap().map(|row| row.unwrap().key).collect();
    assert_eq!(found, numbers);
    let documents = db.documents("flights");
    let found: Vec<(Value, u64, Value)> = documents
        .view("by_delay")
        .group_by(1)
        .unwrap()
        .into_iter()
        .map(|(mut key, all)| (Value::from(key.remove(0)), all.count, all.parts[0].value.clone()))
        .collect();
    let wanted: Vec<(Value, u64, Value)> = delays
        .into_iter()
        .map(|(delay, (count, sum))| (Value::from(delay), count, Value::Int(sum)))
        .collect();
    assert_eq!(found, wanted);
    println!("{} documents, {} routes, {} delays compared", numbers.len(), routes.len(), wanted.len());
}
