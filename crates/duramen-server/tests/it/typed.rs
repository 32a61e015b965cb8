//! Typed programs on a database in this process and on one that another serves: the same functions, the same
//! answers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;

use duramen::prelude::*;
use duramen::{Code, json};
use duramen_client::Remote;

use crate::{Served, shop};

fn remote(served: &Served) -> Remote {
    Remote::connect(served.path().to_str().expect("text")).expect("a connection")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Key)]
#[key(by_number)]
#[serde(into = "u8", try_from = "u8")]
enum Class {
    First = 1,
    Second = 2,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Nested)]
struct Place {
    city: String,
    zip: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "parcels",
    view(ByCity, key = to.city, value = grams, reduce = (Count, Sum, Mean, Min, Max, TopK(2), Distinct, Quantiles)),
    view(Newest, key = (class, desc(at))),
    view(ByTag, key = tags, each),
    view(ByOwner, key = owner, nulls, value = grams, reduce = Sum),
    view(ByCode, key = code, unique),
)]
struct Parcel {
    #[key]
    class: Class,
    #[key]
    at: Time,
    code: String,
    grams: i64,
    factor: f32,
    owner: Option<u64>,
    tags: Vec<String>,
    to: Place,
    #[serde(flatten)]
    more: BTreeMap<String, i64>,
}

fn parcel(index: i64) -> Parcel {
    let class = if index % 3 == 0 { Class::First } else { Class::Second };
    let at = Time::new(1_000 + index, 0).expect("a time");
    Parcel {
        class,
        at,
        code: format!("code {index}"),
        grams: index * index - 40,
        factor: 0.1,
        owner: (index % 4 > 0).then_some(index.unsigned_abs() % 4),
        tags: (0..index % 3).map(|tag| format!("tag {tag}")).collect(),
        to: Place {
            city: ["Oslo", "Rome", "Bonn"][usize::try_from(index % 3).expect("small")].into(),
            zip: None,
        },
        more: BTreeMap::from([(format!("extra {}", index % 2), index)]),
    }
}

/// What a function found, as a text.
fn show(found: &impl Debug) -> String {
    format!("{found:?}")
}

fn texts<T: Debug>(found: impl Iterator<Item = Result<T>>) -> Result<Vec<String>> {
    found.map(|item| Ok(show(&item?))).collect()
}

