//! The numbers that are stored: each a type of its own, so that none is taken for another.

use std::fmt;

macro_rules! stored_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The number that follows. Saturates, which no database lives to see.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// Whether it can have been counted up to: no database lives to see more. A larger one from disk leaves no room for
            /// those that follow.
            #[must_use]
            pub fn is_plausible(self) -> bool {
                self.0 < 1 << 62
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

stored_number! {
    /// The place of a transaction in the one order of commits: 1, 2, 3, ... Zero is the empty database.
    CommitSeq
}
stored_number! {
    /// One use of a log segment. Never used twice in a database; a recycled segment gets a new one.
    Epoch
}
stored_number! {
    /// A tree. Never used twice in a database; 0 is the catalogue.
    TreeId
}
stored_number! {
    /// Counts checkpoints; the superblock with the larger one is the newer.
    Generation
}

/// The identity of a database, drawn at its creation and part of every checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DatabaseId(pub u128);

/// The identity of a database's log, drawn at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogId(pub u128);

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
