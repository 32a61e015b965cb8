//! Transactions that rest between calls: what is carried from call to call, what ends them, and lifetimes
//! that pass while they rest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use duramen::prelude::*;
use duramen::{Code, MemDisk, OpenTransaction};
use duramen_engine::Background;

use crate::references::{Post, User};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const START: u64 = 1_800_000_000 * SECOND;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(ByCity, key = city, value = cents, reduce = (Count, Sum)))]
struct Order {
    #[key(assigned)]
    id: u64,
    city: String,
    cents: i64,
}

fn order(city: &str, cents: i64) -> Order {
    Order { id: 0, city: city.to_owned(), cents }
}

fn user(id: u64) -> User {
    User { id, name: format!("user {id}") }
}

fn post(id: u64, author: u64) -> Post {
    Post { id, author, reviewer: None, readers: Vec::new(), size: 1 }
}

/// A database whose clock stands at [`START`].
fn open() -> (MemDisk, Db) {
    let disk = MemDisk::new(1);
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    let db = options.open_on(Arc::new(disk.clone()), "/db").unwrap();
    disk.set_wall_clock(START);
    (disk, db)
}

fn code(committed: Result<duramen::Receipt>) -> Code {
    committed.unwrap_err().code()
}

/// What one call writes the next one reads, in whatever thread; others see it after the commit, all at once.
#[test]
fn calls_share_one_state_and_its_writes() -> Result<()> {
    let (_disk, db) = open();
    db.push(order("Oslo", 10))?;
    let called = Arc::new(AtomicBool::new(false));
    let mut open = db.begin()?;
    let noted = Arc::clone(&called);
    let pushed = open.with(|tx| {
        tx.after_commit(move || noted.store(true, Ordering::SeqCst));
        tx.push(order("Oslo", 20))
    })?;
    db.push(order("Bergen", 40))?;
    let mut open = thread::spawn(move || {
        let total = open.with(|tx| tx.view::<ByCity>().reduce());
        assert_eq!(total.unwrap(), (2, 30), "its own write, and not that of others");
        open
    })
    .join()
    .unwrap();
    assert_eq!(open.with(|tx| tx.get::<Order>(pushed.id))?.map(|order| order.cents), Some(20));
    assert_eq!(db.get::<Order>(pushed.id)?, None);
    // What it read has changed.
    assert_eq!(code(open.commit()), Code::WriteConflict);
    assert!(!called.load(Ordering::SeqCst));

    let mut open = db.begin()?;
    let noted = Arc::clone(&called);
    open.with(|tx| {
        tx.after_commit(move || noted.store(true, Ordering::SeqCst));
        tx.push(order("Oslo", 20))
    })?;
    db.push(order("Bergen", 80))?;
    open.with(|tx| tx.push(order("Oslo", 160)))?;
    let receipt = open.commit()?;
    assert_eq!(receipt.durability(), Durability::Disk);
    assert!(called.load(Ordering::SeqCst));
    assert_eq!(db.view::<ByCity>().reduce()?, (5, 310));
    assert!(db.check_documents()?.is_clean());

    // Dropped, it has no effect.
    let mut open = db.begin()?;
    open.with(|tx| tx.push(order("Oslo", 1)))?;
    drop(open);
    assert_eq!(db.view::<ByCity>().reduce()?, (5, 310));
    Ok(())
}

