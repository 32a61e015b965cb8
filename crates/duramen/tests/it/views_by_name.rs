//! Views by name: added, queried, rebuilt and dropped by untyped tools, beside typed programs.

use std::sync::Arc;
use std::thread;

use duramen::prelude::*;
use duramen::tuple::Element;
use duramen::view::{Reduce, ViewSpec};
use duramen::{Code, Disk, MemDisk, ViewPhase};
use duramen_disk::memory::{CallKind, Effect, Fault, SyncGate};
use duramen_engine::Background;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(ByCity, key = (city, day), value = cents, reduce = (Count, Sum, Max)))]
struct Order {
    #[key]
    id: u64,
    city: String,
    day: u32,
    cents: i64,
}

mod changed {
    use duramen::prelude::*;

    /// The same type when its view has changed.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", view(ByCity, key = city, value = cents, reduce = (Sum, Min)))]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) city: String,
        pub(super) day: u32,
        pub(super) cents: i64,
    }
}

fn order(id: u64) -> Order {
    let city = ["Oslo", "Bergen", "Os"][usize::try_from(id % 3).unwrap()].to_owned();
    Order { id, city, day: u32::try_from(id % 7).unwrap(), cents: i64::try_from(id).unwrap() * 10 - 200 }
}

fn shop(count: u64) -> Db {
    let db = Db::options().background(false).in_memory().unwrap();
    db.transact(|tx| (0..count).try_for_each(|id| tx.put(&order(id)))).unwrap();
    db
}