/// Every query there is, in every state.
fn queries(state: &impl Reads) -> Result<Vec<String>> {
    let parcels = state.collection::<Parcel>();
    let second = parcels.prefix(Class::Second);
    let mut told = vec![
        show(&state.get::<Parcel>((Class::First, parcel(3).at))?),
        show(&state.get::<Parcel>((Class::First, parcel(4).at))?),
        show(&(parcels.count()?, second.count()?, second.limit(3).count()?, parcels.limit(0).count()?)),
        show(&(parcels.first()?, second.reverse().first()?)),
        show(&(second.nth(2)?, second.reverse().nth(2)?, second.limit(2).nth(2)?, parcels.nth(99)?)),
        show(&(
            second.rank((Class::Second, parcel(7).at))?,
            parcels.reverse().rank((Class::Second, parcel(7).at))?,
        )),
        show(&parcels.explain()?.rows_max),
    ];
    told.extend(texts(second.reverse().limit(3).iter()?)?);
    told.extend(texts(parcels.limit(0).iter()?)?);
    told.extend(texts(parcels.keys()?)?);
    told.extend(texts(parcels.range((Class::Second, parcel(4).at)..).iter()?)?);
    let mut after = None;
    loop {
        let page = second.page(3, after.as_ref())?;
        told.push(show(&page.items));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    told.extend(views(state)?);
    Ok(told)
}

fn views(state: &impl Reads) -> Result<Vec<String>> {
    let cities = state.view::<ByCity>();
    let newest = state.view::<Newest>();
    let mut told = vec![
        show(&reduced(cities.reduce()?)),
        show(&reduced(cities.key("Oslo").reduce()?)),
        show(&reduced(cities.key("Paris").reduce()?)),
        show(&cities.range("Bonn"..="Oslo").count()?),
        show(&(cities.rank("Oslo")?, cities.reverse().rank("Oslo")?)),
        show(&cities.explain()?.rows_max),
        show(&(newest.first_doc()?, newest.reverse().first_doc()?, newest.limit(0).first_doc()?)),
        show(&newest.key((Class::Second, Reverse(parcel(7).at))).docs()?),
        show(&state.view::<ByTag>().key("tag 1").docs()?),
        show(&state.view::<ByTag>().group_by::<String>()?),
        show(&state.view::<ByOwner>().key(None).count()?),
        show(&state.view::<ByOwner>().group_by::<Option<u64>>()?),
        show(&state.view::<ByOwner>().reverse().limit(2).group_by::<Option<u64>>()?),
        show(&state.view::<ByCode>().key("code 4").first_doc()?),
        show(&(
            cities.nth(4)?.map(entry),
            cities.reverse().nth(1)?.map(entry),
            cities.limit(3).nth(3)?.map(entry),
        )),
    ];
    for group in cities.iter_groups::<String>()? {
        let (city, found) = group?;
        told.push(show(&(city, reduced(found))));
    }
    told.extend(texts(newest.iter()?.map(|found| found.map(entry)))?);
    told.extend(texts(newest.prefix(Class::First).reverse().iter_docs()?)?);
    let (mut rows, mut docs) = (None, None);
    loop {
        let page = newest.page(4, rows.as_ref())?;
        let of_docs = newest.page_docs(4, docs.as_ref())?;
        told.push(show(&(page.items.into_iter().map(entry).collect::<Vec<_>>(), of_docs.items)));
        assert_eq!(page.next, of_docs.next);
        (rows, docs) = (page.next, of_docs.next);
        if rows.is_none() {
            return Ok(told);
        }
    }
}

fn entry<V: View<Key: Debug, Collection: Collection<Key: Debug>>>(
    found: duramen::view::ViewEntry<V>,
) -> String {
    show(&(found.key, found.document))
}

type Reduced = (u64, i128, Option<f64>, Option<i64>, Option<i64>, Vec<i64>, u64, duramen::view::Distribution);

fn reduced((count, sum, mean, min, max, top, distinct, quantiles): Reduced) -> String {
    show(&(count, sum, mean, min, max, top, distinct, quantiles.quantile(0.5)))
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Owner {
    #[key(assigned)]
    id: u64,
    name: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Pet {
    #[key(sequential)]
    id: u32,
    #[references(Owner, on_delete = cascade)]
    owner: u64,
}

/// Documents as lists.
#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(positional)]
struct Point {
    #[key]
    id: i64,
    x: f64,
}

/// Everything that a store does.
fn program<S: Store>(db: &S) -> Result<Vec<String>> {
    let mut told = queries(db)?;
    db.transact(|tx| (0..14).try_for_each(|index| tx.insert(&parcel(index))))?;
    told.extend(queries(db)?);
    told.extend(queries(&db.snapshot()?)?);
    let before = db.snapshot()?;
    told.extend(db.transact(|tx| writes(tx))?);
    told.extend(queries(&before)?);
    told.extend(queries(db)?);
    told.extend(failures(db)?);
    // Ids, references, positional documents.
    let owner = db.transact(|tx| tx.push(Owner { id: 0, name: "Ada".into() }))?;
    let pets = db.transact(|tx| {
        let pets = [tx.push(Pet { id: 0, owner: owner.id })?, tx.push(Pet { id: 0, owner: owner.id })?];
        Ok(show(&(pets, tx.collection::<Pet>().count()?)))
    })?;
    told.extend([
        show(&owner),
        pets,
        show(&db.delete::<Owner>(owner.id)?),
        show(&db.delete::<Owner>(owner.id)?),
    ]);
    told.push(show(&db.collection::<Pet>().count()?));
    db.put(&Point { id: -3, x: 0.5 })?;
    db.modify::<Point>(-3, |point| {
        point.x += 1.0;
        Ok(())
    })?;
    told.push(show(&db.collection::<Point>().iter()?.collect::<Result<Vec<_>>>()?));
    // Key-values.
    db.kv("stock").put("tea", &7)?;
    db.kv("stock").put_with("gone", &7, Ttl::millis(0))?;
    db.kv("stock").put_value("any", &json::parse(r#"{"a": [1, null]}"#)?, Ttl::hours(1))?;
    told.push(db.transact(|tx| {
        let stock = tx.kv("stock");
        stock.increment("tea", 3)?;
        stock.put_with("any", "text", Ttl::keep())?;
        let found = (stock.get::<i64>("tea")?, stock.get::<String>("any")?, stock.get_value("gone")?);
        Ok(show(&(found, stock.delete("tea")?, stock.delete("tea")?)))
    })?);
    told.push(show(&(db.kv("stock").increment("tea", 1)?, db.kv("stock").delete("any")?)));
    Ok(told)
}

/// Writes in a transaction, which sees them; rows whose reading began before them are those of before.
fn writes<T: Tx>(tx: &mut T) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let mut before = tx.collection::<Parcel>().iter()?;
    told.push(show(&before.next().transpose()?));
    let changed = tx.modify::<Parcel>((Class::First, parcel(3).at), |parcel| {
        parcel.grams += 1;
        Ok(())
    })?;
    told.push(show(&changed));
    told.push(show(&tx.modify::<Parcel>((Class::First, parcel(4).at), |_| Ok(()))?));
    tx.upsert(&parcel(100), |_| Err(Error::invalid("it is not there")))?;
    tx.update(&Parcel { grams: 5, ..parcel(6) })?;
    told.push(show(&tx.delete::<Parcel>((Class::Second, parcel(1).at))?));
    told.push(show(&tx.delete::<Parcel>((Class::Second, parcel(1).at))?));
    told.push(show(&tx.take::<Parcel>((Class::Second, parcel(2).at))?));
    told.extend(texts(before)?);
    told.extend(queries(tx)?);
    Ok(told)
}

/// Calls that fail, with their codes.
fn failures<S: Store>(db: &S) -> Result<Vec<String>> {
    let code = |done: Result<()>| done.err().map(|error| error.code());
    let twin = Parcel { at: Time::new(5, 0).expect("a time"), ..parcel(8) };
    Ok(vec![
        show(&code(db.insert(&parcel(8)))),
        show(&code(db.update(&parcel(90)))),
        show(&code(db.put(&twin))),
        show(&code(db.transact(|tx| tx.put(&twin)))),
        show(&code(db.put(&Pet { id: 1, owner: 9 }))),
        show(&code(db.transact(|tx| tx.insert(&parcel(8))))),
        show(&code(
            db.modify::<Parcel>((Class::First, parcel(3).at), |parcel| {
                parcel.class = Class::Second;
                Ok(())
            })
            .map(drop),
        )),
        show(&code(
            db.kv("stock").put("text", "a").and_then(|()| db.kv("stock").increment("text", 1).map(drop)),
        )),
        show(&code(db.kv("stock").get::<i64>("text").map(drop))),
    ])
}

#[test]
fn a_program_has_the_same_answers_here_and_there() {
    let served = Served::new();
    let here = program(&Db::in_memory().expect("a database")).expect("it runs here");
    let there = program(&remote(&served)).expect("it runs there");
    for (number, (here, there)) in here.iter().zip(&there).enumerate() {
        assert_eq!(there, here, "answer {number} of {}", here.len());
    }
    assert_eq!(here.len(), there.len());
    // And what it has stored is what an embedded program reads.
    assert_eq!(queries(&served.db).expect("read"), queries(&remote(&served)).expect("read"));
    assert!(served.db.check().expect("checked").is_clean());
    let schema = served.db.documents("parcels").schema().expect("a schema");
    assert!(
        schema.columns().iter().all(|column| !column.name.starts_with("extra")),
        "typed writes add no columns"
    );
}

/// The same collection for a program of another release.
#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "owner", view(OwnerByName, key = name))]
struct OwnerNow {
    #[key(assigned)]
    id: u64,
    name: String,
    #[serde(default)]
    age: Option<u8>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "owner")]
struct OwnerWrong {
    #[key]
    id: u64,
    name: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "owner")]
#[migrate_from(Owner)]
struct OwnerNext {
    #[key(assigned)]
    id: u64,
    full_name: String,
}

impl From<Owner> for OwnerNext {
    fn from(owner: Owner) -> OwnerNext {
        OwnerNext { id: owner.id, full_name: owner.name }
    }
}

#[test]
fn types_are_fitted_again_after_a_change() {
    let served = Served::new();
    let (old, new) = (remote(&served), remote(&served));
    old.put(&Owner { id: 1, name: "Ada".into() }).expect("stored");
    // The view is not there until the type has written.
    let read = new.view::<OwnerByName>().count();
    assert_eq!(read.expect_err("no such view").code(), Code::Rebuilding);
    let mut runs = 0;
    let done = old.transact(|tx| {
        runs += 1;
        let before = tx.get::<Owner>(1)?;
        if runs == 1 {
            // Another program changes the collection under the open transaction.
            new.put(&OwnerNow { id: 2, name: "Bo".into(), age: Some(7) })?;
        }
        tx.put(&Owner { id: 3, name: "Cy".into() })?;
        Ok(before)
    });
    assert_eq!(done.expect("it ran again"), Some(Owner { id: 1, name: "Ada".into() }));
    assert!(runs > 1, "the first run conflicts");
    while new.view::<OwnerByName>().count().is_err() {
        new.client().build_views("owner", "owner_by_name").expect("built");
    }
    assert_eq!(new.view::<OwnerByName>().key("Cy").count().expect("counted"), 1);
    assert_eq!(old.get::<Owner>(2).expect("read"), Some(Owner { id: 2, name: "Bo".into() }));
    // Types that do not fit, with what to change.
    let wrong = new.put(&OwnerWrong { id: 1, name: 1 }).expect_err("it does not fit");
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(wrong.message().contains("does not fit OwnerWrong"), "{wrong:?}");
    let next = new.get::<OwnerNext>(1).expect_err("a migration is code");
    assert_eq!(next.code(), Code::Unsupported, "{next:?}");
    assert_eq!(
        new.put(&OwnerNext { id: 1, full_name: "A".into() }).expect_err("no").code(),
        Code::Unsupported
    );
    // The collection goes, and comes again.
    served.db.transact(|tx| tx.drop_collection("owner")).expect("dropped");
    assert_eq!(old.get::<Owner>(1).expect("read"), None);
    assert_eq!(old.collection::<Owner>().iter().expect("read").count(), 0);
    new.put(&OwnerNow { id: 9, name: "Di".into(), age: None }).expect("stored");
    assert_eq!(old.collection::<Owner>().count().expect("counted"), 1);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let served = Served::new();
    let remote = remote(&served);
    remote.put(&Owner { id: 1, name: "Ada".into() }).expect("stored");
    let before = remote.snapshot().expect("a snapshot");
    remote.put(&Owner { id: 2, name: "Bo".into() }).expect("stored");
    assert_eq!(before.collection::<Owner>().count().expect("counted"), 1);
    assert_eq!(remote.collection::<Owner>().count().expect("counted"), 2);
    drop(before);
}

/// Many rows come in several parts, in a transaction and outside of one.
#[test]
fn many_rows_come_in_parts() {
    let served = Served::new();
    let remote = remote(&served);
    let names = |from: u64| (from..from + 3_000).map(|id| OwnerNow { id, name: "n".repeat(300), age: None });
    for from in [1, 3_001, 6_001] {
        remote.transact(|tx| names(from).try_for_each(|owner| tx.put(&owner))).expect("stored");
    }
    let ids = |found: duramen::Query<'_, OwnerNow>| -> Vec<u64> {
        found.iter().expect("begun").map(|owner| owner.expect("read").id).collect()
    };
    let all: Vec<u64> = (1..=9_000).collect();
    assert_eq!(ids(remote.collection()), all);
    assert_eq!(
        ids(remote.collection().reverse().limit(5_000)),
        all.iter().rev().take(5_000).copied().collect::<Vec<_>>()
    );
    let seen = remote.transact(|tx| {
        let mut seen = Vec::new();
        for owner in tx.collection::<OwnerNow>().iter()? {
            let owner = owner?;
            seen.push(owner.id);
            if owner.id == 10 {
                // Written while rows are read: it is not among them.
                tx.put(&OwnerNow { id: 9_500, ..owner })?;
            }
        }
        Ok((
            seen,
            tx.collection::<OwnerNow>().limit(6_000).iter()?.count(),
            tx.collection::<OwnerNow>().count()?,
        ))
    });
    assert_eq!(seen.expect("committed"), (all, 6_000, 9_001));
}

#[test]
fn every_view_of_every_flight_is_right_by_a_server() {
    let served = Served::new();
    crate::year::check(&remote(&served));
}

/// The example of the client's crate: one source, the same totals.
#[test]
fn the_shop_has_the_same_totals_here_and_there() {
    let served = Served::new();
    let here = shop::run(&Db::in_memory().expect("a database")).expect("it runs here");
    let there = shop::run(&remote(&served)).expect("it runs there");
    assert_eq!(there, here);
    assert_eq!(there.left + there.counted, 400);
}

/// Maps whose keys are no texts, which documents without a type cannot have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Poll {
    #[key]
    id: u64,
    votes: BTreeMap<u32, i8>,
    shares: BTreeMap<bool, f64>,
}

