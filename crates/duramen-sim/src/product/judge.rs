//! Compares a database with a state of the model: every document, view, key-value, blob and byte.
//!
//! Owns no state. Rows and reductions of views are computed here from the model's documents, by code that
//! shares nothing with the database's. Writes nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::Read;

use duramen::kv::Expiry;
use duramen::tuple::Element;
use duramen::view::ViewSpec;
use duramen::{Db, Direction, Document, Error, KeyRange, Span, Time, Value};

use super::life::BY_CENTS;
use super::model::{NAMESPACES, State, ValueModel, blob_bytes};
use super::references::judge::references_equal;
use super::shop::{Answers, ChainSum, Link, ORDERS, Order, OwnerSum, Release, Said, Ticket, answer, built};
use super::tally::Tally;
use super::views::Shown;
use crate::search::random::Random;

/// What is wrong, in words.
pub type Verdict = Result<(), String>;

/// An error of the database, with the operation that failed.
pub fn failed(doing: &str) -> impl Fn(Error) -> String {
    move |error| format!("{doing}: {} {error}", error.code())
}

/// Fails if two things differ.
///
/// # Errors
/// What differs.
pub fn same<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, wanted: &T) -> Verdict {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, want {wanted:?}")) }
}

/// Compares everything that programs have stored. Returns what was compared.
///
/// Values that expired before `expired_ms` may have been deleted.
///
/// # Errors
/// What differs.
pub fn database_equals(
    db: &Db,
    state: &State,
    release: Release,
    expired_ms: u64,
    random: &mut Random,
) -> Result<Tally, String> {
    documents(db, state, release)?;
    let phase = references_equal(db, &state.referring)?;
    let views = views(db, state, release, random)?;
    values(db, state, expired_ms)?;
    blobs(db, state)?;
    bytes(db, state)?;
    Ok(Tally { views, ..Tally::of_reference(phase) })
}

/// Runs both checks of the database itself. They report the books whose shelf is missing, and no other
/// documents.
///
/// # Errors
/// What they found.
pub fn checks_are_clean(db: &Db, state: &State) -> Verdict {
    let report = db.check_documents().map_err(failed("check_documents"))?;
    let missing = state.referring.missing_shelves();
    if report.dangling_count != missing.len() as u64 {
        return Err(format!(
            "check_documents: {:?}, and these shelves are missing: {missing:?}",
            report.dangling
        ));
    }
    if !report.is_clean() {
        return Err(format!("check_documents: {:?} {:?}", report.problems, report.unreadable));
    }
    let report = db.check().map_err(failed("check"))?;
    if report.problems.is_empty() && report.unreached.is_empty() {
        return Ok(());
    }
    Err(format!("check: problems {:?}, unreached {:?}", report.problems, report.unreached))
}

fn documents(db: &Db, state: &State, release: Release) -> Verdict {
    let found = release.orders(db).map_err(failed("the documents of orders"))?;
    same("the documents of orders", &found, &state.orders_of(release))?;
    let found = db.collection::<Ticket>().to_vec().map_err(failed("tickets"))?;
    let wanted = state.tickets.iter().map(|(id, n)| Ticket { id: *id, n: *n }).collect();
    same("tickets", &found, &wanted)?;
    numbers(db, "log", Some(&state.log))?;
    numbers(db, "temporary", state.temporary.as_ref())
}

/// A collection without a type that sums one field.
fn numbers(db: &Db, name: &str, wanted: Option<&BTreeMap<u64, i64>>) -> Verdict {
    let collection = db.documents(name);
    let Some(wanted) = wanted else {
        return same(name, &collection.schema().is_err(), &true);
    };
    let Some(found) = answer(collection.scan(Span::all())).map_err(failed(name))? else {
        return same(name, &0, &wanted.len());
    };
    let pair = |document: Document| match (document.get("id"), document.get("n")) {
        (Some(Value::Int(id)), Some(Value::Int(n))) => Ok((*id, *n)),
        _ => Err(format!("{name}: {document:?}")),
    };
    let found: Vec<(i128, i128)> =
        found.map(|document| document.map_err(failed(name)).and_then(pair)).collect::<Result<_, _>>()?;
    let all: Vec<(i128, i128)> = wanted.iter().map(|(id, n)| (i128::from(*id), i128::from(*n))).collect();
    same(name, &found, &all)?;
    let sum = collection.reduce(Span::all()).map_err(failed(name))?;
    same(&format!("count of {name}"), &sum.count(), &(wanted.len() as u64))?;
    let wanted = wanted.values().map(|n| i128::from(*n)).sum::<i128>();
    same(&format!("sum of {name}"), &sum.sum("n"), &Some(wanted))
}