// A tool must get the same answers as the program.
#[test]
fn a_view_by_name_answers_as_the_typed_one_does() {
    let db = shop(50);
    let orders = db.documents("orders");
    let (named, typed) = (orders.view("by_city"), db.view::<ByCity>());
    assert_eq!(named.count().unwrap(), typed.count().unwrap());
    let (count, sum, max) = typed.prefix("Oslo").reduce().unwrap();
    let all = named.key("Oslo").reduce().unwrap();
    assert_eq!(
        (all.count, &all.parts[0].value, &all.parts[1].value),
        (count, &Value::Int(sum), &Value::from(max))
    );
    assert_eq!(
        (all.parts[1].reduce.clone(), all.parts[1].field.as_deref(), all.parts[1].seen),
        (Reduce::Max(0), Some("cents"), count)
    );
    let groups: Vec<_> = named
        .reverse()
        .limit(2)
        .group_by(1)
        .unwrap()
        .into_iter()
        .map(|(key, all)| (key[0].to_string(), all.count))
        .collect();
    let wanted: Vec<_> = typed
        .reverse()
        .limit(2)
        .group_by::<String>()
        .unwrap()
        .into_iter()
        .map(|(key, all)| (key, all.0))
        .collect();
    assert_eq!(groups, wanted);
    let span = Span::between(("Os", 2), ("Os", 5)).unwrap();
    let rows: Vec<_> = named.range(span.clone()).rows().unwrap().map(|row| row.unwrap()).collect();
    let wanted: Vec<_> = typed.range(("Os", 2)..("Os", 5)).iter().unwrap().map(|row| row.unwrap()).collect();
    assert_eq!(rows.len(), wanted.len());
    for (row, wanted) in rows.iter().zip(&wanted) {
        assert_eq!(row.key, [Element::Text(wanted.key.0.clone()), Element::Int(wanted.key.1.into())]);
        assert_eq!(row.document, [Element::Int(wanted.document.into())]);
        assert_eq!(row.values, [Value::from(order(wanted.document).cents)]);
    }
    let ids: Vec<u64> =
        typed.range(("Os", 2)..("Os", 5)).docs().unwrap().into_iter().map(|order| order.id).collect();
    let documents = named.range(span).docs().unwrap();
    assert_eq!(
        documents.iter().map(|found| found.get("id").cloned().unwrap()).collect::<Vec<_>>(),
        ids.iter().map(|id| Value::from(*id)).collect::<Vec<_>>()
    );
    assert_eq!(
        named.nth(3).unwrap().unwrap().document,
        [Element::Int(typed.nth(3).unwrap().unwrap().document.into())]
    );
    assert_eq!(named.rank(("Os", 3)).unwrap(), typed.rank(("Os", 3)).unwrap());
    let error = orders.view("by_town").count().unwrap_err();
    assert!(error.code() == Code::NoSuchTree && error.hint().contains("by_city"), "{error}");
    db.transact(|tx| {
        tx.documents("orders").delete(0)?;
        assert_eq!(tx.documents("orders").view("by_city").count()?, 49);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_view_added_by_name_is_kept_by_programs_with_types() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(8));
    let open = || Db::options().background(false).open_on(Arc::clone(&disk), "/db").unwrap();
    let db = open();
    db.put(&order(1)).unwrap();
    let by_day = ViewSpec::new("by_day", ["day"]);
    assert!(db.documents("orders").add_view(by_day.clone()).unwrap());
    db.documents("orders").build_views(|_| Ok(())).unwrap();
    drop(db);
    let db = open();
    db.transact(|tx| (0..30).try_for_each(|id| tx.put(&order(id)))).unwrap();
    assert_eq!(db.documents("orders").view("by_day").key(3).count().unwrap(), 4);
    let shown = db.collections().unwrap();
    assert_eq!(shown[0].views().iter().map(ViewSpec::name).collect::<Vec<_>>(), ["by_city", "by_day"]);
    assert!(db.documents("orders").drop_view("by_day").unwrap());
    assert!(!db.documents("orders").drop_view("by_day").unwrap());
    assert_eq!(db.documents("orders").rebuild_view("by_day").unwrap_err().code(), Code::NoSuchTree);
    let unfit = ViewSpec::new("empty", Vec::<String>::new());
    assert_eq!(db.documents("orders").add_view(unfit).unwrap_err().code(), Code::InvalidArgument);
    assert!(db.check().unwrap().is_clean());
}

fn oslo(db: &Db) -> (u64, i128) {
    let orders = db.collection::<Order>().to_vec().unwrap();
    let sums = orders.iter().filter(|order| order.city == "Oslo");
    (sums.clone().count() as u64, sums.map(|order| i128::from(order.cents)).sum())
}

// A changed view is built beside the old one, which stays current and answers for the type that declares it.
// Once the new one is ready the old one is dropped, unless this program still declares it.
#[test]
fn a_changed_view_is_built_while_the_old_one_answers() {
    let db = shop(1_600);
    let old = |db: &Db| {
        let (count, sum, _) = db.view::<ByCity>().prefix("Oslo").reduce().unwrap();
        (count, sum)
    };
    let new = |db: &Db| db.view::<changed::ByCity>().key("Oslo").reduce();
    db.put(&changed::Order { id: 9_000, city: "Oslo".into(), day: 1, cents: 5 }).unwrap();
    let mut steps = 0;
    while new(&db).is_err_and(|error| error.code() == Code::Rebuilding) {
        assert_eq!(old(&db), oslo(&db), "step {steps}");
        db.put(&Order { cents: -7, ..order(steps * 300) }).unwrap();
        db.delete::<Order>(steps * 300 + 3).unwrap();
        assert_eq!(old(&db), oslo(&db), "step {steps}");
        assert!(db.step_background().unwrap());
        steps += 1;
    }
    assert!(steps >= 3, "it took {steps} steps");
    assert_eq!(new(&db).unwrap().0, oslo(&db).1);
    assert_eq!(old(&db), oslo(&db), "this program asks for both");
    assert!(db.check().unwrap().is_clean() && db.check_documents().unwrap().is_clean());
}

#[test]
fn a_new_program_lets_the_old_view_go_when_its_own_is_ready() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(9));
    let open = || Db::options().background(false).open_on(Arc::clone(&disk), "/db").unwrap();
    let db = open();
    db.transact(|tx| (0..700).try_for_each(|id| tx.put(&order(id)))).unwrap();
    drop(db);
    let db = open();
    db.put(&changed::Order { id: 1, city: "Oslo".into(), day: 1, cents: 5 }).unwrap();
    let named = |db: &Db| db.documents("orders").view("by_city").spec().unwrap().key_fields().len();
    assert_eq!((named(&db), db.documents("orders").views().unwrap().len()), (2, 2));
    while db.step_background().unwrap() {}
    assert_eq!((named(&db), db.documents("orders").views().unwrap().len()), (1, 1));
    assert_eq!(db.view::<changed::ByCity>().key("Oslo").reduce().unwrap().0, oslo(&db).1);
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn a_view_is_rebuilt_while_it_answers() {
    let db = shop(1_200);
    let orders = db.documents("orders");
    orders.rebuild_view("by_city").unwrap();
    let mut steps = 0;
    while db.step_background().unwrap() {
        steps += 1;
        assert_eq!(db.view::<ByCity>().prefix("Oslo").reduce().unwrap().0, oslo(&db).0);
        assert_eq!(orders.view("by_city").key("Oslo").count().unwrap(), oslo(&db).0);
    }
    assert_eq!(steps, 3);
    let states = orders.views().unwrap();
    assert_eq!((states.len(), states[0].phase), (1, ViewPhase::Ready));
    assert_eq!(db.view::<ByCity>().prefix("Oslo").reduce().unwrap().1, oslo(&db).1);
}