#[test]
fn documents_and_values_are_stored_as_they_were_sent() {
    let served = Served::new();
    let remote = remote(&served);
    let poll = Poll { id: 1, votes: BTreeMap::from([(7, -1)]), shares: BTreeMap::from([(true, 0.5)]) };
    remote.put(&poll).expect("stored");
    assert_eq!(remote.get::<Poll>(1).expect("read"), Some(poll.clone()));
    assert_eq!(served.db.get::<Poll>(1).expect("read"), Some(poll.clone()));
    remote.kv("polls").put("a", &poll.votes).expect("stored");
    assert_eq!(remote.kv("polls").get("a").expect("read"), Some(poll.votes.clone()));
    assert_eq!(served.db.kv("polls").get("a").expect("read"), Some(poll.votes));
    // A lifetime until a time, and one that is over.
    let hour = Time::new(4_000_000_000, 0).expect("a time");
    remote.kv("polls").put_with("until", &1, Ttl::until(hour)).expect("stored");
    remote.kv("polls").put_with("over", &1, Ttl::until(Time::new(1, 0).expect("a time"))).expect("stored");
    let expiry = served.db.kv("polls").expiry("until").expect("read");
    assert_eq!(expiry, Some(duramen::kv::Expiry::At(hour)));
    assert_eq!(remote.kv("polls").get::<i64>("over").expect("read"), None);
}

