//! What a delete reaches, its limit, and what is cleared.

use duramen::Code;
use duramen::prelude::*;

use super::{Comment, Invoice, Post, User, comment, post, refused, shop, sound, user};

#[test]
fn cascades_are_bounded() {
    let db = shop();
    for chunk in 0..11 {
        db.write(|tx| (0..1000).try_for_each(|id| tx.put(&comment(1000 + chunk * 1000 + id, 10, None))))
            .unwrap();
    }
    refused(db.delete::<Post>(10), Code::TooLarge, &["10 of posts", "10000 documents", "delete_range"]);
    assert_eq!(db.collection::<Comment>().count().unwrap(), 11_004);
    // A refused delete reaches none of them.
    (0..11).for_each(|chunk| {
        db.write(|tx| (0..1000).try_for_each(|id| tx.put(&Invoice { id: chunk * 1000 + id, user: 3 })))
            .unwrap();
    });
    refused(db.delete::<User>(3), Code::StillReferenced, &["11000 documents"]);
    db.delete_range::<Comment>(5000..).unwrap();
    assert_eq!(db.delete_counting::<Post>(10).unwrap().followed.cascaded, 4003);
    sound(&db);
}

// Each answer is reached as one of the post and as one of its comment.
#[test]
fn a_document_that_is_reached_twice_counts_once() {
    let db = shop();
    db.put(&comment(1000, 10, None)).unwrap();
    for chunk in 1..=6 {
        db.write(|tx| {
            (0..1000).try_for_each(|id| tx.put(&comment(1000 + chunk * 1000 + id, 10, Some(1000))))
        })
        .unwrap();
    }
    assert_eq!(db.delete_counting::<Post>(10).unwrap().followed.cascaded, 6004);
    sound(&db);
}

// The caller knows the document that it deletes, not one far below.
#[test]
fn the_limit_names_the_deleted_document() {
    let db = shop();
    for chunk in 1..=11 {
        db.write(|tx| (0..1000).try_for_each(|id| tx.put(&comment(chunk * 1000 + id, 10, None)))).unwrap();
    }
    let words = ["deleting 1 of users reaches more than 10000", "posts.author or posts.reviewer"];
    refused(db.delete::<User>(1), Code::TooLarge, &words);
    db.delete_range::<Comment>(9000..).unwrap();
    let both = db.write(|tx| {
        tx.put(&post(12, 3))?;
        (0..3000).try_for_each(|id| tx.put(&comment(20_000 + id, 12, None)))?;
        tx.delete::<User>(1)?;
        tx.delete::<User>(3).map(drop)
    });
    let words = ["deleting 3 of users, with what the transaction deleted before,", "delete fewer documents"];
    refused(both, Code::TooLarge, &words);
    assert_eq!(db.delete_counting::<User>(1).unwrap().followed.cascaded, 8004);
    sound(&db);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "desks", view(ByOwner, key = owner, unique, nulls))]
struct Desk {
    #[key]
    id: u64,
    #[references(User, on_delete = cascade)]
    of: u64,
    #[references(User, on_delete = clear)]
    owner: Option<u64>,
}

// Stored without an owner the desk would be the second such one, which the view refuses.
#[test]
fn a_document_that_is_deleted_is_not_cleared_before() {
    let db = shop();
    db.put(&Desk { id: 1, of: 3, owner: None }).unwrap();
    db.put(&Desk { id: 2, of: 2, owner: Some(2) }).unwrap();
    let followed = db.delete_counting::<User>(2).unwrap().followed;
    // Post 11 with its comment 103 and the answer 102, and the desk; of post 10 two fields.
    assert_eq!((followed.cascaded, followed.cleared), (4, 1));
    assert_eq!(db.collection::<Desk>().count().unwrap(), 1);
    db.put(&user(2)).unwrap();
    sound(&db);
}

// Of a range, too: a document is one, however many of its fields are cleared by however many deletes.
#[test]
fn a_document_is_counted_once_in_a_transaction() {
    let db = shop();
    db.put(&Post { reviewer: Some(1), readers: vec![1, 2], ..post(12, 3) }).unwrap();
    let cleared = db.transact(|tx| {
        tx.delete_range::<User>(1..3, 10)?;
        Ok(tx.followed().cleared)
    });
    assert_eq!(cleared.unwrap(), 2, "posts 11 and 12");
    assert_eq!(db.get::<Post>(12).unwrap(), Some(post(12, 3)));
    sound(&db);
}