// A release may change all of its views: documents can be written meanwhile, and replaced views do not count
// twice.
#[test]
fn a_collection_with_as_many_views_as_can_be_replaces_them_all() {
    let name = |index: usize| format!("v{index}");
    let views = (0..64).map(|index| ViewSpec::new(name(index), ["a"]));
    let db = Db::options().background(false).in_memory().unwrap();
    let wide = db.ensure(&views.fold(Schema::new("wide").key(["id"]), Schema::view)).unwrap();
    wide.put(doc! { "id": 1, "a": 1, "b": 2 }).unwrap();
    wide.rebuild_view("v7").unwrap();
    let error = wide.add_view(ViewSpec::new("one more", ["a"])).unwrap_err();
    assert_eq!(error.message(), "the collection wide has 65 views, and can have 64");
    let change = |tx: &mut Transaction<'_>| {
        (0..64).try_for_each(|index| tx.add_view("wide", &ViewSpec::new(name(index), ["b"])).map(drop))
    };
    db.transact(change).unwrap();
    assert_eq!(wide.views().unwrap().len(), 64 + 1 + 64);
    wide.put(doc! { "id": 2, "a": 1, "b": 2 }).unwrap();
    wide.build_views(|_| Ok(())).unwrap();
    assert_eq!(wide.views().unwrap().len(), 64);
    for index in 0..64 {
        assert_eq!(wide.view(&name(index)).key(2).count().unwrap(), 2);
    }
    // The number of unbuilt generations is bounded too.
    let mut fields = (0..500).map(|index| ViewSpec::new("v0", [format!("f{index}")]));
    let error = fields.find_map(|view| wide.add_view(view).err()).unwrap();
    assert!(error.message().contains("257 views with those that are being replaced"), "{error}");
}

/// A commit at level `Memory` that adds a view may be dropped after its call has returned. The same view,
/// added again, is the same in the catalogue, and its rows are in another tree.
#[test]
fn a_view_is_added_again_where_the_commit_that_added_it_was_dropped() {
    let disk = MemDisk::new(9);
    let options = Db::options().engine(|options| options.background = Background::Stepped);
    let db = options.open_on(Arc::new(disk.clone()), "/db").unwrap();
    let orders = db.ensure(&Schema::new("orders").key(["id"])).unwrap();
    let unsynced = db.at(Durability::Memory).documents("orders");
    let view = || ViewSpec::new("by_city", ["city"]);
    // While another thread's commit is synced.
    let beside = |commit: &(dyn Fn() + Sync), work: &dyn Fn() -> Result<()>| {
        let gate = SyncGate::closed();
        disk.set_blocker(Some(gate.blocker(".wal")));
        thread::scope(|scope| {
            let leader = scope.spawn(commit);
            gate.wait_blocked(1);
            let done = work();
            gate.open();
            leader.join().unwrap();
            done.unwrap();
        });
        disk.set_blocker(None);
    };
    beside(&|| drop(db.bytes("t").put("leader", "value").unwrap()), &|| {
        assert!(unsynced.add_view(view())?);
        disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
        Ok(())
    });
    assert_eq!((disk.fault_hit_count(), db.stats().commit.dropped), (1, 1), "its group had no room");
    beside(&|| assert!(orders.add_view(view()).unwrap()), &|| {
        unsynced.put(doc! { "id": 1, "city": "Oslo" }).map(drop)
    });
    assert_eq!(orders.view("by_city").key("Oslo").count().unwrap(), 1);
    assert!(db.check_documents().unwrap().is_clean());
}
