//! Views built in the background: automatically, without keeping a database open, and with failures reported.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use duramen::prelude::*;
use duramen::view::{Reduce, ViewSpec};
use duramen::{Code, Disk, Event, MemDisk, ViewPhase};

const CITIES: [&str; 3] = ["Oslo", "Bergen", "Os"];

fn orders(db: &Db, count: usize) -> Documents {
    let orders = db.ensure(&Schema::new("orders").key(["id"])).unwrap();
    let ids: Vec<usize> = (0..count).collect();
    for batch in ids.chunks(1_000) {
        let put = |tx: &mut Transaction<'_>| {
            let orders = tx.documents("orders");
            batch.iter().try_for_each(|&id| {
                orders.put(doc! { "id": id as u64, "city": CITIES[id % 3], "cents": id as u64, "email": format!("{}@example.org", id / 2) })
            })
        };
        db.transact(put).unwrap();
    }
    orders
}

fn by_city() -> ViewSpec {
    ViewSpec::new("by_city", ["city"]).values(["cents"]).reduce([Reduce::Sum(0)])
}

fn by_email() -> ViewSpec {
    ViewSpec::new("by_email", ["email"]).unique()
}

/// Waits for the background thread, yielding the processor. A view that never gets ready is a test that
/// hangs.
fn wait_for(documents: &Documents, view: &str) {
    let ready =
        || documents.views().unwrap().iter().any(|state| state.view.name() == view && state.is_ready());
    while !ready() {
        thread::yield_now();
    }
}

fn check(documents: &Documents, count: usize) {
    for (place, city) in CITIES.iter().enumerate() {
        let ids = (0..count).filter(|id| id % 3 == place);
        let answer = documents.view("by_city").key(*city).reduce().unwrap();
        assert_eq!(answer.count, ids.clone().count() as u64, "{city}");
        assert_eq!(answer.parts[0].value, Value::from(ids.map(|id| id as u64).sum::<u64>()), "{city}");
    }
}

#[test]
fn a_view_that_is_added_builds_itself() {
    let db = Db::in_memory().unwrap();
    let orders = orders(&db, 3_000);
    assert!(orders.add_view(by_city()).unwrap());
    assert!(!orders.add_view(by_city()).unwrap(), "the same again is nothing new");
    wait_for(&orders, "by_city");
    check(&orders, 3_000);
    assert!(db.check_documents().unwrap().is_clean());
}

// Dropping the last handle must close the database before it returns, even during a build: the next opening
// must not find the database locked.
#[test]
fn the_background_keeps_no_database_open() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(5));
    let open = || Db::options().durability(Durability::Process).open_on(Arc::clone(&disk), "/db").unwrap();
    orders(&open(), 4_000).add_view(by_city()).unwrap();
    for round in 0..20 {
        let db = open();
        if round % 3 == 0 {
            db.close().unwrap();
            assert_eq!(db.documents("orders").put(doc! { "id": 0 }).unwrap_err().code(), Code::Closed);
        }
        if round % 5 == 0 {
            db.documents("orders").rebuild_view("by_city").ok();
        }
    }
    let db = open();
    wait_for(&db.documents("orders"), "by_city");
    check(&db.documents("orders"), 4_000);
}

// The hook runs on the background thread. Closing the database there, and dropping its last handle, must not
// wait for that thread.
#[test]
fn the_last_handle_may_be_dropped_where_the_work_is_done() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(6));
    let held: Arc<Mutex<Option<Db>>> = Arc::default();
    let (tell, told) = channel();
    let (hook_held, tell) = (Arc::clone(&held), Mutex::new(tell));
    let hook = move |event: &Event| {
        if let Event::BackgroundFailed(error) = event {
            let db = hook_held.lock().unwrap().take();
            if let Some(db) = db {
                db.close().unwrap();
                drop(db);
                tell.lock().unwrap().send(error.code()).unwrap();
            }
        }
    };
    let db = Db::options().on_event(hook).open_on(Arc::clone(&disk), "/db").unwrap();
    orders(&db, 100);
    let mut holder = held.lock().unwrap();
    db.documents("orders").add_view(by_email()).unwrap();
    *holder = Some(db);
    drop(holder);
    assert_eq!(told.recv().unwrap(), Code::UniqueViolation);
    // The thread releases its own handle after its step.
    while Db::options()
        .open_on(Arc::clone(&disk), "/db")
        .is_err_and(|error| error.code() == Code::DatabaseLocked)
    {
        thread::yield_now();
    }
    let db = Db::options().open_on(disk, "/db").unwrap();
    assert_eq!(db.documents("orders").count(Span::all()).unwrap(), 100);
}

