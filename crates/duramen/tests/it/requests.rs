//! Requests with an id: one effect, one answer, however often and from wherever they are tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use duramen::prelude::*;
use duramen::requests::{self, ANSWER_BYTES_MAX, Known, Outcome, Request, RequestId};
use duramen::{Code, MemDisk};
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_engine::Background;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
/// The beginning of a minute.
const START: u64 = 30_000_000 * MINUTE;

fn open_on(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    options.open_on(Arc::new(disk.clone()), "/db").unwrap()
}

/// A database that was opened at [`START`].
fn open() -> (MemDisk, Db) {
    let disk = MemDisk::new(1);
    disk.set_wall_clock(START);
    let db = open_on(&disk);
    (disk, db)
}

/// Adds one to a counter, and answers with it.
fn count(db: &Db, request: &Request<'_>) -> Result<(i64, bool)> {
    let answered =
        requests::once(db, request, |tx| Ok(tx.kv("counters").increment("c", 1)?.to_le_bytes().to_vec()))?;
    Ok((i64::from_le_bytes(answered.answer.try_into().unwrap()), answered.is_repeated))
}

fn counted(db: &Db) -> i64 {
    db.kv("counters").get("c").unwrap().unwrap_or(0)
}

fn code<T>(result: Result<T>) -> Code {
    result.map(drop).unwrap_err().code()
}

/// Background steps until nothing is due.
fn rest(db: &Db) {
    while db.step_background().unwrap() {}
}

fn trees(db: &Db) -> usize {
    let trees = db.snapshot().unwrap().trees().unwrap();
    trees.iter().filter(|tree| tree.name.starts_with("duramen/requests/")).count()
}

