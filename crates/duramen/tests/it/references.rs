//! References: a document refers only to documents that are there, whatever is deleted and by which call.

mod adding;
mod cascades;
mod evolving;
mod model;
mod together;

use duramen::prelude::*;
use duramen::{Code, Deleted, Followed, Reference};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "users")]
pub(crate) struct User {
    #[key]
    pub(crate) id: u64,
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "posts", view(ByAuthor, key = author, value = size, reduce = (Count, Sum)))]
pub(crate) struct Post {
    #[key]
    pub(crate) id: u64,
    #[references(User, on_delete = cascade)]
    pub(crate) author: u64,
    #[references(User, on_delete = clear)]
    pub(crate) reviewer: Option<u64>,
    #[references(User, on_delete = clear)]
    pub(crate) readers: Vec<u64>,
    pub(crate) size: u32,
}

/// A tree of comments: a reference to its own collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "comments")]
pub(crate) struct Comment {
    #[key]
    pub(crate) id: u64,
    #[references(Post, on_delete = cascade)]
    pub(crate) post: u64,
    #[references(Comment, on_delete = cascade)]
    pub(crate) parent: Option<u64>,
}

/// Without `on_delete`: a delete is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "invoices")]
pub(crate) struct Invoice {
    #[key]
    pub(crate) id: u64,
    #[references(User)]
    pub(crate) user: u64,
}

pub(crate) fn user(id: u64) -> User {
    User { id, name: format!("u{id}") }
}

pub(crate) fn post(id: u64, author: u64) -> Post {
    Post { id, author, reviewer: None, readers: Vec::new(), size: 10 }
}

pub(crate) fn comment(id: u64, post: u64, parent: Option<u64>) -> Comment {
    Comment { id, post, parent }
}

/// Three users, with some of everything about the first two.
pub(crate) fn shop() -> Db {
    let db = Db::in_memory().unwrap();
    (1..=3).for_each(|id| drop(db.put(&user(id)).unwrap()));
    db.put(&Post { reviewer: Some(2), readers: vec![2, 3, 2], ..post(10, 1) }).unwrap();
    db.put(&Post { reviewer: Some(1), readers: vec![1, 2], ..post(11, 2) }).unwrap();
    db.put(&comment(100, 10, None)).unwrap();
    db.put(&comment(101, 10, Some(100))).unwrap();
    db.put(&comment(102, 11, Some(101))).unwrap();
    db.put(&comment(103, 11, None)).unwrap();
    db
}

