//! Which of the pending changes survive: the choices tried at one boundary, from the plain to the random.
//!
//! Rule: none, all, all but one, only one, prefixes, torn ones, contents without names, names without contents,
//! then random subsets.

use duramen_disk::memory::CrashChoice;

use super::random::Random;

/// Pending changes beyond which single ones are drawn instead of tried one by one.
const EACH_MAX: usize = 4;

/// Choices for a boundary with so many pending changes: the plain ones first, then random subsets without end.
#[must_use]
pub fn choices(pending: usize, random_count: usize, random: &mut Random) -> Vec<CrashChoice> {
    let mut choices = vec![CrashChoice::None, CrashChoice::All];
    if pending == 0 {
        return choices;
    }
    let each: Vec<usize> = if pending <= EACH_MAX {
        (0..pending).collect()
    } else {
        // The first and the last are where order is promised; the others by lot.
        [0, pending - 1].into_iter().chain((0..2).map(|_| random.below(pending))).collect()
    };
    for index in each {
        choices.push(CrashChoice::AllBut(index));
        choices.push(CrashChoice::Only(index));
        choices.push(CrashChoice::Prefix(index));
        choices.push(CrashChoice::Torn { index, seed: random.bits() });
    }
    choices.extend([CrashChoice::DataOnly, CrashChoice::EntriesOnly]);
    choices.extend((0..random_count).map(|_| CrashChoice::Random { seed: random.bits() }));
    choices
}

/// One choice by lot.
pub fn some_choice(pending: usize, random: &mut Random) -> CrashChoice {
    let choices = choices(pending, 6, random);
    *random.pick(&choices)
}