/// An id as another machine makes it, by a clock that is off by this many milliseconds.
fn id_at(db: &Db, off_ms: i64) -> RequestId {
    let time = requests::time(db).unwrap();
    let ms = time.seconds() * 1000 + i64::from(time.nanoseconds()) / 1_000_000 + off_ms;
    let mut bytes = requests::new_id(db).unwrap().bytes();
    bytes[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
    RequestId::from_bytes(bytes).unwrap()
}

#[test]
fn a_retry_gets_the_first_answer_and_has_no_effect() -> Result<()> {
    let (disk, db) = open();
    let id = requests::new_id(&db)?;
    let request = Request::new(id, b"add");
    assert_eq!(count(&db, &request)?, (1, false));
    assert_eq!(count(&db, &request)?, (1, true));
    assert_eq!(count(&db, &Request::new(requests::new_id(&db)?, b"add"))?, (2, false));
    assert_eq!(count(&db, &request)?, (1, true), "the first answer, not the newest");

    // Requests of others are others; another body under the id is a mistake.
    assert_eq!(count(&db, &request.by("ann"))?, (3, false));
    assert_eq!(count(&db, &request.by("bob"))?, (4, false));
    assert_eq!(count(&db, &request.by("ann"))?, (3, true));
    assert_eq!(code(count(&db, &Request::new(id, b"add two"))), Code::InvalidArgument);
    assert_eq!(counted(&db), 4);

    // Also after a crash, and with a clock that has lost the time: the answer lies beside the effect.
    drop(db);
    let db = open_on(&disk.crash(&CrashChoice::None));
    assert_eq!(count(&db, &request)?, (1, true));
    assert_eq!(requests::outcome(&db, id, "")?, Outcome::Committed(1_i64.to_le_bytes().to_vec()));
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

#[test]
fn an_outcome_is_settled() -> Result<()> {
    let (_disk, db) = open();
    let id = requests::new_id(&db)?;
    let request = Request::new(id, b"add");
    assert_eq!(requests::outcome(&db, id, "")?, Outcome::Never);
    assert_eq!(requests::outcome(&db, id, "")?, Outcome::Never);
    let refused = count(&db, &request).unwrap_err();
    assert_eq!(refused.code(), Code::RequestCancelled);
    assert!(refused.message().contains(&id.to_string()), "{refused}");
    assert_eq!(counted(&db), 0);
    // That of another user is another's.
    assert_eq!(count(&db, &request.by("ann"))?, (1, false));
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// A try that read nothing of the request conflicts with the one that settles it.
#[test]
fn of_a_try_and_a_question_at_once_one_wins() -> Result<()> {
    let (_disk, db) = open();
    for asks_first in [true, false] {
        let request_id = requests::new_id(&db)?;
        let request = Request::new(request_id, b"add");
        let mut resting = db.begin()?;
        let known = resting.with(|tx| {
            let known = requests::find(tx, &request)?;
            tx.kv("counters").increment("c", 1)?;
            requests::remember(tx, &request, b"done")?;
            Ok(known)
        })?;
        assert_eq!(known, Known::New);
        if asks_first {
            assert_eq!(requests::outcome(&db, request_id, "")?, Outcome::Never);
            assert_eq!(code(resting.commit()), Code::WriteConflict);
            let mut again = db.begin()?;
            assert_eq!(again.with(|tx| requests::find(tx, &request))?, Known::Never);
            again.commit()?;
        } else {
            resting.commit()?;
            assert_eq!(requests::outcome(&db, request_id, "")?, Outcome::Committed(b"done".to_vec()));
        }
    }
    assert_eq!(counted(&db), 1);
    Ok(())
}

#[test]
fn tries_of_many_threads_have_one_effect() -> Result<()> {
    let db = Db::in_memory()?;
    let ids: Vec<_> = (0..200).map(|_| requests::new_id(&db).unwrap()).collect();
    let first = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for id in &ids {
                    let (_, is_repeated) = count(&db, &Request::new(*id, b"add")).unwrap();
                    first.fetch_add(u64::from(!is_repeated), Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((counted(&db), first.into_inner()), (200, 200));
    Ok(())
}

/// What fails is not remembered: nothing was committed.
#[test]
fn a_try_that_fails_may_be_tried_again() -> Result<()> {
    let (disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"add");
    let refused = requests::once(&db, &request, |tx| {
        tx.kv("counters").increment("c", 1)?;
        Err(Error::invalid("no"))
    });
    assert_eq!(refused.unwrap_err().message(), "no");
    let long = requests::once(&db, &request, |_| Ok(vec![0; ANSWER_BYTES_MAX + 1]));
    assert_eq!(code(long), Code::TooLarge);

    // D7: the log has no room for it, not even after a checkpoint.
    let full = || {
        disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal").for_good());
    };
    full();
    assert_eq!(code(count(&db, &request)), Code::DiskFull);
    assert_eq!(code(requests::outcome(&db, requests::new_id(&db)?, "")), Code::DiskFull);
    disk.set_faults(FaultPlan::none());
    assert_eq!(counted(&db), 0);
    assert_eq!(count(&db, &request)?, (1, false));

    // What is known already needs no room.
    full();
    assert_eq!(count(&db, &request)?, (1, true));
    assert_eq!(requests::outcome(&db, request.id(), "")?, Outcome::Committed(1_i64.to_le_bytes().to_vec()));
    Ok(())
}

/// Answers are kept for ten minutes after their own. Then the id is refused, whatever was known of it.
#[test]
fn what_was_forgotten_is_refused() -> Result<()> {
    let (disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"add");
    assert_eq!(count(&db, &request)?, (1, false));
    rest(&db);
    assert_eq!(trees(&db), 2, "that of the next minute is made ahead");
    disk.advance_clock(10 * MINUTE);
    rest(&db);
    assert_eq!(count(&db, &request)?, (1, true));
    disk.advance_clock(MINUTE);
    rest(&db);
    assert_eq!(trees(&db), 1);
    let refused = count(&db, &request).unwrap_err();
    assert_eq!((refused.code(), refused.kind()), (Code::RequestTooOld, ErrorKind::Expired));
    assert_eq!(code(requests::outcome(&db, request.id(), "")), Code::RequestTooOld);
    let mut open = db.begin()?;
    assert_eq!(open.with(|tx| requests::find(tx, &request))?, Known::TooOld);
    assert_eq!(code(open.with(|tx| requests::remember(tx, &request, b""))), Code::RequestTooOld);
    disk.advance_clock(MINUTE);
    rest(&db);
    assert_eq!(trees(&db), 0);
    assert!(db.check_documents()?.is_clean());
    assert_eq!(counted(&db), 1);
    Ok(())
}

/// An id that is first used late is kept for less, and refused once its minute was forgotten.
#[test]
fn an_id_that_waited_is_kept_until_its_minute_goes() -> Result<()> {
    let (disk, db) = open();
    let (early, late) = (requests::new_id(&db)?, requests::new_id(&db)?);
    disk.advance_clock(9 * MINUTE);
    assert_eq!(count(&db, &Request::new(early, b""))?, (1, false));
    disk.advance_clock(2 * MINUTE);
    rest(&db);
    assert_eq!(code(count(&db, &Request::new(early, b""))), Code::RequestTooOld);
    assert_eq!(code(count(&db, &Request::new(late, b""))), Code::RequestTooOld);
    Ok(())
}

/// A transaction that looked for a request conflicts with the job that forgets its minute, whether that had a
/// tree then or not.
#[test]
fn a_request_that_rests_while_its_minute_is_forgotten_conflicts() -> Result<()> {
    let (disk, db) = open();
    for has_tree in [false, true] {
        let first = Request::new(requests::new_id(&db)?, b"");
        let request = Request::new(requests::new_id(&db)?, b"");
        if has_tree {
            count(&db, &first)?;
        }
        let mut resting = db.begin()?;
        resting.with(|tx| {
            assert_eq!(requests::find(tx, &request)?, Known::New);
            tx.kv("rested").put("k", &1)?;
            requests::remember(tx, &request, b"")
        })?;
        assert_eq!(count(&db, &first)?.1, has_tree);
        disk.advance_clock(11 * MINUTE);
        rest(&db);
        assert_eq!(code(resting.commit()), Code::WriteConflict);
        assert_eq!(code(requests::outcome(&db, request.id(), "")), Code::RequestTooOld);
    }
    assert!(!db.kv("rested").exists("k")?);
    Ok(())
}

/// Where nothing else has made a tree of its minute, it reads the floor, and conflicts when that rises.
#[test]
fn a_request_without_a_tree_conflicts_with_a_floor_that_rises() -> Result<()> {
    let (disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"");
    disk.advance_clock(MINUTE);
    let later = Request::new(requests::new_id(&db)?, b"");
    count(&db, &later)?;
    let mut resting = db.begin()?;
    resting.with(|tx| {
        assert_eq!(requests::find(tx, &request)?, Known::New);
        tx.kv("rested").put("k", &1)
    })?;
    disk.advance_clock(11 * MINUTE);
    rest(&db);
    assert_eq!(code(count(&db, &later)), Code::RequestTooOld);
    assert_eq!(code(resting.commit()), Code::WriteConflict);
    Ok(())
}

/// The clock of requests is the system's as it was at opening, and never behind what was forgotten.
#[test]
fn clocks_that_jump_make_no_request_run_twice() -> Result<()> {
    let (disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"");
    assert_eq!(count(&db, &request)?, (1, false));
    // It jumps while the database is open: nothing moves.
    disk.set_wall_clock(START + 600 * MINUTE);
    rest(&db);
    assert_eq!(count(&db, &request)?, (1, true));
    drop(db);

    // At opening it is a year ahead, and then where it was.
    disk.set_wall_clock(START + 525_600 * MINUTE);
    let db = open_on(&disk);
    rest(&db);
    assert_eq!(code(count(&db, &request)), Code::RequestTooOld);
    let ahead = Request::new(requests::new_id(&db)?, b"");
    assert_eq!(count(&db, &ahead)?, (2, false));
    drop(db);
    for back in [START, 0] {
        disk.set_wall_clock(back);
        let db = open_on(&disk);
        rest(&db);
        assert_eq!(code(count(&db, &request)), Code::RequestTooOld);
        let new = Request::new(requests::new_id(&db)?, b"");
        assert!(!count(&db, &new)?.1);
        assert!(count(&db, &new)?.1);
        assert!(db.check_documents()?.is_clean());
    }
    Ok(())
}

#[test]
fn ids_of_other_clocks() -> Result<()> {
    let (_disk, db) = open();
    assert_eq!(count(&db, &Request::new(id_at(&db, 59_000), b""))?, (1, false));
    let ahead = Request::new(id_at(&db, 61_000), b"");
    assert_eq!(code(count(&db, &ahead)), Code::InvalidArgument);
    assert_eq!(code(requests::outcome(&db, ahead.id(), "")), Code::InvalidArgument);
    // Of long ago, when nothing was forgotten yet: it never ran.
    assert_eq!(count(&db, &Request::new(id_at(&db, -86_400_000), b""))?, (2, false));
    rest(&db);
    assert_eq!(code(count(&db, &Request::new(id_at(&db, -86_400_000), b""))), Code::RequestTooOld);
    Ok(())
}

#[test]
fn an_id_is_a_uuid_of_version_7() -> Result<()> {
    let (_disk, db) = open();
    let id = requests::new_id(&db)?;
    let uuid = uuid::Uuid::from_bytes(id.bytes());
    assert_eq!((uuid.get_version_num(), uuid.to_string()), (7, id.to_string()));
    assert_eq!(RequestId::from_bytes(*uuid.as_bytes())?, id);
    assert_eq!(id.time().seconds(), (START / SECOND) as i64);
    for bytes in [[0; 16], *uuid::Uuid::from_u128(0x0190_0000_0000_4000_8000_0000_0000_0000).as_bytes()] {
        assert_eq!(code(RequestId::from_bytes(bytes)), Code::InvalidArgument);
    }
    assert_ne!(requests::new_id(&db)?, id);
    // A user whose name is too long for a key.
    let long = "u".repeat(2_000);
    assert_eq!(code(count(&db, &Request::new(id, b"").by(&long))), Code::KeyTooLong);
    Ok(())
}

/// The thread of the database forgets by itself.
#[test]
fn the_background_makes_the_next_minute_ahead() -> Result<()> {
    let disk = MemDisk::new(1);
    disk.set_wall_clock(START);
    let db = Db::options().open_on(Arc::new(disk.clone()), "/db")?;
    count(&db, &Request::new(requests::new_id(&db)?, b""))?;
    while trees(&db) < 2 {
        thread::yield_now();
    }
    Ok(())
}

/// A copy has the answers of what it has.
#[test]
fn a_backup_has_the_answers_of_its_state() -> Result<()> {
    let (disk, db) = open();
    let (before, after) = (requests::new_id(&db)?, requests::new_id(&db)?);
    count(&db, &Request::new(before, b""))?;
    db.backup("/copy")?;
    count(&db, &Request::new(after, b""))?;
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    let copy = options.open_on(Arc::new(disk), "/copy")?;
    assert_eq!(count(&copy, &Request::new(before, b""))?, (1, true));
    assert_eq!(count(&copy, &Request::new(after, b""))?, (2, false));
    Ok(())
}

/// What a repair read of a corrupt database may lack answers, so all are forgotten.
#[test]
fn a_repaired_database_knows_no_request() -> Result<()> {
    let (disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"");
    count(&db, &request)?;
    let soon = id_at(&db, 59_000);
    db.close()?;
    drop(db);
    let options = || Db::options().engine(|engine| engine.background = Background::Stepped);
    options().repair_on(Arc::new(disk.clone()), "/db", "/new", |_| Ok(()))?;
    let db = options().open_on(Arc::new(disk.clone()), "/new")?;
    assert_eq!((counted(&db), trees(&db)), (1, 0));
    assert_eq!(code(count(&db, &request)), Code::RequestTooOld);
    assert_eq!(code(count(&db, &Request::new(soon, b""))), Code::RequestTooOld);
    assert_eq!(count(&db, &Request::new(requests::new_id(&db)?, b""))?, (2, false));
    assert!(db.check_documents()?.is_clean());

    // Also where there is no trace of requests: it may have been lost.
    let (disk, db) = open();
    let unknown = requests::new_id(&db)?;
    db.close()?;
    drop(db);
    options().repair_on(Arc::new(disk.clone()), "/db", "/new", |_| Ok(()))?;
    let db = options().open_on(Arc::new(disk), "/new")?;
    assert_eq!(code(count(&db, &Request::new(unknown, b""))), Code::RequestTooOld);
    Ok(())
}

/// D1: "never" is an answer like another. It is told once it is on disk: a try that runs after a power cut
/// would make it untrue.
#[test]
fn what_is_told_is_durable() -> Result<()> {
    let (disk, db) = open();
    let (never, done) = (requests::new_id(&db)?, requests::new_id(&db)?);
    let quick = db.at(Durability::Process);
    assert_eq!(requests::outcome(&quick, never, "")?, Outcome::Never);
    assert_eq!(count(&quick, &Request::new(done, b""))?, (1, false));
    // A repeated answer waits for the level of the try that asks.
    assert_eq!(count(&db, &Request::new(done, b""))?, (1, true));
    let db = open_on(&disk.crash(&CrashChoice::None));
    assert_eq!(code(count(&db, &Request::new(never, b""))), Code::RequestCancelled);
    assert_eq!(count(&db, &Request::new(done, b""))?, (1, true));
    Ok(())
}

/// What was told must not be overwritten, also by a transaction that did not look.
#[test]
fn an_answer_is_not_overwritten() -> Result<()> {
    let (_disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"");
    count(&db, &request)?;
    let mut blind = db.begin()?;
    let refused = blind.with(|tx| requests::remember(tx, &request, b"other"));
    assert_eq!(code(refused), Code::AlreadyExists);
    let settled = Request::new(requests::new_id(&db)?, b"");
    requests::outcome(&db, settled.id(), "")?;
    let mut blind = db.begin()?;
    assert_eq!(code(blind.with(|tx| requests::remember(tx, &settled, b"other"))), Code::RequestCancelled);
    Ok(())
}

/// A database on a disk with so many bytes of room, whose background is stepped.
fn open_with_room(bytes: u64) -> Result<(MemDisk, Db)> {
    let disk = MemDisk::new(1);
    disk.set_wall_clock(START);
    let options = Db::options().engine(|engine| {
        engine.background = Background::Stepped;
        engine.checkpoint_log_bytes = Some(1 << 20);
    });
    let db = options.open_on(Arc::new(disk.clone()), "/db")?;
    disk.set_capacity(Some(disk.used_bytes() + bytes));
    Ok((disk, db))
}

/// D7: answers that have filled the disk are forgotten all the same, and the room is used again.
#[test]
fn a_disk_that_answers_have_filled_is_given_back() -> Result<()> {
    let (disk, db) = open_with_room(4 << 20)?;
    let full = loop {
        let request = Request::new(requests::new_id(&db)?, b"");
        let id = request.id();
        let answered = requests::once(&db, &request, |_| Ok(id.bytes().repeat(ANSWER_BYTES_MAX / 16)));
        if let Err(error) = answered {
            break error;
        }
    };
    assert_eq!(full.code(), Code::DiskFull);
    disk.advance_clock(12 * MINUTE);
    // The next request forgets by itself, as a background would.
    let mut steps = 0;
    while count(&db, &Request::new(requests::new_id(&db)?, b"")).is_err() {
        assert_eq!(trees(&db), 0);
        db.step_engine()?;
        steps += 1;
        assert!(steps < 200, "the room of what was forgotten is not used again");
    }
    Ok(())
}

/// D7: what a program deletes under a request id passes on a full disk, as what it deletes without one.
#[test]
fn deletes_under_a_request_id_pass_on_a_full_disk() -> Result<()> {
    let (_, db) = open_with_room(6 << 20)?;
    let mut puts = 0_u64;
    let put = |key: u64| {
        requests::once(&db, &Request::new(requests::new_id(&db)?, b""), |tx| {
            tx.kv("v").put_bytes(key, &[7; 20_000], Ttl::forever())?;
            Ok(Vec::new())
        })
    };
    while put(puts).is_ok() {
        puts += 1;
    }
    assert_eq!(code(put(puts)), Code::DiskFull);
    for key in 0..puts {
        requests::once(&db, &Request::new(requests::new_id(&db)?, b""), |tx| {
            assert!(tx.kv("v").delete(key)?, "value {key} is there");
            Ok(Vec::new())
        })?;
        // A row beside a delete is no way for others.
        if key == 0 {
            assert_eq!(code(put(puts)), Code::DiskFull);
        }
    }
    Ok(())
}

/// A consumer of changes that refuses writers does not keep old requests from being forgotten.
#[test]
fn requests_are_forgotten_while_writers_are_refused() -> Result<()> {
    let disk = MemDisk::new(1);
    disk.set_wall_clock(START);
    let options = Db::options().feed_bytes_max(256 * 1024).engine(|engine| {
        engine.background = Background::Stepped;
        engine.checkpoint_log_bytes = Some(64 * 1024);
    });
    let db = options.open_on(Arc::new(disk.clone()), "/db")?;
    count(&db, &Request::new(requests::new_id(&db)?, b""))?;
    db.consumer("mirror").refuse_writers().register()?;
    let mut puts = 0..10_000_u64;
    let refused = loop {
        let key = puts.next().expect("the feed is full before");
        if let Err(error) = db.kv("v").put_bytes(key, &[7; 4_000], Ttl::forever()) {
            break error;
        }
        db.step_engine()?;
    };
    assert_eq!(refused.code(), Code::FeedFull);
    disk.advance_clock(12 * MINUTE);
    rest(&db);
    assert_eq!(trees(&db), 0);
    assert_eq!(code(db.kv("v").put("k", &1)), Code::FeedFull);
    Ok(())
}

/// Without background work the commits forget: at the first request of each minute.
#[test]
fn commits_forget_where_no_background_works() -> Result<()> {
    let (disk, db) = open();
    let first = Request::new(requests::new_id(&db)?, b"");
    count(&db, &first)?;
    for _ in 0..30 {
        disk.advance_clock(MINUTE);
        count(&db, &Request::new(requests::new_id(&db)?, b""))?;
        assert!(trees(&db) <= 12, "{}", trees(&db));
    }
    assert_eq!(code(count(&db, &first)), Code::RequestTooOld);
    Ok(())
}

/// Below level `Disk` an answer is still one: what was found is on disk before it is told.
#[test]
fn what_is_found_is_durable_at_every_level() -> Result<()> {
    for level in [Durability::Memory, Durability::Process] {
        let (disk, db) = open();
        let (request, never) = (Request::new(requests::new_id(&db)?, b""), requests::new_id(&db)?);
        let quick = db.at(level);
        assert_eq!(count(&quick, &request)?, (1, false));
        assert_eq!(count(&quick, &request)?, (1, true));
        let db = open_on(&disk.crash(&CrashChoice::None));
        assert_eq!(count(&db, &request)?, (1, true));
        assert_eq!(requests::outcome(&quick, never, "")?, Outcome::Never);
        let db = open_on(&disk.crash(&CrashChoice::None));
        assert_eq!(code(count(&db, &Request::new(never, b""))), Code::RequestCancelled);
    }
    Ok(())
}

/// A closure that always conflicts runs alone in the end, with its answer.
#[test]
fn a_request_may_run_alone() -> Result<()> {
    let (_disk, db) = open();
    let request = Request::new(requests::new_id(&db)?, b"");
    let runs = AtomicU64::new(0);
    let other = db.clone();
    let answered = thread::scope(|scope| {
        requests::once(&db, &request, |tx| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            tx.kv("counters").increment("c", 1)?;
            // Another thread changes what was read, as long as it may.
            let changes = || other.kv("counters").increment("c", 100);
            if run < 8 {
                scope.spawn(changes).join().unwrap()?;
            }
            Ok(run.to_le_bytes().to_vec())
        })
    })?;
    assert_eq!(answered.answer, 8_u64.to_le_bytes());
    assert_eq!(counted(&db), 801);
    assert_eq!(count(&db, &request)?, (8, true));
    Ok(())
}
