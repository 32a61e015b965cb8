//! The releases of a program in one life, each with its own type for the collection `orders`.
//!
//! Owns the types, their views and the conversion to the plan's [`Order`]. The second release adds views of
//! every kind, built beside writers. The third changes the meaning of fields: a migration, and views in code
//! of another version.

use duramen::view::{CodedView, Emitter, Monoid, reduce};
use duramen::{Code, Collection, Db, DbOptions, Error, Transaction};
use serde::{Deserialize, Serialize};

/// The collection of all releases.
pub(crate) const ORDERS: &str = "orders";

/// A document of the collection `orders`, of any release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: u64,
    /// The commit of its writer that stored it; the key of a plain view.
    pub(crate) number: u64,
    /// The key of a view with every kind of reduction.
    pub(crate) owner: String,
    pub(crate) cents: i64,
    /// Each makes a row in a view.
    pub(crate) tags: Vec<String>,
    /// The key of a unique view.
    pub(crate) email: Option<String>,
    /// The keys of a view in code, word by word.
    pub(crate) words: String,
    /// Sometimes long enough for extents of its own.
    pub(crate) note: String,
    /// Whether a migration has converted it.
    pub(crate) converted: bool,
}

impl Order {
    /// The same document after the migration.
    pub(crate) fn migrated(&self) -> Order {
        Order { owner: format!("{}!", self.owner), cents: self.cents * 100, converted: true, ..self.clone() }
    }
}

/// The release that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Release {
    /// Without views.
    Plain,
    /// With views of every kind.
    Viewed,
    /// With documents of another meaning.
    Migrated,
}

/// A hash of values in the order of their rows: a reduction in code.
#[derive(Debug)]
pub(crate) struct Chain;

/// The hash of some values, and the factor for a hash before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
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

    /// The hash of a sequence of values.
    pub(crate) fn hash_of(values: impl Iterator<Item = i64>) -> u64 {
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

/// The reductions of an owner's rows: count, sum, minimum, maximum, the two largest.
pub(crate) type OwnerSum = (u64, i128, Option<i64>, Option<i64>, Vec<i64>);

/// The reductions of the rows of a tag or a word: count, sum, and the hash in row order.
pub(crate) type ChainSum = (u64, i128, u64);

/// Keys and documents of a view, in order.
pub(crate) type Rows<K> = Vec<(K, u64)>;

/// Rows of a view, the reductions of each key, and those of all rows.
pub(crate) type Said<S> = (Rows<String>, Vec<(String, S)>, S);

/// The answers of a release's views; `None` for a view that does not answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) numbers: Option<Rows<u64>>,
    pub(crate) owners: Option<Said<OwnerSum>>,
    pub(crate) tags: Option<Said<ChainSum>>,
    pub(crate) words: Option<Said<ChainSum>>,
    pub(crate) emails: Option<Rows<String>>,
}

/// `None` if something does not exist, or is being built.
pub(crate) fn answer<T>(asked: Result<T, Error>) -> Result<Option<T>, Error> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.code(), Code::Rebuilding | Code::NoSuchTree) => Ok(None),
        Err(error) => Err(error),
    }
}