/// References are settled where the transaction commits, whichever call made them necessary.
#[test]
fn references_are_settled_at_the_commit() -> Result<()> {
    let (_disk, db) = open();
    let mut open = db.begin()?;
    open.with(|tx| tx.put(&post(1, 7)))?;
    open.with(|tx| tx.put(&user(7)))?;
    open.commit()?;

    let mut open = db.begin()?;
    open.with(|tx| tx.put(&post(2, 8)))?;
    assert_eq!(code(open.commit()), Code::MissingTarget);

    // The author goes while a post of it is on its way.
    let mut open = db.begin()?;
    open.with(|tx| tx.put(&post(3, 7)))?;
    db.delete::<User>(7)?;
    assert_eq!(code(open.commit()), Code::WriteConflict);
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

fn begin_with(db: &Db, run: impl FnOnce(&mut duramen::Transaction<'_>) -> Result<()>) -> OpenTransaction {
    let mut open = db.begin().unwrap();
    open.with(run).unwrap();
    open
}

/// I1: a lock that was read as held may be another's by the time of the commit, and nothing in the database
/// has changed for that.
#[test]
fn a_lock_that_ends_before_the_commit_is_a_conflict() -> Result<()> {
    let reads: [fn(&mut duramen::Transaction<'_>) -> Result<bool>; 6] = [
        |tx| Ok(tx.kv("locks").get::<String>("job")?.is_some()),
        |tx| tx.kv("locks").exists("job"),
        |tx| Ok(tx.kv("locks").ttl("job")?.is_some()),
        |tx| Ok(tx.kv("locks").count(Span::all())? == 1),
        |tx| Ok(tx.kv("locks").scan::<String, String>(Span::all())?.count() == 1),
        |tx| Ok(!tx.kv("locks").put_if_absent("job", "other", Ttl::seconds(10))?),
    ];
    for (number, holds) in reads.into_iter().enumerate() {
        for after in [10 * SECOND - MS, 10 * SECOND] {
            let (disk, db) = open();
            db.kv("locks").put_with("job", "me", Ttl::seconds(10))?;
            let work = begin_with(&db, |tx| {
                assert!(holds(tx)?, "read {number}");
                tx.kv("done").put("by", "me")
            });
            disk.set_wall_clock(START + after);
            if after < 10 * SECOND {
                work.commit()?;
            } else {
                assert_eq!(code(work.commit()), Code::WriteConflict, "read {number}");
            }
            assert_eq!(db.kv("done").exists("by")?, after < 10 * SECOND, "read {number}");
        }
    }
    Ok(())
}

/// One that it takes must still be there when others can see it. A value that is overwritten is not relied
/// on, and one that never expires has no deadline.
#[test]
fn a_lock_that_is_taken_has_not_ended_at_the_commit() -> Result<()> {
    let (disk, db) = open();
    let take = |tx: &mut duramen::Transaction<'_>| {
        assert!(tx.kv("locks").put_if_absent("job", "me", Ttl::seconds(10))?);
        Ok(())
    };
    let late = begin_with(&db, take);
    disk.set_wall_clock(START + 10 * SECOND);
    assert_eq!(code(late.commit()), Code::WriteConflict);
    let in_time = begin_with(&db, take);
    disk.set_wall_clock(START + 20 * SECOND - MS);
    in_time.commit()?;
    assert!(db.kv("locks").exists("job")?);

    let replaces = begin_with(&db, |tx| tx.kv("locks").put("job", "stays"));
    disk.set_wall_clock(START + 3600 * SECOND);
    replaces.commit()?;
    assert_eq!(db.kv("locks").get::<String>("job")?.as_deref(), Some("stays"));
    Ok(())
}

/// A closure that runs again after a conflict would never store the shortest of lifetimes.
#[test]
fn a_closure_may_store_what_expires_before_its_commit() -> Result<()> {
    let (disk, db) = open();
    let moved = disk.clone();
    let runs = AtomicU64::new(0);
    db.transact(|tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.kv("v").put_with("k", &1, Ttl::millis(1))?;
        moved.advance_clock(MS);
        Ok(())
    })?;
    assert_eq!(runs.into_inner(), 1);
    assert!(!db.kv("v").exists("k")?);

    // Also one that reads it back: it relies on what it wrote, not on others.
    let runs = AtomicU64::new(0);
    db.transact(|tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.kv("v").put_with("own", &1, Ttl::millis(1))?;
        assert_eq!(tx.kv("v").increment("own", 1)?, 2);
        moved.advance_clock(MS);
        Ok(())
    })?;
    assert_eq!(runs.into_inner(), 1);

    // A value that keeps a lifetime relies on it: it would begin its life expired.
    db.kv("v").put_with("kept", &1, Ttl::seconds(1))?;
    let mut runs = 0;
    db.transact(|tx| {
        runs += 1;
        tx.kv("v").put_with("kept", &2, Ttl::keep())?;
        moved.advance_clock(SECOND);
        Ok(())
    })?;
    assert_eq!((runs, db.kv("v").get("kept")?), (2, Some(2)));

    // But what it reads must not have expired: it runs again, and finds nothing.
    db.kv("v").put_with("k", &1, Ttl::seconds(1))?;
    let mut seen = Vec::new();
    db.transact(|tx| {
        seen.push(tx.kv("v").exists("k")?);
        moved.advance_clock(SECOND);
        tx.kv("v").put("seen", &1)
    })?;
    assert_eq!(seen, [true, false]);
    Ok(())
}

/// "Now" is one moment for all calls.
#[test]
fn time_stands_still_between_calls() -> Result<()> {
    let (disk, db) = open();
    db.kv("v").put_with("k", &1, Ttl::seconds(10))?;
    let mut open = db.begin()?;
    assert!(open.with(|tx| tx.kv("v").exists("k"))?);
    disk.set_wall_clock(START + 60 * SECOND);
    assert!(open.with(|tx| tx.kv("v").exists("k"))?);
    assert!(!db.kv("v").exists("k")?);
    // It wrote nothing: it is ordered where it read.
    open.commit()?;
    Ok(())
}

