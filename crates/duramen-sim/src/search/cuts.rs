//! Which pending changes survive: the choices tried at one boundary, from the plain to the random.
//!
//! Rule: none and all, then at random: all but one, only one, prefixes, torn ones, contents without names,
//! names without contents. Random subsets are counted separately, so that plain choices cannot starve them.
//! Where the log is on a separate disk, each disk may also have its own choice.

use std::path::Path;

use duramen_disk::memory::{CrashChoice, Cursor};
use duramen_disk::{Disk, MemDisk};

use super::case::Choice;
use super::random::Random;

/// With more pending changes than this, single ones are drawn instead of tried one by one.
const EACH_MAX: usize = 4;

/// Mount point of the separate disk that holds the log in some runs.
pub const LOG_DISK: &str = "/other";

/// The directory of the log there.
pub const LOG_DIR: &str = "/other/log";

/// The choices of one boundary.
#[derive(Debug)]
pub struct Choices {
    /// None, all, and in random order the choices that treat one pending change specially.
    pub plain: Vec<Choice>,
    /// Random subsets.
    pub random: Vec<Choice>,
}

/// Choices for a boundary with so many pending changes.
#[must_use]
pub fn choices(pending: usize, random_count: usize, apart: bool, random: &mut Random) -> Choices {
    let mut plain = vec![Choice::Whole(CrashChoice::None), Choice::Whole(CrashChoice::All)];
    if pending == 0 {
        return Choices { plain, random: Vec::new() };
    }
    let mut single = singles(pending, random);
    single.extend([CrashChoice::DataOnly, CrashChoice::EntriesOnly]);
    let mut singles: Vec<Choice> = single.iter().copied().map(Choice::Whole).collect();
    if apart {
        singles.push(Choice::Apart { log: CrashChoice::All, rest: CrashChoice::None });
        singles.push(Choice::Apart { log: CrashChoice::None, rest: CrashChoice::All });
        singles.push(Choice::Apart { log: *random.pick(&single), rest: *random.pick(&single) });
    }
    // The budget of a boundary ends within them, so each kind must come first at some boundary.
    random.shuffle(&mut singles);
    plain.extend(singles);
    let subset = |random: &mut Random| {
        let seed = random.bits();
        if random.chance(1, 3) { CrashChoice::Garbled { seed } } else { CrashChoice::Random { seed } }
    };
    let random = (0..random_count).map(|_| {
        if apart && random.chance(1, 3) {
            Choice::Apart { log: subset(random), rest: subset(random) }
        } else {
            Choice::Whole(subset(random))
        }
    });
    Choices { plain, random: random.collect() }
}

/// One random choice; a random subset in a third of the cases.
pub fn some_choice(pending: usize, apart: bool, random: &mut Random) -> Choice {
    let choices = choices(pending, 1, apart, random);
    if random.chance(1, 3)
        && let Some(choice) = choices.random.first()
    {
        return *choice;
    }
    *random.pick(&choices.plain)
}

/// Choices that treat one pending change specially.
fn singles(pending: usize, random: &mut Random) -> Vec<CrashChoice> {
    let each: Vec<usize> = if pending <= EACH_MAX {
        (0..pending).collect()
    } else {
        // Order is promised for the first and the last; the others are drawn.
        [0, pending - 1].into_iter().chain((0..2).map(|_| random.below(pending))).collect()
    };
    let mut choices = Vec::new();
    for index in each {
        choices.push(CrashChoice::AllBut(index));
        choices.push(CrashChoice::Only(index));
        choices.push(CrashChoice::Prefix(index));
        choices.push(CrashChoice::Torn { index, seed: random.bits() });
    }
    choices
}

/// The disk that a cut leaves behind.
#[must_use]
pub fn image(cursor: &Cursor<'_>, choice: &Choice) -> MemDisk {
    match choice {
        Choice::Whole(choice) => cursor.image(choice),
        Choice::Apart { log, rest } => {
            let image = cursor.image(rest);
            transplant(&cursor.image(log), &image);
            image
        }
    }
}

/// Replaces what one image has on the log's disk by what the other has there.
fn transplant(from: &MemDisk, to: &MemDisk) {
    const SOUND: &str = "a crash image takes what is asked of it";
    for path in to.files().iter().filter(|path| path.starts_with(LOG_DISK)) {
        to.delete(path).expect(SOUND);
    }
    let is_there = |disk: &MemDisk| disk.kind(Path::new(LOG_DIR)).expect(SOUND).is_some();
    match (is_there(from), is_there(to)) {
        (true, false) => {
            to.create_dir(Path::new(LOG_DIR)).expect(SOUND);
            to.sync_dir(Path::new(LOG_DISK)).expect(SOUND);
        }
        (false, true) => to.delete(LOG_DIR).expect(SOUND),
        _ => {}
    }
    for path in from.files().iter().filter(|path| path.starts_with(LOG_DISK)) {
        to.write_file(path, &from.read_file(path).expect(SOUND)).expect(SOUND);
    }
}
