//! The other tables of the flights, typed, and joins of all five, compared with data/nycflights/answers.tsv.
//! scripts/flights-by-hand computes that file from the tables without Duramen.

use std::collections::BTreeSet;

use duramen::prelude::*;
use duramen::view::reduce::Distinct;

use crate::flights_table::{FLIGHTS, cells_of};
use crate::year::{ByCarrier, ByDest, ByHour, ByOriginDay, ByPlane, DelaysByCarrier};

const ANSWERS: &str = include_str!("../../../../data/nycflights/answers.tsv");

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "airlines")]
struct Airline {
    #[key]
    carrier: String,
    name: String,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "airports")]
struct Airport {
    #[key]
    faa: String,
    name: String,
    lat: f64,
    lon: f64,
    alt: i32,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "planes", view(ByMaker, key = manufacturer))]
struct Plane {
    #[key]
    tailnum: String,
    year: Option<u16>,
    manufacturer: String,
    model: String,
    seats: u16,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "weather")]
struct Weather {
    #[key]
    origin: String,
    #[key]
    time_hour: Time,
    temp: Option<f64>,
    visib: f64,
}

/// The cells of a table beside the flights.
fn cells<const N: usize>(table: &str, wanted: [&str; N]) -> Vec<[String; N]> {
    cells_of(&FLIGHTS.replace("flights.csv", &format!("{table}.csv")), wanted)
}

fn known<T: std::str::FromStr<Err: std::fmt::Debug>>(cell: &str) -> Option<T> {
    (cell != "NA").then(|| cell.parse().unwrap())
}

/// Loads airlines, airports, planes and weather beside the flights.
pub(crate) fn load(db: &impl Store) {
    db.transact(|tx| {
        for [carrier, name] in cells("airlines", ["carrier", "name"]) {
            tx.insert(&Airline { carrier, name })?;
        }
        for [faa, name, lat, lon, alt] in cells("airports", ["faa", "name", "lat", "lon", "alt"]) {
            let (lat, lon, alt) = (known(&lat).unwrap(), known(&lon).unwrap(), known(&alt).unwrap());
            tx.insert(&Airport { faa, name, lat, lon, alt })?;
        }
        let columns = ["tailnum", "year", "manufacturer", "model", "seats"];
        for [tailnum, year, manufacturer, model, seats] in cells("planes", columns) {
            let (year, seats) = (known(&year), known(&seats).unwrap());
            tx.insert(&Plane { tailnum, year, manufacturer, model, seats })?;
        }
        for [origin, time_hour, temp, visib] in cells("weather", ["origin", "time_hour", "temp", "visib"]) {
            let time_hour = Time::parse(&time_hour).unwrap();
            tx.insert(&Weather { origin, time_hour, temp: known(&temp), visib: known(&visib).unwrap() })?;
        }
        Ok(())
    })
    .unwrap();
}

/// Compares the database with every line of the answers.
pub(crate) fn check_answers(db: &impl Store) {
    check_carriers(db);
    check_sketches(db);
    check_planes(db);
    assert_eq!(days(db), lines("day"));
    assert_eq!(makers(db), lines("maker"));
    assert_eq!(missing(db), lines("missing"));
    assert_eq!(vec![fog(db).to_string()], lines("fog"));
    let words: BTreeSet<&str> = ANSWERS.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(words, BTreeSet::from(["carrier", "day", "fog", "maker", "missing", "plane"]));
}

/// The answers of a word, without it.
fn lines(word: &str) -> Vec<String> {
    let rest = |line: &str| Some(line.strip_prefix(word)?.strip_prefix('\t')?.to_owned());
    ANSWERS.lines().filter_map(rest).collect()
}

#[allow(clippy::cast_precision_loss, reason = "the sums are small")]
fn mean(sum: i128, delays: i128) -> Option<f64> {
    (delays > 0).then(|| sum as f64 / delays as f64)
}

fn check_carriers(db: &impl Store) {
    let found = db.view::<ByCarrier>().group_by::<String>().unwrap();
    let wanted = lines("carrier");
    assert_eq!(found.len(), wanted.len());
    for ((carrier, (count, sum, average, min, max, _)), line) in found.into_iter().zip(wanted) {
        let cells: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| cells[at].parse::<i128>().unwrap();
        let airline: Airline = db.get(&carrier).unwrap().unwrap();
        assert_eq!((carrier.as_str(), airline.name.as_str()), (cells[0], cells[1]));
        assert_eq!(
            (i128::from(count), sum, average),
            (number(2), number(4), mean(number(4), number(3))),
            "{line}"
        );
        assert_eq!((min.map(i128::from), max.map(i128::from)), (Some(number(5)), Some(number(6))), "{line}");
    }
}

