//! What is not as it was promised, and whether the database said so.
//!
//! Owns the exit codes of the check: what the database itself calls damaged has another one than what it serves wrongly. Only the
//! second is silent.

/// Something is missing or wrong, and the database did not say so.
pub(crate) const SILENT: u8 = 3;
/// The database said what is wrong.
pub(crate) const TOLD: u8 = 4;

pub(crate) type Outcome<T> = Result<T, Wrong>;

/// What is not as it was promised.
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
    /// The database said so itself.
    pub(crate) fn told(sentence: String) -> Wrong {
        Wrong { exit: TOLD, sentence }
    }

    /// The same, and what was done when it came up.
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