/// Types that refer to each other, of which no collection is there.
#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Author {
    #[key]
    id: u64,
    #[references(Book)]
    first: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Book {
    #[key]
    id: u64,
    #[references(Author)]
    by: u64,
    #[references(Shelf)]
    shelf: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Shelf {
    #[key]
    id: u64,
}

#[test]
fn references_may_form_chains_and_circles() {
    let served = Served::new();
    let remote = remote(&served);
    remote
        .transact(|tx| {
            tx.put(&Author { id: 1, first: Some(2) })?;
            tx.put(&Book { id: 2, by: 1, shelf: None })
        })
        .expect("both are there at the commit");
    let missing = remote.put(&Book { id: 3, by: 1, shelf: Some(9) });
    assert_eq!(missing.expect_err("no such shelf").code(), Code::MissingTarget);
    assert_eq!(remote.delete::<Author>(1).expect_err("it is referred to").code(), Code::StillReferenced);
}

/// The same view with another key, as a later release has it.
#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "owner", view(OwnerBy, key = name))]
struct OwnerOne {
    #[key]
    id: u64,
    name: String,
}

mod next {
    use duramen::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "owner", view(OwnerBy, key = (id, name)))]
    pub(super) struct OwnerTwo {
        #[key]
        pub(super) id: u64,
        pub(super) name: String,
    }
}

