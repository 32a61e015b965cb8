//! All flights of 2013, typed, with views: every number equals one computed from the file without Duramen.
//! Also a view that is added to existing flights while others write, interrupted twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use duramen::prelude::*;
use duramen::{Disk, MemDisk};

use crate::flights::cells;
use crate::typed_tables;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "flights",
    view(ByCarrier, key = carrier, value = dep_delay, reduce = (Count, Sum, Mean, Min, Max, Sum(distance))),
    view(DelaysByCarrier, key = carrier, value = dep_delay, reduce = (TopK(5), Quantiles, Distinct(tailnum))),
    view(ByOriginDay, key = (origin, month, day), reduce = (Count, Sum(distance))),
    view(ByPlane, key = tailnum, value = dep_delay, reduce = (Count, Sum, Mean)),
    view(ByDest, key = dest),
    view(ByHour, key = (origin, time_hour)),
)]
pub(crate) struct Flight {
    #[key]
    carrier: String,
    #[key]
    time_hour: Time,
    #[key]
    flight: u32,
    #[key]
    origin: String,
    month: u8,
    day: u8,
    dest: String,
    tailnum: Option<String>,
    dep_delay: Option<i32>,
    distance: u32,
}

const NAMES: [&str; 10] =
    ["carrier", "time_hour", "flight", "origin", "month", "day", "dest", "tailnum", "dep_delay", "distance"];

fn flights() -> Vec<Flight> {
    let flight = |cells: [String; 10]| {
        let known = |cell: &String| (cell != "NA").then(|| cell.clone());
        let [carrier, time_hour, flight, origin, month, day, dest, tailnum, dep_delay, distance] = cells;
        Flight {
            carrier,
            time_hour: Time::parse(&time_hour).unwrap(),
            flight: flight.parse().unwrap(),
            origin,
            month: month.parse().unwrap(),
            day: day.parse().unwrap(),
            dest,
            tailnum: known(&tailnum),
            dep_delay: known(&dep_delay).map(|delay| delay.parse().unwrap()),
            distance: distance.parse().unwrap(),
        }
    };
    cells(NAMES).into_iter().map(flight).collect()
}

/// The totals of a group of flights, added one by one.
#[derive(Debug, Default, Clone, PartialEq)]
struct Total {
    count: u64,
    distance: i128,
    delays: Vec<i32>,
}

impl Total {
    fn add(&mut self, flight: &Flight) {
        self.count += 1;
        self.distance += i128::from(flight.distance);
        self.delays.extend(flight.dep_delay);
    }

    fn sum(&self) -> i128 {
        self.delays.iter().map(|delay| i128::from(*delay)).sum()
    }

    #[allow(clippy::cast_precision_loss, reason = "the sums are small")]
    fn mean(&self) -> Option<f64> {
        (!self.delays.is_empty()).then(|| self.sum() as f64 / self.delays.len() as f64)
    }
}

fn grouped<'f, K: Ord>(
    flights: impl IntoIterator<Item = &'f Flight>,
    key: impl Fn(&Flight) -> Option<K>,
) -> BTreeMap<K, Total> {
    let mut groups: BTreeMap<K, Total> = BTreeMap::new();
    for flight in flights {
        if let Some(key) = key(flight) {
            groups.entry(key).or_default().add(flight);
        }
    }
    groups
}

fn check_views(db: &Db, flights: &[Flight]) {
    let carriers = grouped(flights, |flight| Some(flight.carrier.clone()));
    let found = db.view::<ByCarrier>().group_by::<String>().unwrap();
    assert_eq!(found.len(), carriers.len());
    for (carrier, (count, sum, mean, min, max, distance)) in found {
        let total = &carriers[&carrier];
        assert_eq!((count, sum, distance), (total.count, total.sum(), total.distance), "{carrier}");
        assert_eq!(mean, total.mean(), "{carrier}");
        assert_eq!(
            (min, max),
            (total.delays.iter().min().copied(), total.delays.iter().max().copied()),
            "{carrier}"
        );
    }
    let days = grouped(flights, |flight| Some((flight.origin.clone(), flight.month, flight.day)));
    let found = db.view::<ByOriginDay>().group_by::<(String, u8, u8)>().unwrap();
    let found: Vec<_> = found.into_iter().map(|(day, (count, distance))| (day, count, distance)).collect();
    let wanted: Vec<_> = days.into_iter().map(|(day, total)| (day, total.count, total.distance)).collect();
    assert_eq!(found, wanted);
    let planes = grouped(flights, |flight| flight.tailnum.clone());
    let found = db.view::<ByPlane>().group_by::<String>().unwrap();
    assert_eq!(found.len(), planes.len());
    for (plane, (count, sum, mean)) in found {
        let total = &planes[&plane];
        assert_eq!((count, sum, mean), (total.count, total.sum(), total.mean()), "{plane}");
    }
}