/// An error of a closure is the caller's to judge; a write that was left half done is not.
#[test]
fn errors_and_panics_of_a_closure() -> Result<()> {
    let (_disk, db) = open();
    let mut open = db.begin()?;
    let refused = open.with(|tx| {
        tx.kv("v").put("before", &1)?;
        Err::<(), _>(Error::invalid("no"))
    });
    assert_eq!(refused.unwrap_err().message(), "no");
    open.with(|tx| tx.kv("v").put("after", &2))?;
    open.commit()?;
    assert_eq!((db.kv("v").get("before")?, db.kv("v").get("after")?), (Some(1), Some(2)));

    // The value does not fit, and its row in the expiry index is missing, too.
    let db = Db::options().memory_bytes(4 << 20).in_memory()?;
    let mut open = db.begin()?;
    let bytes = [7; 30_000];
    let half = open.with(|tx| {
        let mut keys = 0..1_000_u64;
        keys.try_for_each(|key| tx.kv("v").put_bytes(key, &bytes, Ttl::days(1)))
    });
    let half = half.unwrap_err().code();
    assert_eq!(half, Code::TooLarge);
    let later = open.with(|tx| tx.kv("v").put("later", &3));
    assert_eq!(later.unwrap_err().code(), half);
    assert_eq!(code(open.commit()), half);

    let mut open = db.begin()?;
    let panicked = catch_unwind(AssertUnwindSafe(|| open.with(|_| -> Result<()> { panic!("on purpose") })));
    panicked.unwrap_err();
    let after = open.with(|tx| tx.kv("v").put("later", &3)).unwrap_err();
    assert_eq!(
        (after.code(), after.message()),
        (Code::InvalidArgument, "a closure of this transaction panicked")
    );
    assert_eq!(code(open.commit()), Code::InvalidArgument);
    assert!(!db.kv("v").exists("later")?);
    Ok(())
}

/// A commit inside the closure of another transaction would be outside of that.
#[test]
fn where_and_when_it_is_refused() -> Result<()> {
    let (_disk, db) = open();
    let mut open = Some(begin_with(&db, |tx| tx.kv("v").put("k", &1)));
    let inside = db.transact(|_| open.take().expect("one run").commit());
    assert_eq!(inside.map(drop).unwrap_err().code(), Code::InvalidArgument);

    let mut open = db.begin()?;
    let inside = open.with(|_| db.kv("v").put("k", &1));
    assert_eq!(inside.unwrap_err().code(), Code::InvalidArgument);

    open.with(|tx| tx.kv("v").put("k", &1))?;
    db.close()?;
    assert_eq!(code(open.commit()), Code::Closed);
    assert_eq!(db.begin().map(drop).unwrap_err().code(), Code::Closed);
    Ok(())
}

/// The notes of what a client reads are bounded from the first call on.
#[test]
fn reads_are_bounded() -> Result<()> {
    let (_disk, db) = open();
    db.transact(|tx| (0..100).try_for_each(|n| tx.kv("v").put(n, &n)))?;
    for bounded in [false, true] {
        let mut open = db.begin()?;
        open.with(|tx| {
            if bounded {
                tx.limit_reads(1_000);
            }
            Ok(())
        })?;
        for n in 0..50 {
            open.with(|tx| tx.kv("v").get::<i64>(2 * n))?;
        }
        let bytes = open.with(|tx| Ok(tx.read_bytes()))?;
        assert_eq!(bytes <= 1_000, bounded, "{bytes}");
        open.with(|tx| tx.kv("other").put("k", &1))?;
        db.kv("v").put(1, &-1)?;
        assert_eq!(open.commit().is_err(), bounded, "a key that it has not read");
    }
    Ok(())
}

/// A condition of the program is checked where the transaction takes its place.
#[test]
fn a_condition_of_the_program() -> Result<()> {
    let (_disk, db) = open();
    let late = || Err(Error::new(Code::WriteConflict, "too late"));
    let open = begin_with(&db, |tx| {
        tx.only_if(late);
        tx.kv("v").put("k", &1)
    });
    assert_eq!(open.commit().unwrap_err().message(), "too late");
    let refused = db.transact(|tx| {
        tx.only_if(|| Err(Error::invalid("never")));
        tx.kv("v").put("k", &1)
    });
    assert_eq!(refused.unwrap_err().message(), "never");
    assert!(!db.kv("v").exists("k")?);
    Ok(())
}