// The engine's own threads call the hook, too.
#[test]
fn the_last_handle_may_be_dropped_in_a_thread_of_the_engine() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(8));
    let open = || Db::options().open_on(Arc::clone(&disk), "/db");
    let held: Arc<Mutex<Option<Db>>> = Arc::default();
    let (tell, told) = channel();
    let (hook_held, tell) = (Arc::clone(&held), Mutex::new(tell));
    let hook = move |event: &Event| {
        if matches!(event, Event::CheckpointBegins)
            && let Some(db) = hook_held.lock().unwrap().take()
        {
            drop(db);
            tell.lock().unwrap().send(()).unwrap();
        }
    };
    let options = Db::options().engine(|engine| engine.checkpoint_log_bytes = Some(1));
    let db = options.on_event(hook).open_on(Arc::clone(&disk), "/db").unwrap();
    let mut holder = held.lock().unwrap();
    orders(&db, 100).add_view(by_city()).unwrap();
    *holder = Some(db);
    drop(holder);
    told.recv_timeout(Duration::from_secs(60)).expect("dropping it returns");
    // The thread releases its own handle after its step.
    while open().is_err_and(|error| error.code() == Code::DatabaseLocked) {
        thread::yield_now();
    }
    let db = open().unwrap();
    assert_eq!(db.documents("orders").count(Span::all()).unwrap(), 100);
    assert!(db.check().unwrap().is_clean());
}

// A failure must not be lost: the view reports the conflicting documents, in this program and in the next.
#[test]
fn why_a_view_is_not_built_is_told_and_kept() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(7));
    let open = || Db::options().background(false).open_on(Arc::clone(&disk), "/db").unwrap();
    let db = open();
    let documents = orders(&db, 40);
    documents.add_view(by_email()).unwrap();
    documents.add_view(by_city()).unwrap();
    // A failing view prevents no other from being built.
    while db.step_background().unwrap() {}
    check(&documents, 40);
    drop(documents);
    let mut first = Some(db);
    for _ in 0..2 {
        let db = first.take().unwrap_or_else(open);
        let documents = db.documents("orders");
        let error = documents.view("by_email").count().unwrap_err();
        assert_eq!(error.code(), Code::Rebuilding);
        assert!(error.message().contains("the document 1 of orders has 0@example.org"), "{error}");
        let states = db.view_states().unwrap();
        let failed = states.iter().find(|state| state.view.name() == "by_email").unwrap();
        assert_eq!(failed.phase, ViewPhase::Building { documents: 0, of: 40 });
        assert!(failed.failed.as_ref().unwrap().contains("0@example.org"));
        db.close().unwrap();
    }
    let db = open();
    let documents = db.documents("orders");
    let changed = |tx: &mut Transaction<'_>| {
        (0..20).try_for_each(|pair| tx.documents("orders").delete(2 * pair + 1).map(drop))
    };
    db.transact(changed).unwrap();
    documents.build_views(|_| Ok(())).unwrap();
    assert_eq!(documents.view("by_email").count().unwrap(), 20);
    assert!(documents.views().unwrap().iter().all(|state| state.is_ready() && state.failed.is_none()));
}

#[test]
fn without_a_background_steps_are_taken_by_hand() {
    let db = Db::options().background(false).in_memory().unwrap();
    let orders = orders(&db, 1_200);
    orders.add_view(by_city()).unwrap();
    let mut seen = Vec::new();
    while db.step_background().unwrap() {
        seen.push(orders.views().unwrap()[0].phase);
    }
    let building = |documents| ViewPhase::Building { documents, of: 1_200 };
    assert_eq!(seen, [building(500), building(1_000), ViewPhase::Ready]);
    check(&orders, 1_200);
}

// A failure of a view does not concern a later view of the same name: that one neither waits for the retry
// nor reports the old error.
#[test]
fn a_view_of_the_same_name_starts_without_the_faults_of_the_other() {
    let db = Db::options().background(false).in_memory().unwrap();
    let documents = orders(&db, 40);
    documents.add_view(by_email()).unwrap();
    while db.step_background().unwrap() {}
    let failed = |db: &Db| db.view_states().unwrap().iter().find_map(|state| state.failed.clone());
    assert!(failed(&db).unwrap().contains("0@example.org"));
    assert!(db.transact(|tx| tx.drop_collection("orders")).unwrap());
    let documents = orders(&db, 1);
    documents.add_view(by_email()).unwrap();
    assert_eq!(failed(&db), None);
    while db.step_background().unwrap() {}
    assert_eq!(documents.view("by_email").count().unwrap(), 1);
}