pub(crate) fn sound(db: &Db) {
    assert!(db.check().unwrap().is_clean());
    let report = db.check_documents().unwrap();
    assert!(report.is_clean() && report.dangling_count == 0, "{report:?}");
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(done: duramen::Result<T>, code: Code, words: &[&str]) {
    let error = done.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    let said = format!("{} ({})", error.message(), error.hint());
    words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
}

#[test]
fn a_document_that_refers_to_nothing_is_refused() {
    let db = shop();
    refused(
        db.put(&post(12, 9)),
        Code::MissingTarget,
        &["document 12 of posts has author = 9, and users has no document 9"],
    );
    refused(db.insert(&post(12, 9)), Code::MissingTarget, &[]);
    refused(
        db.put(&Post { readers: vec![1, 9], ..post(12, 1) }),
        Code::MissingTarget,
        &["document 12 of posts has 9 in readers"],
    );
    let moved = db.modify::<Post>(10, |post| {
        post.reviewer = Some(77);
        Ok(())
    });
    refused(moved, Code::MissingTarget, &["document 10 of posts has reviewer = 77"]);
    refused(db.documents("posts").put(duramen::doc! { "id": 13, "author": 9 }), Code::MissingTarget, &[]);
    assert_eq!(db.collection::<Post>().count().unwrap(), 2);
    sound(&db);
}

#[test]
fn none_and_an_empty_list_refer_to_nothing() {
    let db = shop();
    db.put(&post(12, 1)).unwrap();
    sound(&db);
}

#[test]
fn a_delete_is_refused_and_names_the_documents() {
    let db = shop();
    (20..30).for_each(|id| drop(db.put(&Invoice { id, user: 3 }).unwrap()));
    let words = [
        "10 documents refer to the document 3 of users",
        "invoices 20 by user",
        "24",
        "and 5 more",
        "cascade",
    ];
    refused(db.delete::<User>(3), Code::StillReferenced, &words);
    refused(db.documents("users").delete(3), Code::StillReferenced, &[]);
    refused(db.transact(|tx| tx.take::<User>(3)), Code::StillReferenced, &[]);
    refused(db.delete_range::<User>(3..), Code::StillReferenced, &[]);
    refused(db.transact(|tx| tx.documents("users").delete_span(Span::all())), Code::StillReferenced, &[]);
    assert!(db.get::<User>(3).unwrap().is_some());
    db.delete_range::<Invoice>(..).unwrap();
    assert!(db.delete::<User>(3).unwrap());
    sound(&db);
}

#[test]
fn what_refers_follows_through_all_collections() {
    let db = shop();
    let deleted = db.delete_counting::<User>(1).unwrap();
    // Post 10, its comments 100 and 101, and the answer 102 on another post; and two fields of post 11.
    assert_eq!(deleted, Deleted { documents: 1, followed: Followed { cascaded: 4, cleared: 1 } });
    let posts: Vec<Post> = db.collection::<Post>().iter().unwrap().map(Result::unwrap).collect();
    assert_eq!(posts, [Post { reviewer: None, readers: vec![2], ..post(11, 2) }]);
    let comments: Vec<u64> =
        db.collection::<Comment>().iter().unwrap().map(|found| found.unwrap().id).collect();
    assert_eq!(comments, [103]);
    // Views of the deleted documents follow as after any delete.
    assert_eq!(db.view::<ByAuthor>().reduce().unwrap(), (1, 10));
    sound(&db);
}

#[test]
fn every_item_of_a_list_is_cleared_and_the_rest_stays() {
    let db = shop();
    let before = db.documents("posts").get(10).unwrap().unwrap();
    db.put(&post(11, 3)).unwrap();
    let deleted = db.documents("users").delete_counting(2).unwrap();
    assert_eq!(deleted.followed, Followed { cascaded: 0, cleared: 1 });
    let after = db.documents("posts").get(10).unwrap().unwrap();
    assert_eq!(after.get("readers"), Some(&Value::List(vec![3.into()])));
    let readers = Value::List(vec![2.into(), 3.into(), 2.into()]);
    assert_eq!(after.with("reviewer", 2).with("readers", readers), before);
    sound(&db);
}

#[test]
fn a_document_may_refer_to_itself_and_in_a_circle() {
    let db = shop();
    db.put(&comment(200, 10, Some(200))).unwrap();
    db.write(|tx| {
        tx.put(&comment(201, 10, Some(203)))?;
        tx.put(&comment(202, 10, Some(201)))?;
        tx.put(&comment(203, 10, Some(202)))
    })
    .unwrap();
    sound(&db);
    assert_eq!(db.delete_counting::<Comment>(200).unwrap().followed.cascaded, 0);
    assert_eq!(db.delete_counting::<Comment>(202).unwrap().followed.cascaded, 2);
    sound(&db);
}

// The state in which a transaction commits counts, not the order of its writes.
#[test]
fn the_order_inside_a_transaction_does_not_matter() {
    let db = shop();
    db.write(|tx| {
        tx.put(&Invoice { id: 1, user: 50 })?;
        tx.put(&post(12, 50))?;
        tx.put(&user(50))
    })
    .unwrap();
    db.write(|tx| {
        tx.delete::<User>(50)?;
        tx.delete::<Invoice>(1).map(drop)
    })
    .unwrap();
    assert_eq!(db.get::<Post>(12).unwrap(), None);
    // The document that referred to nothing is gone again, or refers to another.
    db.write(|tx| {
        tx.put(&Invoice { id: 2, user: 60 })?;
        tx.put(&Invoice { id: 3, user: 60 })?;
        tx.delete::<Invoice>(2)?;
        tx.put(&Invoice { id: 3, user: 3 })
    })
    .unwrap();
    // A target that is deleted and put again was there.
    db.write(|tx| {
        tx.delete::<User>(3)?;
        tx.put(&user(3))
    })
    .unwrap();
    sound(&db);
    let left = db.write(|tx| {
        tx.put(&Invoice { id: 4, user: 61 })?;
        tx.put(&user(61))?;
        tx.delete::<User>(61).map(drop)
    });
    refused(left, Code::StillReferenced, &["61 of users"]);
}

#[test]
fn a_replaced_document_is_not_deleted() {
    let db = shop();
    db.put(&Invoice { id: 1, user: 1 }).unwrap();
    db.put(&User { name: "new".into(), ..user(1) }).unwrap();
    db.update(&user(1)).unwrap();
    let read = db.get_versioned::<User>(1).unwrap().unwrap();
    db.replace(&User { name: "newer".into(), ..user(1) }, read.revision).unwrap();
    assert_eq!(db.collection::<Post>().count().unwrap(), 2);
    sound(&db);
}

#[test]
fn a_collection_that_is_referred_to_is_not_dropped() {
    let db = shop();
    db.put(&Invoice { id: 1, user: 1 }).unwrap();
    let drop = |name: &str| db.transact(|tx| tx.drop_collection(name));
    refused(drop("users"), Code::StillReferenced, &["posts.author", "posts.readers", "invoices.user"]);
    refused(
        drop("posts"),
        Code::StillReferenced,
        &["comments.post", "drop_reference(\"comments\", \"post\")"],
    );
    // Its reference to itself is no reason.
    assert!(drop("comments").unwrap());
    assert!(drop("posts").unwrap());
    refused(drop("users"), Code::StillReferenced, &["invoices.user"]);
    assert!(db.documents("invoices").drop_reference("user").unwrap());
    assert!(drop("users").unwrap());
    sound(&db);
}

// A range holds documents that others of the range take along.
#[test]
fn ranges_of_trees_are_deleted_whole() {
    let db = shop();
    db.write(|tx| {
        (1000..4000).try_for_each(|id| tx.put(&comment(id, 10, (id % 7 > 0).then_some(1000 + id % 900))))
    })
    .unwrap();
    let at_most = db.transact(|tx| tx.delete_range::<Comment>(1000.., 5)).unwrap();
    assert_eq!(at_most, 5);
    let left = db.collection::<Comment>().range(1000..).count().unwrap();
    let deleted = db.delete_range::<Comment>(1000..).unwrap();
    assert!(deleted <= left && deleted > 0);
    assert_eq!(db.collection::<Comment>().count().unwrap(), 4);
    sound(&db);
}

#[test]
fn views_of_users_do_not_show_what_references_keep() {
    let db = shop();
    let posts = db.documents("posts");
    let names: Vec<_> = posts.views().unwrap().iter().map(|state| state.view.name().to_owned()).collect();
    assert_eq!(names, ["by_author"]);
    refused(posts.view("author").count(), Code::NoSuchTree, &["no view author", "by_author"]);
    assert_eq!(posts.schema().unwrap().views().len(), 1);
    assert_eq!(db.view_states().unwrap().len(), 1);
    let states = posts.references().unwrap();
    assert_eq!(states.len(), 3);
    assert!(states.iter().all(duramen::ReferenceState::is_checked));
    let to = db.documents("users").schema().unwrap();
    let referrers: Vec<_> =
        to.referred_by().iter().map(|by| format!("{}.{}", by.collection, by.field)).collect();
    assert_eq!(referrers, ["posts.author", "posts.reviewer", "posts.readers"]);
}

/// Keys of several elements, of text, and behind `Vec`.
mod compound {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    struct Seat {
        #[key]
        hall: String,
        #[key]
        row: u32,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(positional)]
    struct Booking {
        #[key]
        id: String,
        #[references(Seat, on_delete = clear)]
        seat: Option<(String, u32)>,
        #[references(Seat)]
        beside: Option<Vec<(String, u32)>>,
    }

    #[test]
    fn keys_of_several_elements_are_referred_to() {
        let db = Db::in_memory().unwrap();
        let seat = |row: u32| ("red\0hall".to_owned(), row);
        (1..4).for_each(|row| drop(db.put(&Seat { hall: seat(row).0, row }).unwrap()));
        let booking = Booking { id: "a".into(), seat: Some(seat(1)), beside: Some(vec![seat(2)]) };
        db.put(&booking).unwrap();
        refused(db.put(&Booking { seat: Some(seat(9)), ..booking.clone() }), Code::MissingTarget, &[]);
        refused(db.delete::<Seat>(seat(2)), Code::StillReferenced, &["booking a by beside"]);
        assert_eq!(db.delete_counting::<Seat>(seat(1)).unwrap().followed.cleared, 1);
        assert_eq!(db.get::<Booking>("a").unwrap(), Some(Booking { seat: None, ..booking }));
        sound(&db);
    }

    #[test]
    fn one_value_does_not_refer_to_a_key_of_several() {
        let db = Db::in_memory().unwrap();
        db.register::<Seat>().unwrap();
        let schema = Schema::new("tickets").key(["id"]).column("row", ColumnType::Int);
        let error = db.ensure(&schema.reference(Reference::new("row", "seat"))).err().unwrap();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("holds one int, and a key of seat has 2 elements"), "{error}");
        assert!(error.hint().contains("(hall, row)"), "{error}");
    }
}
