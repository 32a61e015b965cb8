//! A broken promise, and whether the database reported it.
//!
//! Owns the exit codes of the check: corruption that the database reports has another one than wrong answers.
//! Only the second is silent.

/// Something is missing or wrong, and the database did not report it.
pub(crate) const SILENT: u8 = 3;
/// The database reported what is wrong.
pub(crate) const TOLD: u8 = 4;

pub(crate) type Outcome<T> = Result<T, Wrong>;

/// A broken promise.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) exit: u8,
    pub(crate) sentence: String,
}

impl From<duramen::Error> for Wrong {
    fn from(error: duramen::Error) -> Wrong {
        Wrong::told(format!("{error} ({})", error.code()))
    }
}

impl From<String> for Wrong {
    fn from(sentence: String) -> Wrong {
        Wrong { exit: SILENT, sentence }
    }
}

impl From<&str> for Wrong {
    fn from(sentence: &str) -> Wrong {
        Wrong::from(sentence.to_owned())
    }
}

impl Wrong {
    /// The database reported it.
    pub(crate) fn told(sentence: String) -> Wrong {
        Wrong { exit: TOLD, sentence }
    }

    /// The same, with the operation during which it came up.
    pub(crate) fn while_doing(self, doing: &str) -> Wrong {
        Wrong { sentence: format!("{doing}: {}", self.sentence), ..self }
    }
}

/// Fails if two things differ.
pub(crate) fn same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    wanted: &T,
) -> Outcome<()> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, want {wanted:?}").into()) }
}