/// What the views of a release must answer, computed from the documents.
fn wanted_answers(orders: &[Order], release: Release, range: &(String, String)) -> Answers {
    let words = |order: &Order| -> BTreeSet<String> {
        let mark = if release >= Release::Changed { "!" } else { "" };
        order.words.split_whitespace().map(|word| format!("{word}{mark}")).collect()
    };
    let tags = |order: &Order| order.tags.iter().cloned().collect();
    let emails = |order: &Order| order.email.iter().cloned().collect();
    Answers {
        owners: Some(said(orders, |order| BTreeSet::from([order.owner.clone()]), owner_sum, range)),
        tags: Some(said(orders, tags, chain_sum, range)),
        words: Some(said(orders, words, chain_sum, range)),
        emails: Some(rows_of(orders, emails).into_iter().map(|(key, order)| (key, order.id)).collect()),
    }
}

/// Rows by key, then by document.
fn rows_of(orders: &[Order], keys: impl Fn(&Order) -> BTreeSet<String>) -> Vec<(String, &Order)> {
    let mut rows: Vec<(String, &Order)> =
        orders.iter().flat_map(|order| keys(order).into_iter().map(move |key| (key, order))).collect();
    rows.sort_by(|(a, left), (b, right)| (a, left.id).cmp(&(b, right.id)));
    rows
}

fn said<S>(
    orders: &[Order],
    keys: impl Fn(&Order) -> BTreeSet<String>,
    sum: impl Fn(&[&Order]) -> S,
    range: &(String, String),
) -> Said<S> {
    let rows = rows_of(orders, keys);
    let mut groups: BTreeMap<&String, Vec<&Order>> = BTreeMap::new();
    rows.iter().for_each(|(key, order)| groups.entry(key).or_default().push(*order));
    let groups = groups.into_iter().map(|(key, orders)| (key.clone(), sum(&orders))).collect();
    let inside = rows.iter().filter(|(key, _)| (&range.0..&range.1).contains(&key));
    let range = sum(&inside.map(|(_, order)| *order).collect::<Vec<_>>());
    Said { groups, rows: rows.into_iter().map(|(key, order)| (key, order.id)).collect(), range }
}

fn owner_sum(orders: &[&Order]) -> OwnerSum {
    let mut cents: Vec<i64> = orders.iter().map(|order| order.cents).collect();
    let sum = cents.iter().map(|cents| i128::from(*cents)).sum();
    let (least, most) = (cents.iter().min().copied(), cents.iter().max().copied());
    cents.sort_unstable_by(|a, b| b.cmp(a));
    cents.truncate(2);
    let emails: BTreeSet<&String> = orders.iter().filter_map(|order| order.email.as_ref()).collect();
    (orders.len() as u64, sum, least, most, cents, emails.len() as u64)
}

fn chain_sum(orders: &[&Order]) -> ChainSum {
    let sum = orders.iter().map(|order| i128::from(order.cents)).sum();
    (orders.len() as u64, sum, Link::hash_of(orders.iter().map(|order| order.cents)))
}

/// Checks that every complete view answers correctly, and no other view answers. Returns how many have
/// answered.
fn views(db: &Db, state: &State, release: Release, random: &mut Random) -> Result<u64, String> {
    let shown = Shown::of(db)?;
    let by_name = by_cents(db, state, shown.as_ref())?;
    let letters = ["a", "o1", "o2", "t1", "w2", "z"];
    let (a, b) = (random.below(6), random.below(6));
    let range = (letters[a.min(b)].to_owned(), letters[a.max(b)].to_owned());
    let found = release.answers(db, &range).map_err(failed("views"))?;
    let (Some(found), Some(specs), Some(shown)) = (found, release.specs(), shown) else {
        // Before the collection exists, a view answers that there is nothing.
        return Ok(by_name);
    };
    let orders = state.orders_of(release);
    let wanted = wanted_answers(&orders, release, &range);
    let answers = |spec: &ViewSpec| shown.answers(release, spec);
    // The earlier version answers while a later one is built, and only then.
    let earlier = Release::Viewed
        .specs()
        .filter(|earlier| release == Release::Changed && !answers(&specs.words) && answers(&earlier.words));
    let words = match earlier {
        Some(_) => wanted_answers(&orders, Release::Viewed, &range).words,
        None => wanted.words.filter(|_| answers(&specs.words)),
    };
    let answered = [
        said_the_same("by_owner", found.owners, wanted.owners.filter(|_| answers(&specs.owners)))?,
        said_the_same("by_tag", found.tags, wanted.tags.filter(|_| answers(&specs.tags)))?,
        said_the_same("by_email", found.emails, wanted.emails.filter(|_| answers(&specs.emails)))?,
        said_the_same("by_word", found.words, words)?,
    ];
    Ok(by_name + answered.iter().sum::<u64>())
}

