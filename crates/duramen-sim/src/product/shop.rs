//! The programs of one life: releases of the same shop, each with a type of its own for the collection
//! `orders`.
//!
//! Owns the types, their views and the conversion of a document to the model's [`Order`]. A later release has
//! views that are built beside writers, then other views of the same names, then another meaning of the same
//! fields (a migration). Tools without views write in between: for views in code, the database can only note
//! which documents they wrote.

use duramen::view::{Emitter, Monoid, View as _, ViewSpec, reduce};
use duramen::{Collection, Db, DbOptions, Error, Transaction};
use serde::{Deserialize, Serialize};

/// The collection of all releases.
pub const ORDERS: &str = "orders";

/// A document of the collection `orders`, written by any of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its key.
    pub id: u64,
    /// Key of a view with every kind of reduction.
    pub owner: String,
    /// The summed field.
    pub cents: i64,
    /// One row each in a view.
    pub tags: Vec<String>,
    /// Key of a unique view.
    pub email: Option<String>,
    /// Key of a view in code, word by word.
    pub words: String,
    /// Sometimes so long that it is stored in extents of its own.
    pub note: String,
}

impl Order {
    /// The document after the migration, as the migrated release reads it.
    #[must_use]
    pub fn migrated(&self) -> Order {
        Order { owner: format!("{}!", self.owner), cents: self.cents * 100, ..self.clone() }
    }
}

/// The program that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// Without views.
    Plain,
    /// With views of every kind.
    Viewed,
    /// As `Viewed`; two of the views are others of the same name.
    Changed,
    /// Its documents have another meaning.
    Migrated,
    /// A tool without views, for documents of the last release.
    Tool,
}

/// A document under an id assigned by the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Collection)]
#[collection(name = "tickets")]
pub struct Ticket {
    /// The assigned id.
    #[key(assigned)]
    pub id: u64,
    /// A number that distinguishes tickets.
    pub n: i64,
}

/// A hash of the values in the order of their rows: any other order and any missing or added row changes it.
#[derive(Debug)]
pub struct Chain;

/// The hash of some values, and the factor for a hash before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    hash: u64,
    power: u64,
}

impl Link {
    fn of(value: i64) -> Link {
        let hash = value.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
        Link { hash, power: 0x0100_0000_01b3 }
    }

    fn and(self, next: Link) -> Link {
        let hash = self.hash.wrapping_mul(next.power).wrapping_add(next.hash);
        Link { hash, power: self.power.wrapping_mul(next.power) }
    }

    /// The hash of consecutive values.
    #[must_use]
    pub fn hash_of(values: impl Iterator<Item = i64>) -> u64 {
        values.map(Link::of).reduce(Link::and).map_or(0, |link| link.hash)
    }
}

impl Monoid for Chain {
    const NAME: &'static str = "chain";
    const VERSION: u32 = 1;
    type Value = i64;
    type State = Link;
    type Answer = u64;

    fn one(value: i64) -> Link {
        Link::of(value)
    }

    fn join(left: Link, right: Link) -> Link {
        left.and(right)
    }

    fn answer(state: Option<Link>) -> u64 {
        state.map_or(0, |link| link.hash)
    }
}

/// The sums over an owner's rows: count, sum, minimum, maximum, the two largest, the approximate number of
/// addresses.
pub type OwnerSum = (u64, i128, Option<i64>, Option<i64>, Vec<i64>, u64);

/// The sums over the rows of a tag or a word: count, sum, and the hash in row order.
pub type ChainSum = (u64, i128, u64);

/// All answers of a view: its groups, its rows, and the sums of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said<S> {
    /// The sums of each key.
    pub groups: Vec<(String, S)>,
    /// Keys and documents, in order.
    pub rows: Vec<(String, u64)>,
    /// The sums of the queried range.
    pub range: S,
}

/// The answers of a release's views; `None` for a view that is being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// By owner.
    pub owners: Option<Said<OwnerSum>>,
    /// By tag, a row for each.
    pub tags: Option<Said<ChainSum>>,
    /// By word, in code.
    pub words: Option<Said<ChainSum>>,
    /// By address, unique.
    pub emails: Option<Vec<(String, u64)>>,
}

/// What the catalogue stores about the views of a release.
#[derive(Debug, Clone)]
pub struct Specs {
    /// By owner.
    pub owners: ViewSpec,
    /// By tag.
    pub tags: ViewSpec,
    /// By word.
    pub words: ViewSpec,
    /// By address.
    pub emails: ViewSpec,
}

/// `None` where the collection does not exist yet.
pub(super) fn answer<T>(asked: Result<T, Error>) -> Result<Option<T>, Error> {
    unless(duramen::Code::NoSuchTree, asked)
}

/// `None` where a view does not answer yet.
pub(super) fn built<T>(asked: Result<T, Error>) -> Result<Option<T>, Error> {
    unless(duramen::Code::Rebuilding, asked)
}

fn unless<T>(code: duramen::Code, asked: Result<T, Error>) -> Result<Option<T>, Error> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == code => Ok(None),
        Err(error) => Err(error),
    }
}

