//! One power cut, named so that it can be made again: seed, operation and choice as text.
//!
//! Owns the text form. A failure prints it; `replay` reads it.

use std::fmt;

use duramen_disk::memory::CrashChoice;

/// A cut of the run of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The run.
    pub seed: u64,
    /// Operations of the disk that had happened.
    pub op: usize,
    /// Which pending changes survived.
    pub choice: CrashChoice,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {} --op {} --choice {}", self.seed, self.op, choice_text(&self.choice))
    }
}

/// A choice as text, such as `prefix:3`.
#[must_use]
pub fn choice_text(choice: &CrashChoice) -> String {
    match choice {
        CrashChoice::None => "none".to_owned(),
        CrashChoice::All => "all".to_owned(),
        CrashChoice::AllBut(index) => format!("all-but:{index}"),
        CrashChoice::Only(index) => format!("only:{index}"),
        CrashChoice::Prefix(count) => format!("prefix:{count}"),
        CrashChoice::Torn { index, seed } => format!("torn:{index}:{seed}"),
        CrashChoice::DataOnly => "data-only".to_owned(),
        CrashChoice::EntriesOnly => "entries-only".to_owned(),
        CrashChoice::Random { seed } => format!("random:{seed}"),
    }
}

/// Reads [`choice_text`].
#[must_use]
pub fn parse_choice(text: &str) -> Option<CrashChoice> {
    let mut parts = text.split(':');
    let name = parts.next()?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    let index = |number: Option<u64>| usize::try_from(number?).ok();
    Some(match name {
        "none" => CrashChoice::None,
        "all" => CrashChoice::All,
        "all-but" => CrashChoice::AllBut(index(number())?),
        "only" => CrashChoice::Only(index(number())?),
        "prefix" => CrashChoice::Prefix(index(number())?),
        "torn" => CrashChoice::Torn { index: index(number())?, seed: number()? },
        "data-only" => CrashChoice::DataOnly,
        "entries-only" => CrashChoice::EntriesOnly,
        "random" => CrashChoice::Random { seed: number()? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_survives_its_text() {
        let choices = [
            CrashChoice::None,
            CrashChoice::All,
            CrashChoice::AllBut(7),
            CrashChoice::Only(0),
            CrashChoice::Prefix(3),
            CrashChoice::Torn { index: 2, seed: u64::MAX },
            CrashChoice::DataOnly,
            CrashChoice::EntriesOnly,
            CrashChoice::Random { seed: 9 },
        ];
        for choice in choices {
            assert_eq!(parse_choice(&choice_text(&choice)), Some(choice));
        }
        for text in ["", "prefix", "prefix:x", "torn:1", "sometimes"] {
            assert_eq!(parse_choice(text), None, "{text}");
        }
    }
}
