//! All flights of 2013, typed, with views, and the other tables: every number equals one computed from the
//! files without Duramen. On a database in this process, and on one that another serves.

use std::collections::BTreeMap;

use duramen::prelude::*;

use crate::flights_table::cells;
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
    pub(crate) carrier: String,
    #[key]
    pub(crate) time_hour: Time,
    #[key]
    pub(crate) flight: u32,
    #[key]
    pub(crate) origin: String,
    pub(crate) month: u8,
    pub(crate) day: u8,
    pub(crate) dest: String,
    pub(crate) tailnum: Option<String>,
    pub(crate) dep_delay: Option<i32>,
    pub(crate) distance: u32,
}

const NAMES: [&str; 10] =
    ["carrier", "time_hour", "flight", "origin", "month", "day", "dest", "tailnum", "dep_delay", "distance"];

pub(crate) fn flights() -> Vec<Flight> {
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

pub(crate) fn check_views(db: &impl Store, flights: &[Flight]) {
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

/// Loads everything, and checks every answer.
pub(crate) fn check(db: &impl Store) {
    let flights = flights();
    for batch in flights.chunks(2_000) {
        db.transact(|tx| batch.iter().try_for_each(|flight| tx.put(flight))).unwrap();
    }
    assert_eq!(db.collection::<Flight>().count().unwrap(), 336_776);
    let (count, sum, _, _, _, distance) = db.view::<ByCarrier>().reduce().unwrap();
    assert_eq!((count, sum, distance), (336_776, 4_152_200, 350_217_607));
    let (count, sum, ..) = db.view::<ByCarrier>().key("UA").reduce().unwrap();
    assert_eq!((count, sum), (58_665, 701_898));
    check_views(db, &flights);
    typed_tables::load(db);
    typed_tables::check_answers(db);
}