macro_rules! program {
    ($module:ident, $doc:literal, $($attribute:meta),*) => {
        #[doc = $doc]
        pub mod $module {
            use super::*;

            /// A document.
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
            $(#[$attribute])*
            pub struct Order {
                #[key]
                id: u64,
                owner: String,
                cents: i64,
                tags: Vec<String>,
                email: Option<String>,
                words: String,
                note: String,
            }

            impl From<super::Order> for Order {
                fn from(order: super::Order) -> Order {
                    let super::Order { id, owner, cents, tags, email, words, note } = order;
                    Order { id, owner, cents, tags, email, words, note }
                }
            }

            impl From<Order> for super::Order {
                fn from(order: Order) -> super::Order {
                    let Order { id, owner, cents, tags, email, words, note } = order;
                    super::Order { id, owner, cents, tags, email, words, note }
                }
            }
        }
    };
}

macro_rules! views {
    ($module:ident, $words:ident, $of_key:expr) => {
        impl $module::Order {
            /// The answers of this release's views.
            pub(super) fn answers(db: &Db, range: &(String, String)) -> Result<Answers, Error> {
                let (from, to) = (range.0.as_str(), range.1.as_str());
                let owners = db.view::<$module::ByOwner>();
                let owner_of: fn(_) -> String = $of_key;
                let owners = (|| {
                    let rows = owners.iter()?.map(|row| row.map(|row| (owner_of(row.key), row.document)));
                    let (rows, groups) = (rows.collect::<Result<_, _>>()?, owners.group_by::<String>()?);
                    Ok(Said { groups, rows, range: owners.range(from..to).reduce()? })
                })();
                let tags = db.view::<$module::ByTag>();
                let tags = (|| {
                    let rows = tags.iter()?.map(|row| row.map(|row| (row.key, row.document)));
                    let (rows, groups) = (rows.collect::<Result<_, _>>()?, tags.group_by::<String>()?);
                    Ok(Said { groups, rows, range: tags.range(from..to).reduce()? })
                })();
                let words = db.view::<$words>();
                let words = (|| {
                    let rows = words.iter()?.map(|row| row.map(|row| (row.key, row.document)));
                    let (rows, groups) = (rows.collect::<Result<_, _>>()?, words.group_by::<String>()?);
                    Ok(Said { groups, rows, range: words.range(from..to).reduce()? })
                })();
                let emails = db.view::<$module::ByEmail>();
                let emails = emails.iter().and_then(|rows| {
                    rows.map(|row| row.map(|row| (row.key, row.document))).collect::<Result<_, _>>()
                });
                Ok(Answers {
                    owners: built(owners)?,
                    tags: built(tags)?,
                    words: built(words)?,
                    emails: built(emails)?,
                })
            }

            /// What the catalogue stores about this release's views.
            pub(super) fn specs() -> Specs {
                Specs {
                    owners: $module::ByOwner::spec(),
                    tags: $module::ByTag::spec(),
                    words: $words::spec(),
                    emails: $module::ByEmail::spec(),
                }
            }
        }
    };
}

macro_rules! by_word {
    ($name:ident, $module:ident, $version:literal, $map:expr) => {
        /// Orders by the words of their text.
        #[derive(Debug)]
        pub struct $name;

        impl duramen::view::CodedView for $name {
            type Collection = $module::Order;
            type Key = String;
            type Value = i64;
            type Reduce = (reduce::Count, reduce::Sum, reduce::With<Chain>);
            const NAME: &'static str = "by_word";
            const VERSION: u32 = $version;

            fn map(order: &$module::Order, emit: &mut Emitter<'_, $name>) {
                let map: fn(&str) -> String = $map;
                let order = super::shop::Order::from(order.clone());
                order.words.split_whitespace().for_each(|word| emit.row(map(word), order.cents));
            }
        }
    };
}

program!(plain, "The first release.", collection(name = "orders"));
program!(
    viewed,
    "The release with views.",
    collection(
        name = "orders",
        view(ByOwner, key = owner, value = cents, reduce = (Count, Sum, Min, Max, TopK(2), Distinct(email))),
        view(ByTag, key = tags, each, reduce = (Count, Sum(cents), With(Chain, cents))),
        view(ByEmail, key = email, unique),
        coded(ByWord),
    )
);
program!(
    changed,
    "The release with other views of the same names.",
    collection(
        name = "orders",
        view(
            ByOwner,
            key = (owner, id),
            value = cents,
            reduce = (Count, Sum, Min, Max, TopK(2), Distinct(email))
        ),
        view(ByTag, key = tags, each, reduce = (Count, Sum(cents), With(Chain, cents))),
        view(ByEmail, key = email, unique),
        coded(ByWordOfLater, was = ByWordOfBefore),
    )
);
program!(
    migrated,
    "The release whose fields mean something else.",
    collection(
        name = "orders",
        view(ByOwner, key = owner, value = cents, reduce = (Count, Sum, Min, Max, TopK(2), Distinct(email))),
        view(ByTag, key = tags, each, reduce = (Count, Sum(cents), With(Chain, cents))),
        view(ByEmail, key = email, unique),
        coded(ByWordOfLast),
    ),
    migrate_from(plain::Order)
);

program!(
    tool,
    "A tool that knows the fields of the last release, and no views.",
    collection(name = "orders", version = 2)
);

by_word!(ByWord, viewed, 1, str::to_owned);
by_word!(ByWordOfBefore, changed, 1, str::to_owned);
by_word!(ByWordOfLater, changed, 2, |word| format!("{word}!"));
by_word!(ByWordOfLast, migrated, 2, |word| format!("{word}!"));

views!(viewed, ByWord, |key| key);
views!(changed, ByWordOfLater, |key: (String, u64)| key.0);
views!(migrated, ByWordOfLast, |key| key);

impl From<plain::Order> for migrated::Order {
    fn from(old: plain::Order) -> migrated::Order {
        Order::from(old).migrated().into()
    }
}

macro_rules! for_release {
    ($release:expr, $order:ident => $body:expr) => {
        match $release {
            Release::Plain => {
                type $order = plain::Order;
                $body
            }
            Release::Viewed => {
                type $order = viewed::Order;
                $body
            }
            Release::Changed => {
                type $order = changed::Order;
                $body
            }
            Release::Migrated => {
                type $order = migrated::Order;
                $body
            }
            Release::Tool => {
                type $order = tool::Order;
                $body
            }
        }
    };
}

impl Release {
    /// The version of the documents that it writes.
    #[must_use]
    pub fn version(self) -> u32 {
        if self >= Release::Migrated { 2 } else { 1 }
    }

    /// Whether it has views.
    #[must_use]
    pub fn has_views(self) -> bool {
        !matches!(self, Release::Plain | Release::Tool)
    }

    /// A program that reads and writes the same documents without views.
    #[must_use]
    pub fn without_views(self) -> Release {
        if self >= Release::Migrated { Release::Tool } else { Release::Plain }
    }

    /// The release that follows.
    #[must_use]
    pub fn next(self) -> Release {
        match self {
            Release::Plain => Release::Viewed,
            Release::Viewed => Release::Changed,
            Release::Changed | Release::Migrated | Release::Tool => Release::Migrated,
        }
    }

    /// Options with everything that these programs need.
    #[must_use]
    pub fn options() -> DbOptions {
        Db::options().reducer::<Chain>()
    }

    /// Stores a document by its type.
    ///
    /// # Errors
    /// The database's error.
    pub fn put(self, tx: &mut Transaction<'_>, order: &Order) -> Result<(), Error> {
        for_release!(self, Own => tx.put(&Own::from(order.clone())))
    }

    /// Deletes a document by its type.
    ///
    /// # Errors
    /// The database's error.
    pub fn delete(self, tx: &mut Transaction<'_>, id: u64) -> Result<bool, Error> {
        for_release!(self, Own => tx.delete::<Own>(id))
    }

    /// Every document.
    ///
    /// # Errors
    /// The database's error.
    pub fn orders(self, db: &Db) -> Result<Vec<Order>, Error> {
        let all = for_release!(self, Own => db.collection::<Own>().to_vec()?.into_iter().map(Order::from).collect());
        Ok(all)
    }

    /// Registers this release's type for the collection.
    ///
    /// # Errors
    /// The database's error.
    pub fn register(self, db: &Db) -> Result<(), Error> {
        for_release!(self, Own => db.register::<Own>())
    }

    /// Builds the views of this release to the end, after a pending migration.
    ///
    /// # Errors
    /// The database's error.
    pub fn build(self, db: &Db) -> Result<(), Error> {
        for_release!(self, Own => db.migrate::<Own>(|_| Ok(())).and_then(|()| db.build_views::<Own>(|_| Ok(()))))
    }

    /// Migrates, and calls `between` after each step.
    ///
    /// # Errors
    /// The error of the database or of `between`.
    pub fn migrate(self, db: &Db, mut between: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        for_release!(self, Own => db.migrate::<Own>(|_| between()))
    }

    /// The views; `None` for a release without.
    #[must_use]
    pub fn specs(self) -> Option<Specs> {
        match self {
            Release::Plain | Release::Tool => None,
            Release::Viewed => Some(viewed::Order::specs()),
            Release::Changed => Some(changed::Order::specs()),
            Release::Migrated => Some(migrated::Order::specs()),
        }
    }

    /// The views' answers, over everything and over a range of keys; `None` for a release without views.
    ///
    /// # Errors
    /// The database's error.
    pub fn answers(self, db: &Db, range: &(String, String)) -> Result<Option<Answers>, Error> {
        match self {
            Release::Plain | Release::Tool => Ok(None),
            Release::Viewed => viewed::Order::answers(db, range).map(Some),
            Release::Changed => changed::Order::answers(db, range).map(Some),
            Release::Migrated => migrated::Order::answers(db, range).map(Some),
        }
    }
}
