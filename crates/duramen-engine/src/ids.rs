//! The numbers stored on disk, each with a type of its own so that they cannot be confused.

use std::fmt;

macro_rules! stored_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The next number. It saturates, at a value that no database reaches.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// Whether a database can have counted up to it. A larger number from disk would leave no room
            /// for later ones.
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
    /// The position of a transaction in the one order of commits: 1, 2, 3, ... Zero is the empty database.
    CommitSeq
}
stored_number! {
    /// One use of a log segment. Never used twice in a database; a recycled segment gets a new one.
    Epoch
}
stored_number! {
    /// The id of a tree. Never used twice in a database; 0 is the catalogue.
    TreeId
}
stored_number! {
    /// Counts checkpoints. The superblock with the larger number is the newer one.
    Generation
}

/// The identity of a database, random at its creation and part of every checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DatabaseId(pub u128);

/// The identity of a database's log, random at its creation.
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
