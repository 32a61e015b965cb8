//! All flights of 2013, typed, with views: every number equals one computed from the file without Duramen.
//! Also a view that is added to existing flights while others write, interrupted twice.

use std::sync::Arc;
use std::thread;

use duramen::prelude::*;
use duramen::{Disk, MemDisk};

use crate::year::{self, Flight, check_views, flights};

#[test]
fn every_view_of_every_flight_is_right() {
    let db = Db::in_memory().unwrap();
    year::check(&db.at(Durability::Memory));
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
