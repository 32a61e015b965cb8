//! The engines of this build, each in its own file.

#[cfg(feature = "canopydb")]
mod canopydb;
pub(crate) mod duramen;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "nebari")]
mod nebari;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
#[cfg(feature = "sqlite")]
mod sqlite;

use crate::engine::Entry;

/// All of them, ours first.
pub(crate) fn all() -> Vec<Entry> {
    vec![
        duramen::ENTRY,
        #[cfg(feature = "canopydb")]
        canopydb::ENTRY,
        #[cfg(feature = "fjall")]
        fjall::ENTRY,
        #[cfg(feature = "lmdb")]
        lmdb::ENTRY,
        #[cfg(feature = "nebari")]
        nebari::ENTRY,
        #[cfg(feature = "postgres")]
        postgres::ENTRY,
        #[cfg(feature = "redb")]
        redb::ENTRY,
        #[cfg(feature = "rocksdb")]
        rocksdb::ENTRY,
        #[cfg(feature = "sled")]
        sled::ENTRY,
        #[cfg(feature = "sqlite")]
        sqlite::WAL,
        #[cfg(feature = "sqlite")]
        sqlite::JOURNAL,
    ]
}

/// The engine with a name.
pub(crate) fn find(name: &str) -> Option<Entry> {
    all().into_iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests;
