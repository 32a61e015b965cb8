//! Random work on key-values against a map. The clock jumps forward, backward and over reopenings; every
//! answer is the same.

use std::collections::BTreeMap;

use duramen::kv::CompareAndSet;
use duramen::prelude::*;
use duramen::{Kv, MemDisk};
use proptest::prelude::*;

use super::{MS, START, open_on};

const NAMESPACES: [&str; 2] = ["a", "b"];
const KEYS: [&str; 4] = ["", "k", "k\0", "l"];

#[derive(Debug, Clone)]
enum Step {
    Put(usize, usize, i64, Lives),
    PutIf(usize, usize, i64, Lives, bool),
    Replace(usize, usize, i64, Lives),
    CompareAndSet(usize, usize, Option<i64>, Option<i64>),
    Increment(usize, usize, i64),
    Take(usize, usize),
    Touch(usize, usize, Lives),
    Clear(usize),
    Expire,
    Clock(i64),
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum Lives {
    Forever,
    Keep,
    Ms(u64),
}

impl Lives {
    fn ttl(self) -> Ttl {
        match self {
            Lives::Forever => Ttl::forever(),
            Lives::Keep => Ttl::keep(),
            Lives::Ms(ms) => Ttl::millis(ms),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let (n, k) = (0..NAMESPACES.len(), 0..KEYS.len());
    let lives = prop_oneof![Just(Lives::Forever), Just(Lives::Keep), (0_u64..200).prop_map(Lives::Ms)];
    let value = -2_i64..3;
    prop_oneof![
        4 => (n.clone(), k.clone(), value.clone(), lives.clone()).prop_map(|(n, k, v, l)| Step::Put(n, k, v, l)),
        2 => (n.clone(), k.clone(), value.clone(), lives.clone(), any::<bool>())
            .prop_map(|(n, k, v, l, there)| Step::PutIf(n, k, v, l, there)),
        2 => (n.clone(), k.clone(), value.clone(), lives.clone()).prop_map(|(n, k, v, l)| Step::Replace(n, k, v, l)),
        3 => (n.clone(), k.clone(), prop::option::of(value.clone()), prop::option::of(value.clone()))
            .prop_map(|(n, k, old, new)| Step::CompareAndSet(n, k, old, new)),
        3 => (n.clone(), k.clone(), value).prop_map(|(n, k, by)| Step::Increment(n, k, by)),
        2 => (n.clone(), k.clone()).prop_map(|(n, k)| Step::Take(n, k)),
        2 => (n.clone(), k, lives).prop_map(|(n, k, l)| Step::Touch(n, k, l)),
        1 => n.prop_map(Step::Clear),
        2 => Just(Step::Expire),
        6 => (-50_i64..150).prop_map(Step::Clock),
        1 => Just(Step::Reopen),
    ]
}

/// The values, their expiry, and the time.
#[derive(Default)]
struct Model {
    values: BTreeMap<(usize, usize), (i64, Option<u64>)>,
    now: u64,
}

impl Model {
    fn get(&self, at: (usize, usize)) -> Option<(i64, Option<u64>)> {
        self.values.get(&at).copied().filter(|(_, expires)| expires.is_none_or(|expires| self.now < expires))
    }

    fn set(&mut self, at: (usize, usize), value: i64, lives: Lives) {
        let expires = match lives {
            Lives::Forever => None,
            Lives::Keep => self.get(at).and_then(|(_, expires)| expires),
            Lives::Ms(ms) => Some(self.now + ms),
        };
        self.values.insert(at, (value, expires));
    }

    fn value(&self, at: (usize, usize)) -> Option<i64> {
        self.get(at).map(|(value, _)| value)
    }
}

fn run(db: &Db, model: &mut Model, step: &Step) {
    let kv = |n: usize| -> Kv { db.kv(NAMESPACES[n]) };
    match *step {
        Step::Put(n, k, value, lives) => {
            kv(n).put_with(KEYS[k], &value, lives.ttl()).unwrap();
            model.set((n, k), value, lives);
        }
        Step::PutIf(n, k, value, lives, there) => {
            let put = if there {
                kv(n).put_if_present(KEYS[k], &value, lives.ttl()).unwrap()
            } else {
                kv(n).put_if_absent(KEYS[k], &value, lives.ttl()).unwrap()
            };
            assert_eq!(put, model.get((n, k)).is_some() == there);
            if put {
                model.set((n, k), value, lives);
            }
        }
        Step::Replace(n, k, value, lives) => {
            assert_eq!(kv(n).replace(KEYS[k], &value, lives.ttl()).unwrap(), model.value((n, k)));
            model.set((n, k), value, lives);
        }
        Step::CompareAndSet(n, k, old, new) => {
            let now = model.value((n, k));
            let done = kv(n).compare_and_set(KEYS[k], old.as_ref(), new.as_ref()).unwrap();
            assert_eq!(done, if now == old { CompareAndSet::Set } else { CompareAndSet::Differs(now) });
            match new {
                Some(new) if now == old => model.set((n, k), new, Lives::Keep),
                None if now == old => drop(model.values.remove(&(n, k))),
                _ => {}
            }
        }
        Step::Increment(n, k, by) => {
            let sum = model.value((n, k)).unwrap_or(0) + by;
            assert_eq!(kv(n).increment(KEYS[k], by).unwrap(), sum);
            model.set((n, k), sum, Lives::Keep);
        }
        Step::Take(n, k) => {
            assert_eq!(kv(n).take(KEYS[k]).unwrap(), model.value((n, k)));
            model.values.remove(&(n, k));
        }
        Step::Touch(n, k, lives) => {
            assert_eq!(kv(n).touch(KEYS[k], lives.ttl()).unwrap(), model.get((n, k)).is_some());
            if let Some(value) = model.value((n, k)) {
                model.set((n, k), value, lives);
            }
        }
        Step::Clear(n) => {
            kv(n).clear().unwrap();
            model.values.retain(|(namespace, _), _| *namespace != n);
        }
        Step::Expire => drop(db.sweep_expired().unwrap()),
        Step::Clock(_) | Step::Reopen => {}
    }
}

fn compare(db: &Db, model: &Model) {
    for (n, namespace) in NAMESPACES.into_iter().enumerate() {
        let live: Vec<(String, i64)> = (0..KEYS.len())
            .filter_map(|k| model.value((n, k)).map(|value| (KEYS[k].to_owned(), value)))
            .collect();
        let values = db.kv(namespace);
        let found: Vec<_> = values.scan::<String, i64>(Span::all()).unwrap().map(Result::unwrap).collect();
        assert_eq!(found, live);
        assert_eq!(values.count(Span::all()).unwrap(), live.len() as u64);
        let from_k = live.iter().filter(|(key, _)| key.as_str() >= "k").count() as u64;
        assert_eq!(values.count(Span::from("k").unwrap()).unwrap(), from_k);
        for (k, key) in KEYS.into_iter().enumerate() {
            let wanted = model.get((n, k));
            assert_eq!(values.get::<i64>(key).unwrap(), wanted.map(|(value, _)| value));
            let left = wanted.and_then(|(_, expires)| expires).map(|expires| u128::from(expires - model.now));
            assert_eq!(values.ttl(key).unwrap().map(|left| left.as_millis()), left);
        }
    }
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    /// For any methods, order and clock, key-values are a map whose entries expire.
    #[test]
    fn key_values_are_a_map_whose_entries_end(steps in prop::collection::vec(step(), 1..60)) {
        let disk = MemDisk::new(1);
        let mut db = open_on(&disk);
        let mut model = Model { now: START / MS, ..Model::default() };
        let mut wall = START / MS;
        // A clock counts from its first reading.
        disk.set_wall_clock(wall * MS);
        assert!(db.snapshot().unwrap().time().seconds() > 0);
        for step in &steps {
            match step {
                Step::Clock(ms) => wall = wall.saturating_add_signed(*ms),
                Step::Reopen => {
                    // A clock that shows an earlier time at an opening would bring back values that were not
                    // deleted.
                    wall = wall.max(model.now);
                    db.close().unwrap();
                    drop(db);
                    db = open_on(&disk);
                }
                _ => {}
            }
            model.now = model.now.max(wall);
            // The disk's clock advances with every reading: less than a millisecond in a step.
            disk.set_wall_clock(wall * MS);
            run(&db, &mut model, step);
            compare(&db, &model);
        }
    }
}
