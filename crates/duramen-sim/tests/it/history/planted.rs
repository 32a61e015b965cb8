//! Write skew and phantoms, planted: of two transactions that each read what the other writes, one is refused
//! (I1).

use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{
    Background, Builtin, Direction, Durability, Engine, ErrorKind, KeyRange, Transaction, TreeId,
};

use super::open;

fn ward() -> KeyRange {
    KeyRange::between("a0", "a:")
}

fn value(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Keys `a0..a9` and `b0..b9`, each worth 1, in a tree that sums.
fn wards() -> (Engine, TreeId) {
    let engine = open(Arc::new(MemDisk::new(36)), Path::new("/db"), Background::Stepped);
    let made = engine.transact(Durability::Disk, |tx| {
        let id = tx.create_tree("wards", Some(Builtin::Sum.spec()))?;
        for ward in ["a", "b"] {
            for doctor in 0..10 {
                tx.put(id, format!("{ward}{doctor}").as_bytes(), &value(1))?;
            }
        }
        Ok(id)
    });
    (engine, made.unwrap().0)
}

type Count = dyn Fn(&mut Transaction, TreeId) -> i128;

type Body<'a> = dyn Fn(&mut Transaction, TreeId) + 'a;

/// Begins and fills both, commits the first, and returns whether the second is refused.
fn second_must_go(first: &Body<'_>, second: &Body<'_>) -> bool {
    let (engine, id) = wards();
    let (mut one, mut other) = (engine.begin().unwrap(), engine.begin().unwrap());
    first(&mut one, id);
    second(&mut other, id);
    one.commit(Durability::Disk).unwrap();
    match other.commit(Durability::Disk) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            true
        }
    }
}

fn check(name: &str, expected: bool, writes: &Body<'_>, reads: &Body<'_>) {
    let second: &Body<'_> = &|tx, id| {
        reads(tx, id);
        tx.put(id, b"z-own", &value(7)).unwrap();
    };
    assert_eq!(second_must_go(writes, second), expected, "{name}");
}

#[test]
fn two_doctors_cannot_both_leave_whichever_way_they_count() {
    let counts: [(&str, &Count); 5] = [
        ("by keys", &|tx, id| {
            (0..10).filter(|n| tx.get(id, format!("a{n}").as_bytes()).unwrap().is_some()).count() as i128
        }),
        ("by rows", &|tx, id| tx.rows(id, ward(), Direction::Forward).unwrap().into_iter().count() as i128),
        ("by count", &|tx, id| i128::from(tx.count(id, &ward()).unwrap())),
        ("by rank", &|tx, id| i128::from(tx.rank(id, b"a:").unwrap())),
        ("by sum", &|tx, id| {
            let sum = tx.reduce(id, &ward()).unwrap().value.unwrap();
            i128::from_le_bytes(sum.try_into().unwrap())
        }),
    ];
    for (name, count) in counts {
        let leaves = |own: &'static str| {
            move |tx: &mut Transaction, id: TreeId| {
                assert_eq!(count(tx, id), 10);
                tx.delete(id, own.as_bytes()).unwrap();
            }
        };
        assert!(second_must_go(&leaves("a1"), &leaves("a2")), "{name}");
    }
}

#[test]
fn two_ranges_crossed_cannot_both_commit() {
    let sum_of = |ward: &'static str, into: &'static str| {
        move |tx: &mut Transaction, id: TreeId| {
            let sum = tx.reduce(id, &KeyRange::prefix(ward.as_bytes())).unwrap().value.unwrap();
            tx.put(id, into.as_bytes(), &sum[..8]).unwrap();
        }
    };
    assert!(second_must_go(&sum_of("a", "b-sum"), &sum_of("b", "a-sum")));
    assert!(!second_must_go(&sum_of("a", "c"), &sum_of("b", "d")), "nothing is crossed");
}

#[test]
fn what_was_absent_or_not_reached_counts_as_read() {
    let put = |key: &'static str| {
        move |tx: &mut Transaction, id: TreeId| tx.put(id, key.as_bytes(), &value(5)).unwrap()
    };
    let first_two = |tx: &mut Transaction, id: TreeId| {
        let range = KeyRange { from: b"a5".to_vec(), to: None };
        assert_eq!(tx.rows(id, range, Direction::Forward).unwrap().into_iter().take(2).count(), 2);
    };
    check("an absent key", true, &put("a5x"), &|tx, id| assert_eq!(tx.get(id, b"a5x").unwrap(), None));
    check("another key", false, &put("a5x"), &|tx, id| assert_eq!(tx.get(id, b"a5y").unwrap(), None));
    check("a phantom in a range", true, &put("a5x"), &|tx, id| {
        tx.rows(id, KeyRange::between("a5", "a6"), Direction::Forward).unwrap();
    });
    check("a phantom in an empty range", true, &put("c5"), &|tx, id| {
        assert_eq!(tx.count(id, &KeyRange::prefix(b"c")).unwrap(), 0);
    });
    check("a phantom before the limit of a scan", true, &put("a5x"), &first_two);
    check("before a scan", false, &put("a4"), &first_two);
    check("a phantom before a rank", true, &put("a4x"), &|tx, id| assert_eq!(tx.rank(id, b"a5").unwrap(), 5));
    check("after a rank", false, &put("a5x"), &|tx, id| assert_eq!(tx.rank(id, b"a5").unwrap(), 5));
    check("a phantom before the n-th", true, &put("a0x"), &|tx, id| {
        assert!(tx.nth(id, 3).unwrap().is_some())
    });
    check("an n-th that is not there", true, &put("x"), &|tx, id| assert!(tx.nth(id, 20).unwrap().is_none()));
    check("a sum of nothing", true, &put("c5"), &|tx, id| {
        assert_eq!(tx.reduce(id, &KeyRange::prefix(b"c")).unwrap().value, None);
    });
}

#[test]
fn trees_that_come_and_go_count_as_read() {
    let creates = |tx: &mut Transaction, _: TreeId| {
        tx.create_tree("new", None).unwrap();
    };
    let drops = |tx: &mut Transaction, _: TreeId| tx.drop_tree("wards").unwrap();
    check("an absent tree", true, &creates, &|tx, _| assert_eq!(tx.tree("new").unwrap(), None));
    check("the list of trees", true, &creates, &|tx, _| assert_eq!(tx.trees().unwrap().len(), 1));
    check("two creations of one name", true, &creates, &creates);
    check("another tree", false, &creates, &|tx, _| assert!(tx.tree("wards").unwrap().is_some()));
    check("a tree that is dropped", true, &drops, &|tx, _| assert!(tx.tree("wards").unwrap().is_some()));
}

#[test]
fn what_a_transaction_wrote_itself_does_not_hide_what_it_read() {
    let put = |key: &'static str| {
        move |tx: &mut Transaction, id: TreeId| tx.put(id, key.as_bytes(), &value(5)).unwrap()
    };
    check("a count after own writes", true, &put("a5x"), &|tx, id| {
        tx.put(id, b"a5y", &value(1)).unwrap();
        assert_eq!(tx.count(id, &KeyRange::prefix(b"a")).unwrap(), 11);
    });
    check("a read of an own write is none", false, &put("a5"), &|tx, id| {
        tx.put(id, b"a5", &value(9)).unwrap();
        assert!(tx.get(id, b"a5").unwrap().is_some());
    });
    check("blind writes never conflict", false, &put("a5"), &|tx, id| tx.delete(id, b"a5").unwrap());
}
