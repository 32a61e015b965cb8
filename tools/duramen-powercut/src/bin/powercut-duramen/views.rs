//! Compares every view with the documents: rows and reductions are computed anew from all documents, by
//! independent code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use duramen::tuple::Element;
use duramen::{Db, Span, Value};

use crate::opening::{HAS_VIEW, stored};
use crate::releases::{Answers, ChainSum, Link, ORDERS, Order, OwnerSum, Release, Said, answer};
use crate::wrong::{Outcome, same};

/// The view that is added and dropped without a type.
pub(crate) const BY_CENTS: &str = "by_cents";

/// Checks that every view that answers is right.
pub(crate) fn equal(db: &Db, release: Release) -> Outcome<()> {
    if let Some(found) = release.answers(db)? {
        let wanted = wanted(&release.orders(db)?, release);
        said_the_same("by_number", found.numbers, wanted.numbers)?;
        said_the_same("by_owner", found.owners, wanted.owners)?;
        said_the_same("by_tag", found.tags, wanted.tags)?;
        said_the_same("by_email", found.emails, wanted.emails)?;
        said_the_same("by_word", found.words, wanted.words)?;
    }
    by_name(db)
}

/// Checks that every view exists and answers.
pub(crate) fn all_answer(db: &Db) -> Outcome<()> {
    match db.view_states()?.into_iter().find(|state| !state.is_ready()) {
        Some(state) => Err(format!("a view was built, and is not ready: {state:?}").into()),
        None => Ok(()),
    }
}

fn said_the_same<T: PartialEq + Debug>(view: &str, found: Option<T>, wanted: Option<T>) -> Outcome<()> {
    if found.is_none() { Ok(()) } else { same(&format!("the view {view}"), &found, &wanted) }
}

fn wanted(orders: &[Order], release: Release) -> Answers {
    let mark = if release == Release::Migrated { "!" } else { "" };
    let words = |order: &Order| -> BTreeSet<String> {
        order.words.split_whitespace().map(|word| format!("{word}{mark}")).collect()
    };
    let tags = |order: &Order| order.tags.iter().cloned().collect();
    let emails = |order: &Order| order.email.iter().cloned().collect();
    let mut numbers: Vec<(u64, u64)> = orders.iter().map(|order| (order.number, order.id)).collect();
    numbers.sort_unstable();
    Answers {
        numbers: Some(numbers),
        owners: Some(said(orders, |order| BTreeSet::from([order.owner.clone()]), owner_sum)),
        tags: Some(said(orders, tags, chain_sum)),
        words: Some(said(orders, words, chain_sum)),
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
) -> Said<S> {
    let rows = rows_of(orders, keys);
    let mut groups: BTreeMap<&String, Vec<&Order>> = BTreeMap::new();
    rows.iter().for_each(|(key, order)| groups.entry(key).or_default().push(*order));
    let groups = groups.into_iter().map(|(key, orders)| (key.clone(), sum(&orders))).collect();
    let all = sum(&rows.iter().map(|(_, order)| *order).collect::<Vec<_>>());
    (rows.into_iter().map(|(key, order)| (key, order.id)).collect(), groups, all)
}

fn owner_sum(orders: &[&Order]) -> OwnerSum {
    let mut cents: Vec<i64> = orders.iter().map(|order| order.cents).collect();
    let sum = cents.iter().map(|cents| i128::from(*cents)).sum();
    let (least, most) = (cents.iter().min().copied(), cents.iter().max().copied());
    cents.sort_unstable_by(|a, b| b.cmp(a));
    cents.truncate(2);
    (orders.len() as u64, sum, least, most, cents)
}

fn chain_sum(orders: &[&Order]) -> ChainSum {
    let sum = orders.iter().map(|order| i128::from(order.cents)).sum();
    (orders.len() as u64, sum, Link::hash_of(orders.iter().map(|order| order.cents)))
}

/// Checks the view by name: it exists if it should, and matches the stored documents.
fn by_name(db: &Db) -> Outcome<()> {
    let wanted = stored(db, HAS_VIEW)?.is_some_and(|bytes| bytes == [1]);
    let orders = db.documents(ORDERS);
    let views = answer(orders.views())?.unwrap_or_default();
    same("the view by_cents is there", &views.iter().any(|state| state.view.name() == BY_CENTS), &wanted)?;
    if !wanted {
        return Ok(());
    }
    let Some(found) = answer(orders.view(BY_CENTS).group_by(1))? else { return Ok(()) };
    let mut sums: BTreeMap<i128, (u64, i128)> = BTreeMap::new();
    for document in orders.scan(Span::all())? {
        let document = document?;
        let (Some(Value::Int(id)), Some(Value::Int(cents))) = (document.get("id"), document.get("cents"))
        else {
            return Err(format!("a document is {document:?}").into());
        };
        let sum = sums.entry(*cents).or_default();
        *sum = (sum.0 + 1, sum.1 + id);
    }
    let wanted: Vec<_> = sums
        .into_iter()
        .map(|(cents, (count, sum))| (vec![Element::Int(cents)], count, Value::Int(sum)))
        .collect();
    let found: Vec<_> =
        found.into_iter().map(|(key, all)| (key, all.count, all.parts[0].value.clone())).collect();
    same("the view by_cents", &found, &wanted)
}