fn said_the_same<T: PartialEq + Debug>(
    view: &str,
    found: Option<T>,
    wanted: Option<T>,
) -> Result<u64, String> {
    same(&format!("the view {view}"), &found, &wanted)?;
    Ok(u64::from(found.is_some()))
}

/// Checks that the view added by name agrees with the documents as stored.
fn by_cents(db: &Db, state: &State, shown: Option<&Shown>) -> Result<u64, String> {
    let is_there = shown.is_some_and(|shown| shown.has(BY_CENTS));
    same("the view by_cents is there", &is_there, &state.has_by_cents)?;
    let Some(shown) = shown.filter(|_| is_there) else { return Ok(0) };
    let mut wanted: BTreeMap<(Reverse<i64>, Option<String>), (u64, i128)> = BTreeMap::new();
    for (_, order) in state.orders.values() {
        let sum = wanted.entry((Reverse(order.cents), order.tags.first().cloned())).or_default();
        *sum = (sum.0 + 1, sum.1 + i128::from(order.id));
    }
    let key = |cents, tag: Option<String>| {
        vec![Element::Int(i128::from(cents)), tag.map_or(Element::Null, Element::Text)]
    };
    let wanted: Vec<_> = wanted
        .into_iter()
        .map(|((Reverse(cents), tag), (count, sum))| (key(cents, tag), count, Value::Int(sum)))
        .collect();
    let found = built(db.documents(ORDERS).view(BY_CENTS).group_by(2)).map_err(failed(BY_CENTS))?;
    let found = found.map(|found| {
        found.into_iter().map(|(key, all)| (key, all.count, all.parts[0].value.clone())).collect::<Vec<_>>()
    });
    said_the_same(BY_CENTS, found, Some(wanted).filter(|_| shown.answers_by_name(BY_CENTS)))
}

/// Every stored value, and when it expires. The clock is so early that no stored value has expired.
///
/// # Errors
/// The database's error.
pub fn stored_values(db: &Db) -> Result<BTreeMap<(usize, u64), ValueModel>, String> {
    let mut found = BTreeMap::new();
    for (namespace, name) in NAMESPACES.into_iter().enumerate() {
        let values = db.kv(name);
        for entry in values.scan::<u64, i64>(Span::all()).map_err(failed(name))? {
            let (key, value) = entry.map_err(failed(name))?;
            let expires = match values.expiry(key).map_err(failed(name))? {
                Some(Expiry::At(at)) => Some(millis(at)),
                _ => None,
            };
            found.insert((namespace, key), (value, expires));
        }
    }
    Ok(found)
}

fn values(db: &Db, state: &State, expired_ms: u64) -> Verdict {
    let found = stored_values(db)?;
    let may_be_gone = |(_, expires): &ValueModel| expires.is_some_and(|at| at <= expired_ms);
    let mut wanted = state.values.clone();
    wanted.retain(|at, value| found.contains_key(at) || !may_be_gone(value));
    same("key-values", &found, &wanted)
}

/// Milliseconds since 1970.
#[must_use]
pub fn millis(time: Time) -> u64 {
    let ms = time.seconds() * 1000 + i64::from(time.nanoseconds() / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

/// Compares every blob, byte for byte and by its hash.
fn blobs(db: &Db, state: &State) -> Verdict {
    let blobs = db.blobs("files");
    let mut keys = Vec::new();
    for entry in blobs.scan::<u64>(Span::all()).map_err(failed("blobs"))? {
        let (key, info) = entry.map_err(failed("a blob"))?;
        let blob = |error| failed(&format!("blob {key}"))(error);
        let Some(mut reader) = blobs.get(key).map_err(blob)? else {
            return Err(format!("blob {key} is listed and is not there"));
        };
        reader.verify().map_err(blob)?;
        let mut contents = Vec::new();
        reader.read_to_end(&mut contents).map_err(|error| format!("blob {key}: {error}"))?;
        let Some(wanted) = state.blobs.get(&key) else {
            return Err(format!("blob {key} is there, with {} bytes, and should not be", info.len));
        };
        if contents != blob_bytes(*wanted) {
            return Err(format!("blob {key} has {} bytes, and other ones than {wanted:?}", contents.len()));
        }
        keys.push(key);
    }
    same("keys of blobs", &keys, &state.blobs.keys().copied().collect())
}

fn bytes(db: &Db, state: &State) -> Verdict {
    let rows = db.bytes("plain").scan(KeyRange::all(), Direction::Forward);
    let Some(mut rows) = answer(rows).map_err(failed("bytes"))? else {
        return same("bytes", &0, &state.bytes.len());
    };
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let Some((key, value)) = rows.next().map_err(failed("bytes"))? {
        found.push((key.to_vec(), value.to_vec()));
    }
    let wanted: Vec<(Vec<u8>, Vec<u8>)> = state.bytes.clone().into_iter().collect();
    same("bytes", &found, &wanted)
}