#[test]
fn every_view_of_every_flight_is_right() {
    let flights = flights();
    let db = Db::in_memory().unwrap();
    for batch in flights.chunks(2_000) {
        db.at(Durability::Memory).transact(|tx| batch.iter().try_for_each(|flight| tx.put(flight))).unwrap();
    }
    assert_eq!(db.collection::<Flight>().count().unwrap(), 336_776);
    let (count, sum, _, _, _, distance) = db.view::<ByCarrier>().reduce().unwrap();
    assert_eq!((count, sum, distance), (336_776, 4_152_200, 350_217_607));
    let (count, sum, ..) = db.view::<ByCarrier>().key("UA").reduce().unwrap();
    assert_eq!((count, sum), (58_665, 701_898));
    check_views(&db, &flights);
    typed_tables::load(&db);
    typed_tables::check_answers(&db);
}

/// The same flights without their views.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "flights")]
struct Plain {
    #[key]
    carrier: String,
    #[key]
    time_hour: Time,
    #[key]
    flight: u32,
    #[key]
    origin: String,
    month: u8,
    day: u8,
    dest: String,
    tailnum: Option<String>,
    dep_delay: Option<i32>,
    distance: u32,
}

impl From<Flight> for Plain {
    fn from(flight: Flight) -> Plain {
        let Flight { carrier, time_hour, flight, origin, month, day, dest, tailnum, dep_delay, distance } =
            flight;
        Plain { carrier, time_hour, flight, origin, month, day, dest, tailnum, dep_delay, distance }
    }
}

// Views are added to January's flights while four writers delay flights, cancel them and add new ones. The
// database is closed twice before the views are built.
#[test]
fn views_added_to_flights_beside_writers_are_right() {
    let january: Vec<Flight> = flights().into_iter().filter(|flight| flight.month == 1).collect();
    assert_eq!(january.len(), 27_004);
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(1));
    let options = || Db::options().durability(Durability::Process).background(false);
    let open = || options().open_on(Arc::clone(&disk), "/db").unwrap();
    let db = open();
    for batch in january.chunks(2_000) {
        let plain: Vec<Plain> = batch.iter().cloned().map(Plain::from).collect();
        db.transact(|tx| plain.iter().try_for_each(|flight| tx.put(flight))).unwrap();
    }
    db.close().unwrap();
    drop(db);
    for stop_at in [5, 20, usize::MAX] {
        let db = open();
        thread::scope(|scope| {
            for writer in 0..4 {
                let (db, january) = (&db, &january);
                scope.spawn(move || disturb(db, january, writer, stop_at));
            }
            let mut steps = 0;
            let built = db.build_views::<Flight>(|_| {
                steps += 1;
                if steps < stop_at { Ok(()) } else { Err(Error::invalid("stopped")) }
            });
            assert_eq!(built.is_err(), stop_at < usize::MAX);
        });
        db.close().unwrap();
    }
    let db = open();
    let now = db.collection::<Flight>().to_vec().unwrap();
    assert!(now.len() > 20_000 && now != january, "the writers did something");
    check_views(&db, &now);
    assert!(db.check().unwrap().is_clean());
}

fn disturb(db: &Db, january: &[Flight], writer: usize, round: usize) {
    for step in 0..200 {
        let flight = &january[(step * 131 + writer * 7 + round % 1_000) % january.len()];
        let key = (&flight.carrier, flight.time_hour, flight.flight, &flight.origin);
        match step % 3 {
            0 => drop(db.delete::<Flight>(key).unwrap()),
            1 => drop(
                db.modify::<Flight>(key, |flight| {
                    flight.dep_delay = flight.dep_delay.map(|delay| delay + 17);
                    flight.tailnum = Some(format!("N{writer}"));
                    Ok(())
                })
                .unwrap(),
            ),
            _ => drop(
                db.put(&Flight { flight: 9_000 + flight.flight, distance: 1, ..flight.clone() }).unwrap(),
            ),
        }
    }
}
