//! The kinds of choices that a search must have tried: a kind without any distinct cut is not covered.
//!
//! Owns their names. `cuts` decides which choices are tried.

use duramen_disk::memory::CrashChoice;

use super::case::Choice;

macro_rules! kinds {
    ($($name:ident = $text:literal,)*) => {
        /// What a choice does with the pending changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has its words in `name`")]
        pub enum Kind { $($name,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// In words.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    None = "nothing kept",
    All = "all kept",
    AllButOne = "all but one kept",
    OnlyOne = "only one kept, not the last",
    OnlyTheLast = "only the last kept",
    Prefix = "a prefix kept",
    Torn = "a prefix kept, the next one torn",
    DataOnly = "contents kept, names lost",
    EntriesOnly = "names kept, contents lost",
    Random = "a random subset kept",
    Garbled = "a random subset kept, torn sectors of garbage",
    Apart = "another choice on the disk of the log",
}

impl Kind {
    /// The kind of a choice among so many pending changes.
    #[must_use]
    pub fn of(choice: &Choice, pending: usize) -> Kind {
        let Choice::Whole(choice) = choice else { return Kind::Apart };
        match choice {
            CrashChoice::None => Kind::None,
            CrashChoice::All => Kind::All,
            CrashChoice::AllBut(_) => Kind::AllButOne,
            CrashChoice::Only(index) if index + 1 == pending => Kind::OnlyTheLast,
            CrashChoice::Only(_) => Kind::OnlyOne,
            CrashChoice::Prefix(_) => Kind::Prefix,
            CrashChoice::Torn { .. } => Kind::Torn,
            CrashChoice::DataOnly => Kind::DataOnly,
            CrashChoice::EntriesOnly => Kind::EntriesOnly,
            CrashChoice::Random { .. } => Kind::Random,
            CrashChoice::Garbled { .. } => Kind::Garbled,
        }
    }
}