/// Quantiles and distinct counts are within their stated errors; the largest values are exact.
#[allow(clippy::cast_precision_loss, reason = "some thousand planes")]
fn check_sketches(db: &impl Store) {
    let found = db.view::<DelaysByCarrier>().group_by::<String>().unwrap();
    let wanted = lines("carrier");
    assert_eq!(found.len(), wanted.len());
    for ((carrier, (largest, delays, planes)), line) in found.into_iter().zip(wanted) {
        let cells: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| cells[at].parse::<f64>().unwrap();
        for (at, q) in [(5, 0.0), (7, 0.5), (8, 0.9), (9, 0.99), (6, 1.0)] {
            let (about, right) = (delays.quantile(q).unwrap(), number(at));
            assert!(
                (about - right).abs() <= right.abs() * delays.relative_error(),
                "{carrier} {q}: {about}, {right}"
            );
        }
        assert!(delays.relative_error() < 0.01, "{carrier}");
        let right = number(10);
        assert!(
            (planes as f64 - right).abs() <= 4.0 * Distinct::STANDARD_ERROR * right + 0.5,
            "{carrier}: {planes}, {right}"
        );
        let largest: Vec<String> = largest.iter().map(i32::to_string).collect();
        assert_eq!(largest.join(","), cells[11], "{carrier}");
    }
}

fn check_planes(db: &impl Store) {
    let found = db.view::<ByPlane>().group_by::<String>().unwrap();
    let wanted = lines("plane");
    assert_eq!(found.len(), wanted.len());
    for ((plane, (count, sum, average)), line) in found.into_iter().zip(wanted) {
        let (name, numbers) = line.split_once('\t').unwrap();
        let numbers: Vec<i128> = numbers.split('\t').map(|cell| cell.parse().unwrap()).collect();
        assert_eq!((plane.as_str(), i128::from(count), sum), (name, numbers[0], numbers[2]));
        assert_eq!(average, mean(numbers[2], numbers[1]), "{line}");
    }
}

fn days(db: &impl Store) -> Vec<String> {
    let line = |((origin, month, day), (count, miles))| format!("{origin}\t{month}\t{day}\t{count}\t{miles}");
    db.view::<ByOriginDay>().group_by::<(String, u8, u8)>().unwrap().into_iter().map(line).collect()
}

fn makers(db: &impl Store) -> Vec<String> {
    let line = |(maker, _): (String, u64)| {
        let (mut flights, mut seats) = (0, 0);
        for plane in db.view::<ByMaker>().key(&maker).docs().unwrap() {
            let flown = db.view::<ByPlane>().key(&plane.tailnum).count().unwrap();
            flights += flown;
            seats += flown * u64::from(plane.seats);
        }
        (flights > 0).then(|| format!("{maker}\t{flights}\t{seats}"))
    };
    db.view::<ByMaker>().group_by::<String>().unwrap().into_iter().filter_map(line).collect()
}

/// Rows without a counterpart in another table.
fn missing(db: &impl Store) -> Vec<String> {
    let flights = db.view::<ByCarrier>().count().unwrap();
    let airports: BTreeSet<String> = db.collection::<Airport>().keys().unwrap().map(Result::unwrap).collect();
    let dests = db.view::<ByDest>().group_by::<String>().unwrap();
    let mut lines: Vec<String> = dests
        .into_iter()
        .filter(|(dest, _)| !airports.contains(dest))
        .map(|(dest, _)| format!("airport\t{dest}"))
        .collect();
    let with_plane: u64 = db
        .collection::<Plane>()
        .keys()
        .unwrap()
        .map(|tailnum| db.view::<ByPlane>().key(tailnum.unwrap()).count().unwrap())
        .sum();
    lines.push(format!("plane\t{}", flights - with_plane));
    lines.push(format!("weather\t{}", flights - flights_in(db, |_| true)));
    lines
}

fn fog(db: &impl Store) -> u64 {
    flights_in(db, |weather| weather.visib < 1.0)
}

/// The flights that departed in hours of some weather.
fn flights_in(db: &impl Store, is_meant: impl Fn(&Weather) -> bool) -> u64 {
    let snapshot = db.snapshot().unwrap();
    let hours = snapshot.collection::<Weather>().iter().unwrap().map(Result::unwrap);
    let of_hour = |weather: Weather| {
        snapshot.view::<ByHour>().key((weather.origin, weather.time_hour)).count().unwrap()
    };
    hours.filter(is_meant).map(of_hour).sum()
}