macro_rules! program {
    ($module:ident, $doc:literal, $($attribute:meta),*) => {
        #[doc = $doc]
        pub(crate) mod $module {
            use super::*;

            /// A document.
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
            $(#[$attribute])*
            pub(crate) struct Order {
                #[key]
                id: u64,
                number: u64,
                owner: String,
                cents: i64,
                tags: Vec<String>,
                email: Option<String>,
                words: String,
                note: String,
                converted: bool,
            }

            impl From<super::Order> for Order {
                fn from(order: super::Order) -> Order {
                    let super::Order { id, number, owner, cents, tags, email, words, note, converted } = order;
                    Order { id, number, owner, cents, tags, email, words, note, converted }
                }
            }

            impl From<Order> for super::Order {
                fn from(order: Order) -> super::Order {
                    let Order { id, number, owner, cents, tags, email, words, note, converted } = order;
                    super::Order { id, number, owner, cents, tags, email, words, note, converted }
                }
            }
        }
    };
}

macro_rules! rows_of {
    ($view:expr) => {
        (|| {
            $view.iter()?.map(|row| row.map(|row| (row.key, row.document))).collect::<Result<Vec<_>, Error>>()
        })()
    };
}

macro_rules! said_by {
    ($view:expr) => {
        (|| Ok((rows_of!($view)?, $view.group_by::<String>()?, $view.reduce()?)))()
    };
}

macro_rules! views {
    ($module:ident, $words:ident) => {
        impl $module::Order {
            fn answers(db: &Db) -> Result<Answers, Error> {
                let (numbers, owners) = (db.view::<$module::ByNumber>(), db.view::<$module::ByOwner>());
                let (tags, emails) = (db.view::<$module::ByTag>(), db.view::<$module::ByEmail>());
                let words = db.view::<$words>();
                Ok(Answers {
                    numbers: answer(rows_of!(numbers))?,
                    owners: answer(said_by!(owners))?,
                    tags: answer(said_by!(tags))?,
                    words: answer(said_by!(words))?,
                    emails: answer(rows_of!(emails))?,
                })
            }
        }
    };
}

macro_rules! by_word {
    ($name:ident, $module:ident, $version:literal, $map:expr) => {
        /// Orders by the words of their text.
        #[derive(Debug)]
        pub(crate) struct $name;

        impl CodedView for $name {
            type Collection = $module::Order;
            type Key = String;
            type Value = i64;
            type Reduce = (reduce::Count, reduce::Sum, reduce::With<Chain>);
            const NAME: &'static str = "by_word";
            const VERSION: u32 = $version;

            fn map(order: &$module::Order, emit: &mut Emitter<'_, $name>) {
                let map: fn(&str) -> String = $map;
                let order = Order::from(order.clone());
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
        view(ByNumber, key = number),
        view(ByOwner, key = owner, value = cents, reduce = (Count, Sum, Min, Max, TopK(2))),
        view(ByTag, key = tags, each, reduce = (Count, Sum(cents), With(Chain, cents))),
        view(ByEmail, key = email, unique),
        coded(ByWord),
    )
);
program!(
    migrated,
    "The release whose fields mean something else.",
    collection(
        name = "orders",
        view(ByNumber, key = number),
        view(ByOwner, key = owner, value = cents, reduce = (Count, Sum, Min, Max, TopK(2))),
        view(ByTag, key = tags, each, reduce = (Count, Sum(cents), With(Chain, cents))),
        view(ByEmail, key = email, unique),
        coded(ByWordOfLater),
    ),
    migrate_from(plain::Order)
);

by_word!(ByWord, viewed, 1, str::to_owned);
by_word!(ByWordOfLater, migrated, 2, |word| format!("{word}!"));
views!(viewed, ByWord);
views!(migrated, ByWordOfLater);

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
            Release::Migrated => {
                type $order = migrated::Order;
                $body
            }
        }
    };
}

impl Release {
    pub(crate) fn of_byte(byte: u8) -> Option<Release> {
        [Release::Plain, Release::Viewed, Release::Migrated]
            .into_iter()
            .find(|release| *release as u8 == byte)
    }

    /// The next release.
    pub(crate) fn next(self) -> Release {
        if self == Release::Plain { Release::Viewed } else { Release::Migrated }
    }

    /// Options with all code of these programs.
    pub(crate) fn options() -> DbOptions {
        Db::options().reducer::<Chain>()
    }

    pub(crate) fn put(self, tx: &mut Transaction<'_>, order: &Order) -> Result<(), Error> {
        for_release!(self, Own => tx.put(&Own::from(order.clone())))
    }

    pub(crate) fn delete(self, tx: &mut Transaction<'_>, id: u64) -> Result<bool, Error> {
        for_release!(self, Own => tx.delete::<Own>(id))
    }

    /// Every document.
    pub(crate) fn orders(self, db: &Db) -> Result<Vec<Order>, Error> {
        let all = for_release!(self, Own => db.collection::<Own>().to_vec()?.into_iter().map(Order::from).collect());
        Ok(all)
    }

    /// Registers this release's type.
    pub(crate) fn register(self, db: &Db) -> Result<(), Error> {
        for_release!(self, Own => db.register::<Own>())
    }

    /// Converts documents, and builds the views of this release to the end. `between` may stop it.
    pub(crate) fn build(self, db: &Db, mut between: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        for_release!(self, Own => {
            db.migrate::<Own>(|_| between())?;
            db.build_views::<Own>(|_| between())
        })
    }

    /// The answers of the views; `None` for a release without views.
    pub(crate) fn answers(self, db: &Db) -> Result<Option<Answers>, Error> {
        match self {
            Release::Plain => Ok(None),
            Release::Viewed => viewed::Order::answers(db).map(Some),
            Release::Migrated => migrated::Order::answers(db).map(Some),
        }
    }
}