/// What conflicted is named as users know it, and what rests is seen to hold its state.
#[test]
fn what_conflicts_and_what_is_held_is_told() -> Result<()> {
    let (_disk, db) = open();
    db.push(order("Oslo", 1))?;
    let open = begin_with(&db, |tx| {
        assert_eq!(tx.kv("v").get::<i64>("k")?, None);
        tx.kv("w").put("k", &1)
    });
    db.kv("v").put("k", &1)?;
    let held = db.held_snapshots();
    assert!(held.iter().any(|held| held.seq < db.durability_status().published), "{held:?}");
    assert_eq!(code(open.commit()), Code::WriteConflict);
    let hot = db.hot_keys()?;
    // The namespace was not there when it was looked for.
    assert_eq!((hot.len(), &hot[0].tree[..], &hot[0].key[..]), (1, "names of trees", &b"duramen/kv/v"[..]));
    assert!(db.timings().order.count() > 0);
    assert_eq!(db.slow_commits()?, []);

    let mut open = db.begin()?;
    open.with(|tx| tx.collection::<Order>().count())?;
    open.with(|tx| tx.kv("w").put("k", &1))?;
    db.push(order("Oslo", 2))?;
    assert_eq!(code(open.commit()), Code::WriteConflict);
    assert!(db.hot_keys()?.iter().any(|hot| hot.tree == "orders"), "{:?}", db.hot_keys()?);
    Ok(())
}

/// A closure always ends: run alone, it is placed at the moment that was its "now". Lifetimes that end in
/// each run must not keep a scan of sessions from ever committing.
#[test]
fn lifetimes_that_end_in_each_run_do_not_keep_a_closure_from_committing() -> Result<()> {
    let (disk, db) = open();
    db.transact(|tx| (0..100).try_for_each(|n: u64| tx.kv("sessions").put_with(n, &n, Ttl::seconds(n + 1))))?;
    let mut runs = 0;
    let left = db.transact(|tx| {
        runs += 1;
        let left = tx.kv("sessions").scan::<u64, u64>(Span::all())?.count();
        disk.advance_clock(SECOND);
        tx.kv("count").put("sessions", &left)?;
        Ok(left)
    })?;
    assert!((2..20).contains(&runs), "{runs} runs");
    assert_eq!(left, 100 - (runs - 1), "the count of the last run");
    // An open transaction has no run alone: it is for its caller to begin again.
    let open = begin_with(&db, |tx| {
        tx.kv("sessions").count(Span::all())?;
        tx.kv("count").put("sessions", &0)
    });
    disk.advance_clock(SECOND);
    assert_eq!(code(open.commit()), Code::WriteConflict);
    Ok(())
}

/// What expires or is written outside of a counted range is no conflict.
#[test]
fn a_count_relies_on_its_range_alone() -> Result<()> {
    let (disk, db) = open();
    let put = |user: &str, n: u64, seconds| db.kv("s").put_with((user, n), &n, Ttl::seconds(seconds));
    for n in 0..200 {
        put("bob", n, if n < 5 { 10 } else { 1_000 })?;
    }
    for n in 0..5 {
        put("ann", n, 500)?;
    }
    let count = |open: &mut OpenTransaction| open.with(|tx| tx.kv("s").count(Span::prefix("ann")?));
    let begin = || -> Result<OpenTransaction> {
        let mut open = db.begin()?;
        assert_eq!(count(&mut open)?, 5);
        open.with(|tx| tx.kv("counts").put("ann", &5))?;
        Ok(open)
    };
    let beside = begin()?;
    put("bob", 300, 700)?;
    disk.set_wall_clock(START + 20 * SECOND);
    beside.commit()?;
    let inside = begin()?;
    put("ann", 9, 700)?;
    assert_eq!(code(inside.commit()), Code::WriteConflict);
    db.kv("s").delete(("ann", 9_u64))?;
    let late = begin()?;
    disk.set_wall_clock(START + 501 * SECOND);
    assert_eq!(code(late.commit()), Code::WriteConflict);
    Ok(())
}

/// A condition may be wrong: it neither hangs nor poisons the database.
#[test]
fn a_condition_that_commits_or_panics_is_an_error() -> Result<()> {
    let (_disk, db) = open();
    let other = db.clone();
    let commits = begin_with(&db, |tx| {
        tx.only_if(move || other.kv("v").put("inside", &1).map(drop));
        tx.kv("v").put("k", &1)
    });
    assert_eq!(code(commits.commit()), Code::InvalidArgument);
    let panics = begin_with(&db, |tx| {
        tx.only_if(|| panic!("on purpose"));
        tx.kv("v").put("k", &1)
    });
    let error = panics.commit().unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "a condition of the transaction panicked")
    );
    assert_eq!(db.kv("v").count(Span::all())?, 0);
    db.kv("v").put("k", &1)?;
    Ok(())
}
