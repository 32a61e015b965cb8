//! One power cut, named so that it can be reproduced: seed, operation and choice as text.
//!
//! Owns the text form. A failure prints it; `replay` reads it.

use std::fmt;
use std::str::FromStr;

use duramen_disk::memory::CrashChoice;

/// A cut of the run of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The run.
    pub seed: u64,
    /// Operations of the disk that had happened.
    pub op: usize,
    /// Which pending changes survived.
    pub choice: Choice,
}

/// Which of the pending changes survive a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// One choice over everything.
    Whole(CrashChoice),
    /// The log is on a separate disk: one choice for it, another one everywhere else.
    Apart {
        /// On the disk of the log.
        log: CrashChoice,
        /// Elsewhere.
        rest: CrashChoice,
    },
}

impl Choice {
    /// Whether torn sectors may hold garbage.
    #[must_use]
    pub fn is_garbled(&self) -> bool {
        let is_garbled = |choice: &CrashChoice| matches!(choice, CrashChoice::Garbled { .. });
        match self {
            Choice::Whole(choice) => is_garbled(choice),
            Choice::Apart { log, rest } => is_garbled(log) || is_garbled(rest),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {} --op {} --choice {}", self.seed, self.op, self.choice)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Whole(choice) => write!(f, "{}", choice_text(choice)),
            Choice::Apart { log, rest } => write!(f, "log={},rest={}", choice_text(log), choice_text(rest)),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let unknown = || format!("no choice is called {text:?}");
        let Some(parts) = text.strip_prefix("log=") else {
            return parse_choice(text).map(Choice::Whole).ok_or_else(unknown);
        };
        let (log, rest) = parts.split_once(",rest=").ok_or_else(unknown)?;
        let log = parse_choice(log).ok_or_else(unknown)?;
        Ok(Choice::Apart { log, rest: parse_choice(rest).ok_or_else(unknown)? })
    }
}

/// A choice as text, such as `prefix:3`.
fn choice_text(choice: &CrashChoice) -> String {
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
        CrashChoice::Garbled { seed } => format!("garbled:{seed}"),
    }
}

/// Parses the output of [`choice_text`].
fn parse_choice(text: &str) -> Option<CrashChoice> {
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
        "garbled" => CrashChoice::Garbled { seed: number()? },
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
            CrashChoice::Garbled { seed: 10 },
        ];
        for choice in choices {
            for choice in [Choice::Whole(choice), Choice::Apart { log: choice, rest: CrashChoice::Prefix(2) }]
            {
                assert_eq!(choice.to_string().parse(), Ok(choice));
            }
        }
        for text in ["", "prefix", "prefix:x", "torn:1", "sometimes", "log=all", "log=all,rest=x"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
