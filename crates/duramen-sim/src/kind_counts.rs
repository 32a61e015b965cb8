//! Counts of the kinds of cuts, faults and events that a search must meet. A kind with a count of zero over a
//! whole proof is not tested by the search.
//!
//! Owns how counts are printed, so that `scripts/prove` can add up those of many slices. Each search defines
//! its own kinds.

use std::fmt;

/// How often each kind was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindCounts(Vec<(u64, String)>);

impl KindCounts {
    /// Adds kinds with their counts.
    pub fn extend<N: Into<String>>(&mut self, counts: impl IntoIterator<Item = (u64, N)>) {
        self.0.extend(counts.into_iter().map(|(count, name)| (count, name.into())));
    }

    /// Each kind with its count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.iter().map(|(count, name)| (*count, name.as_str()))
    }

    /// Kinds that were never seen.
    #[must_use]
    pub fn unseen(&self) -> Vec<&str> {
        self.iter().filter(|(count, _)| *count == 0).map(|(_, name)| name).collect()
    }

    /// Whether every kind was seen.
    ///
    /// # Errors
    /// The kinds with a count of zero. `scripts/prove` accepts that of one slice, but not of all slices
    /// together.
    pub fn verdict(&self) -> Result<(), String> {
        let unseen = self.unseen();
        if unseen.is_empty() { Ok(()) } else { Err(format!("not seen: {}; run longer", unseen.join(", "))) }
    }
}

/// One line for programs: `kinds: torn_tail=3 full_disk=0`.
impl fmt::Display for KindCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kinds:")?;
        self.iter().try_for_each(|(count, name)| write!(f, " {}={count}", word_of(name)))
    }
}

/// A name as one word of letters, digits and underscores.
fn word_of(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<&str>>().join("_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn counts_are_one_line_and_what_is_zero_has_its_name() {
        let mut counts = KindCounts::default();
        counts.extend([(3, "k syncing, k+1 sealed"), (0, "a cut into: backup")]);
        assert_eq!(counts.to_string(), "kinds: k_syncing_k_1_sealed=3 a_cut_into_backup=0");
        assert_eq!(counts.verdict(), Err("not seen: a cut into: backup; run longer".to_owned()));
        counts = KindCounts::default();
        counts.extend([(1, "creation")]);
        assert_eq!(counts.verdict(), Ok(()));
    }

    /// Two kinds with the same word would be added up, and one could hide that the other is zero.
    #[test]
    fn no_two_kinds_of_a_search_have_one_word() {
        let searches = [
            crate::search::report::Report::default().counts(),
            crate::faulty::report::Report::default().counts(),
            crate::product::report::Report::default().counts(),
            crate::concurrent::Report::default().counts(),
            crate::requests::Report::default().counts(),
            crate::replica::Report::default().counts(),
            crate::cluster::Report::default().counts(),
        ];
        for counts in searches {
            let words: BTreeSet<String> = counts.iter().map(|(_, name)| word_of(name)).collect();
            assert_eq!(words.len(), counts.iter().count(), "{counts}");
            assert_eq!(counts.unseen().len(), words.len(), "nothing was seen yet: {counts}");
        }
    }
}