#[test]
fn a_view_that_is_replaced_is_never_taken_for_the_other() {
    let served = Served::new();
    let (one, two) = (remote(&served), remote(&served));
    one.put(&OwnerOne { id: 1, name: "Ada".into() }).expect("stored");
    assert_eq!(one.view::<OwnerBy>().key("Ada").count().expect("counted"), 1);
    two.put(&next::OwnerTwo { id: 2, name: "Bo".into() }).expect("stored");
    while two.view::<next::OwnerBy>().count().is_err() {
        two.client().build_views("owner", "owner_by").expect("built");
    }
    assert_eq!(two.view::<next::OwnerBy>().prefix(2).count().expect("counted"), 1);
    // The older type is known since the start, so its view answers, too, and each by its own terms.
    assert_eq!(one.view::<OwnerBy>().key("Bo").count().expect("counted"), 1);
    assert_eq!(one.transact(|tx| tx.view::<OwnerBy>().key("Bo").count()).expect("counted"), 1);
    assert_eq!(two.view::<next::OwnerBy>().group_by::<u64>().expect("grouped"), [(1, 1), (2, 1)]);
}

#[test]
fn an_error_that_a_closure_handles_does_not_end_its_transaction() {
    let served = Served::new();
    let remote = remote(&served);
    remote.kv("a").put("text", "x").expect("stored");
    let done = remote.transact(|tx| {
        tx.kv("a").put("before", &1)?;
        if tx.kv("a").increment("text", 1).is_err() {
            tx.kv("a").put("text", &1)?;
        }
        let none = tx.documents("none").get(1).map(drop);
        assert_eq!(none.expect_err("no such collection").code(), Code::NoSuchTree);
        tx.kv("a").get::<i64>("before")
    });
    assert_eq!(done.expect("committed"), Some(1));
    assert_eq!(served.db.kv("a").get::<i64>("text").expect("read"), Some(1));
    // What reads in a transaction ends with it.
    let many = (0..200).map(|id| Owner { id, name: "n".repeat(5_000) });
    remote.transact(|tx| many.clone().try_for_each(|owner| tx.put(&owner))).expect("stored");
    let rows = remote.transact(|tx| tx.collection::<Owner>().iter()).expect("begun");
    let late: Vec<Result<Owner>> = rows.take(1_000).collect();
    assert_eq!(late.iter().filter(|row| row.is_err()).count(), 1, "an error ends it");
    let error = late.into_iter().find_map(Result::err).expect("its transaction has ended");
    assert_eq!(error.code(), Code::TransactionExpired);
}

