//! Fields that stored documents lack, and what only a write makes absent.

use duramen::prelude::*;
use duramen::{Code, ViewSpec};

mod before {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks")]
    pub(super) struct Task {
        #[key]
        pub(super) id: u64,
        pub(super) title: String,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "tasks", view(ByPriority, key = priority), view(Effort, key = title, reduce = Sum(priority)))]
struct Task {
    #[key]
    id: u64,
    title: String,
    #[serde(default)]
    priority: u32,
}

fn task(id: u64, priority: u32) -> Task {
    Task { id, title: "write".into(), priority }
}

fn database() -> Db {
    let db = Db::in_memory().unwrap();
    for id in 1..=3 {
        db.put(&before::Task { id, title: "write".into() }).unwrap();
    }
    db
}

fn refused<C: Collection>(db: &Db) -> Error {
    let error = db.register::<C>().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert_eq!(db.collection::<C>().count().unwrap_err().message(), error.message());
    error
}

// The type reads 0 where documents lack the field. A view of the stored documents would have no row there.
#[test]
fn a_view_of_a_field_that_stored_documents_lack_is_refused() {
    let db = database();
    let error = refused::<Task>(&db);
    let message = error.message();
    assert!(
        message.contains("its view by_priority is of priority, which stored documents may lack"),
        "{message}"
    );
    assert!(error.hint().contains("make priority an Option<u32>"), "{}", error.hint());
    assert!(error.hint().contains("#[migrate_from(OldTask)] // above Task"), "{}", error.hint());
    assert_eq!(db.put(&task(4, 1)).unwrap_err().message(), message);
    assert_eq!(db.collection::<before::Task>().count().unwrap(), 3, "nothing was written");
}

// A reduced value counts like a key.
#[test]
fn a_reduction_of_a_field_that_stored_documents_lack_is_refused() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks", view(Least, key = title, reduce = Min(priority)))]
    struct Task {
        #[key]
        id: u64,
        title: String,
        #[serde(default)]
        priority: u32,
    }
    assert!(refused::<Task>(&database()).message().contains("its view least is of priority"));
}

#[test]
fn the_advice_an_option_is_accepted_and_its_view_is_right() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks", view(ByMaybe, key = priority, nulls))]
    struct Task {
        #[key]
        id: u64,
        title: String,
        priority: Option<u32>,
    }
    let db = database();
    db.put(&Task { id: 4, title: String::new(), priority: Some(0) }).unwrap();
    db.build_views::<Task>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByMaybe>().key(None).count().unwrap(), 3);
    assert_eq!(db.view::<ByMaybe>().key(Some(0)).count().unwrap(), 1);
}

#[test]
fn the_advice_a_migration_is_accepted_and_its_view_is_right() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks", view(ByNow, key = priority))]
    #[migrate_from(before::Task)]
    struct Task {
        #[key]
        id: u64,
        title: String,
        #[serde(default)]
        priority: u32,
    }
    impl From<before::Task> for Task {
        fn from(old: before::Task) -> Task {
            Task { id: old.id, title: old.title, priority: 0 }
        }
    }
    let db = database();
    db.migrate::<Task>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByNow>().key(0).count().unwrap(), 3);
}

#[test]
fn a_view_of_a_field_with_a_default_is_fine_where_every_document_has_it() {
    let db = Db::in_memory().unwrap();
    db.register::<Task>().unwrap();
    db.put(&task(1, 0)).unwrap();
    assert_eq!(db.view::<ByPriority>().key(0).count().unwrap(), 1);
    // All documents of the smaller type are gone.
    let db = database();
    db.delete_range::<before::Task>(..).unwrap();
    db.put(&task(1, 0)).unwrap();
    db.put(&task(2, 0)).unwrap();
    db.register::<Task>().unwrap();
    assert_eq!(db.view::<ByPriority>().key(0).count().unwrap(), 2);
}

// A list that is absent has as many rows as an empty one.
#[test]
fn a_list_with_a_default_is_fine() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks", view(ByTag, key = tags, each))]
    struct Task {
        #[key]
        id: u64,
        title: String,
        #[serde(default)]
        tags: Vec<String>,
    }
    let db = database();
    db.put(&Task { id: 4, title: String::new(), tags: vec!["new".into()] }).unwrap();
    db.build_views::<Task>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByTag>().count().unwrap(), 1);
}

// A function may make any value, also of an `Option`.
#[test]
fn an_option_with_a_default_of_its_own_is_refused() {
    fn some() -> Option<u32> {
        Some(7)
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks", view(BySome, key = priority))]
    struct Task {
        #[key]
        id: u64,
        title: String,
        #[serde(default = "some")]
        priority: Option<u32>,
    }
    let error = refused::<Task>(&database());
    assert!(
        error.hint().contains("make priority an Option<u32> without a default of its own"),
        "{}",
        error.hint()
    );
}

#[test]
fn a_field_that_the_type_itself_leaves_out_is_refused_in_a_view() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "points", view(ByPoints, key = points))]
    struct Player {
        #[key]
        id: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        points: u32,
    }
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_zero(points: &u32) -> bool {
        *points == 0
    }
    let db = Db::in_memory().unwrap();
    let error = db.put(&Player { id: 1, points: 0 }).unwrap_err();
    assert!(error.message().contains("which skip_serializing_if leaves out of documents"), "{error}");
    assert!(error.hint().contains("take the skip_serializing_if of points away"), "{}", error.hint());
}

// Documents of tools may lack any field, and the catalogue does not know which.
#[test]
fn a_view_of_a_field_that_documents_of_tools_may_lack_is_refused() {
    let db = Db::in_memory().unwrap();
    db.transact(|tx| tx.ensure(&Schema::new("tasks").key(["id"])).map(drop)).unwrap();
    db.documents("tasks").put(doc! { "id": 1, "title": "by a tool" }).unwrap();
    assert!(refused::<Task>(&db).message().contains("which stored documents may lack"));
}

// Only a write makes a field absent. A program that has fewer fields and reads must not stop the other one.
#[test]
fn registering_a_smaller_type_takes_nothing_from_the_full_one() {
    let db = Db::in_memory().unwrap();
    db.put(&task(1, 0)).unwrap();
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "tasks")]
    struct Reader {
        #[key]
        id: u64,
    }
    db.register::<Reader>().unwrap();
    db.register::<before::Task>().unwrap();
    assert_eq!(db.collection::<Reader>().count().unwrap(), 1);
    assert!(db.transact(|tx| tx.get::<Reader>(1)).unwrap().is_some());
    db.register::<Task>().unwrap();
    db.put(&task(2, 0)).unwrap();
    assert_eq!(db.view::<ByPriority>().key(0).count().unwrap(), 2);
    // What it writes lacks the fields.
    db.put(&before::Task { id: 3, title: String::new() }).unwrap();
    assert!(refused::<Task>(&db).message().contains("its view by_priority is of priority"));
}

#[test]
fn a_view_of_tools_is_not_refused() {
    let db = database();
    db.documents("tasks").add_view(ViewSpec::new("by_title", ["title"])).unwrap();
    db.register::<before::Task>().unwrap();
}