#[test]
fn what_no_type_declares_is_refused() {
    use duramen::wire::{StoredType, TypeDefinition};
    use duramen_proto::v1;
    let (served, other) = (Served::new(), Served::new());
    let ensure_at = |served: &Served, definitions: Vec<Vec<u8>>| {
        let definitions = definitions.into_iter().map(Into::into).collect();
        let request = v1::EnsureTypeRequest { definitions, ..v1::EnsureTypeRequest::default() };
        served.client.ensure_type(request).map(drop).map_err(|error| error.code())
    };
    let ensure = |definitions| ensure_at(&served, definitions);
    let good = StoredType::of::<OwnerOne>().definitions().expect("encoded");
    assert_eq!(ensure(vec![]), Err(Code::InvalidArgument));
    assert_eq!(ensure(vec![vec![0xc1]]), Err(Code::InvalidArgument));
    assert_eq!(ensure(vec![good[0].clone(); 65]), Err(Code::TooLarge));
    assert_eq!(ensure(vec![vec![0; 300 << 10]]), Err(Code::TooLarge));
    // One bit at a time: an error or a definition, and a server that goes on.
    for at in 0..good[0].len() {
        for bit in [1, 16, 128] {
            let mut bytes = good[0].clone();
            bytes[at] ^= bit;
            if let Ok(definition) = TypeDefinition::from_bytes(&bytes) {
                assert!(TypeDefinition::from_bytes(&definition.to_bytes().expect("encoded")).is_ok());
            }
            let _any = ensure_at(&other, vec![bytes]);
        }
    }
    assert!(other.db.check().expect("checked").is_clean());
    // A column twice.
    let schema = Schema::new("twice").key(["id"]).column("id", ColumnType::Int).column("xa", ColumnType::Int);
    let mut bytes = schema.column("xb", ColumnType::Int).to_bytes().expect("encoded");
    let place = bytes.windows(2).position(|pair| pair == b"xb").expect("its name");
    bytes[place + 1] = b'a';
    let document =
        doc! { "fields": Value::List(Vec::new()), "type": "Twice" }.with("schema", Value::Bytes(bytes));
    assert_eq!(ensure(vec![document.to_bytes().expect("encoded")]), Err(Code::InvalidArgument));
    assert_eq!(ensure(good), Ok(()));
    // A batch of another definition is told so, once; and a key that is not of the fields.
    let put = |key: &[u8], mark: &[u8]| {
        let document = doc! { "id": 7, "name": "x" }.to_bytes().expect("encoded").into();
        let put = v1::PutTyped { collection: "owner".into(), key: key.to_vec().into(), document, wanted: 0 };
        let operations = vec![v1::Operation { kind: Some(v1::operation::Kind::PutTyped(put)) }];
        let marks = match mark {
            [] => Vec::new(),
            mark => vec![v1::SchemaMark { collection: "owner".into(), mark: mark.to_vec().into() }],
        };
        let batch = v1::BatchRequest { operations, marks, ..v1::BatchRequest::default() };
        served.client.batch(batch).map(drop).map_err(|error| error.code())
    };
    let key = |id: i64| duramen::tuple::encode(&id).expect("encoded");
    assert_eq!(put(&key(7), b"outdated"), Err(Code::SchemaChanged));
    assert_eq!(put(&key(8), &[]), Err(Code::InvalidArgument));
    assert_eq!(put(&[0xff], &[]), Err(Code::InvalidArgument));
    assert_eq!(put(&key(7), &[]), Ok(()));
}
