//! Reductions in code: laws are tested, panics fail one transaction, programs without the code lose nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::view::{Monoid, assert_monoid};
use duramen::{Code, Disk, MemDisk};

/// The longest run of the same word, rows in order: order matters to it.
pub(crate) struct LongestRun;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    first: (String, u64),
    last: (String, u64),
    longest: u64,
    whole: bool,
}

impl Monoid for LongestRun {
    const NAME: &'static str = "longest-run";
    const VERSION: u32 = 1;
    const BYTES_MAX: usize = 80;
    type Value = String;
    type State = Run;
    type Answer = u64;

    fn one(value: String) -> Run {
        assert!(value != "panic", "a word that nobody may say");
        Run { first: (value.clone(), 1), last: (value, 1), longest: 1, whole: true }
    }

    fn join(left: Run, right: Run) -> Run {
        let meet = left.last.0 == right.first.0;
        let between = if meet { left.last.1 + right.first.1 } else { 0 };
        Run {
            first: (left.first.0, left.first.1 + if left.whole && meet { right.first.1 } else { 0 }),
            last: (right.last.0, right.last.1 + if right.whole && meet { left.last.1 } else { 0 }),
            longest: left.longest.max(right.longest).max(between),
            whole: left.whole && right.whole && meet,
        }
    }

    fn answer(state: Option<Run>) -> u64 {
        state.map_or(0, |run| run.longest)
    }

    fn samples() -> Vec<String> {
        ["a", "b", "a", "longer"].map(str::to_owned).to_vec()
    }
}

/// Another one of the same name that counts letters: it cannot use the stored states.
pub(crate) struct LongestRun2;

impl Monoid for LongestRun2 {
    const NAME: &'static str = "longest-run";
    const VERSION: u32 = 2;
    const IS_COMMUTATIVE: bool = true;
    type Value = String;
    type State = u64;
    type Answer = u64;

    fn one(value: String) -> u64 {
        value.len() as u64
    }

    fn join(left: u64, right: u64) -> u64 {
        left + right
    }

    fn answer(state: Option<u64>) -> u64 {
        state.unwrap_or(0)
    }
}

macro_rules! words {
    ($($kind:ident $view:ident $monoid:ident),*) => {$(
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
        #[collection(name = "words", view($view, key = page, value = word, reduce = (Count, With($monoid), Max)))]
        pub(crate) struct $kind {
            #[key]
            id: u64,
            page: u32,
            word: Option<String>,
        }
    )*};
}

words!(Word Runs LongestRun);

mod later {
    use super::LongestRun2;
    use duramen::prelude::*;

    words!(Word Runs LongestRun2);
}

fn word(id: u64) -> Word {
    let word = ["sun", "moon", "stars"][(id * id / 7 % 3) as usize].to_owned();
    let page = u32::try_from(id / 100).unwrap();
    Word { id, page, word: (!id.is_multiple_of(11)).then_some(word) }
}

fn longest(words: &BTreeMap<u64, Word>, pages: std::ops::Range<u32>) -> (u64, u64) {
    let inside: Vec<&Word> = words.values().filter(|word| pages.contains(&word.page)).collect();
    let (mut longest, mut run, mut before) = (0, 0, None);
    for word in inside.iter().filter_map(|word| word.word.as_deref()) {
        run = if before == Some(word) { run + 1 } else { 1 };
        before = Some(word);
        longest = longest.max(run);
    }
    (inside.len() as u64, longest)
}

fn check(db: &Db, words: &BTreeMap<u64, Word>) {
    for pages in [0..100, 3..17, 5..6, 40..60, 99..200] {
        let (count, run, _) = db.view::<Runs>().range(pages.start..pages.end).reduce().unwrap();
        assert_eq!((count, run), longest(words, pages));
    }
}

fn open(disk: &MemDisk) -> Db {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Db::options().reducer::<LongestRun>().open_on(disk, "/words").unwrap()
}

/// Opens as a program without the code would, such as the command line.
fn open_without(disk: &MemDisk) -> Db {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Db::options().open_on(disk, "/words").unwrap()
}

fn filled(disk: &MemDisk) -> BTreeMap<u64, Word> {
    let words: BTreeMap<u64, Word> = (0..6000).map(|id| (id, word(id))).collect();
    let db = open(disk);
    for some in words.values().cloned().collect::<Vec<_>>().chunks(1000) {
        db.transact(|tx| some.iter().try_for_each(|word| tx.put(word))).unwrap();
    }
    check(&db, &words);
    db.close().unwrap();
    drop(db);
    words
}

#[test]
fn code_of_ones_own_answers_as_the_documents_say() {
    assert_monoid::<LongestRun>(LongestRun::samples());
    assert_monoid::<LongestRun2>(LongestRun::samples());
    let disk = MemDisk::new(0);
    let mut words = filled(&disk);
    let db = open(&disk);
    check(&db, &words);
    for id in (0..6000).step_by(7) {
        db.delete::<Word>(id).unwrap();
        words.remove(&id);
    }
    check(&db, &words);
    assert_eq!(db.view::<Runs>().key(1000).reduce().unwrap(), (0, 0, None));
    assert!(db.check().unwrap().is_clean());
}

// A panic in the code must fail only the transaction that ran it.
#[test]
fn a_panic_fails_its_transaction_and_nothing_else() {
    let db = open(&MemDisk::new(0));
    db.put(&word(1)).unwrap();
    let forbidden = Word { word: Some("panic".to_owned()), ..word(2) };
    let error = db.put(&forbidden).unwrap_err();
    assert_eq!(error.code(), Code::ReducerPanicked);
    assert!(error.message().contains("nobody may say"), "{error}");
    let too_long = Word { word: Some("x".repeat(38)), ..word(2) };
    assert_eq!(db.put(&too_long).unwrap_err().code(), Code::ReducerPanicked);
    assert_eq!(db.get::<Word>(2).unwrap(), None);
    db.put(&word(2)).unwrap();
    assert_eq!(db.view::<Runs>().reduce().unwrap().0, 2);
}

// A tool without the code reads, checks and writes; what it wrote is reduced correctly once the code is back.
#[test]
fn a_program_without_the_code_loses_nothing() {
    let disk = MemDisk::new(0);
    let mut words = filled(&disk);
    let db = open_without(&disk);
    assert_eq!(db.view::<Runs>().count().unwrap(), 6000);
    let error = db.view::<Runs>().reduce().unwrap_err();
    assert_eq!(error.code(), Code::ReducerMissing);
    for id in (0..6000).step_by(500) {
        db.documents("words").put(doc! { "id": id, "page": id / 100, "word": "stars" }).unwrap();
        words.get_mut(&id).unwrap().word = Some("stars".to_owned());
    }
    for id in 2000..2600 {
        db.documents("words").delete(id).unwrap();
        words.remove(&id);
    }
    for id in 6000..6400 {
        db.put(&word(id)).unwrap();
        words.insert(id, word(id));
    }
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
    // Some of these writes come from the log and some from the data file, where their reductions are not
    // stored.
    let cut = disk.crash(&duramen_disk::memory::CrashChoice::None);
    db.close().unwrap();
    drop(db);
    check(&open(&cut), &words);
    let db = open(&disk);
    check(&db, &words);
    assert!(db.check().unwrap().is_clean());
    let before = db.check().unwrap().reductions;
    db.build_views::<Word>(|_| Ok(())).unwrap();
    check(&db, &words);
    db.close().unwrap();
    drop(db);
    // Every reduction is on disk again.
    let db = open(&disk);
    check(&db, &words);
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert!(report.reductions > before, "{} and {before} before", report.reductions);
}

// The command line never has the code, and a backup that it refused would be none.
#[test]
fn a_backup_without_the_code_holds_everything() {
    let disk = MemDisk::new(0);
    let words = filled(&disk);
    open_without(&disk).backup("/copy").unwrap();
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let copy = Db::options().reducer::<LongestRun>().open_on(shared, "/copy").unwrap();
    check(&copy, &words);
    assert!(copy.check().unwrap().is_clean());
    assert!(copy.check_documents().unwrap().is_clean());
}

// States of another version cannot be used by this one.
#[test]
fn another_version_is_built_anew() {
    let disk = MemDisk::new(0);
    let words = filled(&disk);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let db = Db::options().background(false).reducer::<LongestRun2>().open_on(shared, "/words").unwrap();
    let error = db.view::<later::Runs>().reduce().unwrap_err();
    assert_eq!(error.code(), Code::Rebuilding);
    db.build_views::<later::Word>(|_| Ok(())).unwrap();
    let letters: usize = words.values().filter_map(|word| word.word.as_deref()).map(str::len).sum();
    assert_eq!(db.view::<later::Runs>().reduce().unwrap().1, letters as u64);
}

/// A sum of floats, which is not a monoid.
struct Floats;

impl Monoid for Floats {
    const NAME: &'static str = "floats";
    const VERSION: u32 = 1;
    type Value = f64;
    type State = f64;
    type Answer = f64;

    fn one(value: f64) -> f64 {
        value
    }

    fn join(left: f64, right: f64) -> f64 {
        left + right
    }

    fn answer(state: Option<f64>) -> f64 {
        state.unwrap_or(0.0)
    }

    fn samples() -> Vec<f64> {
        vec![0.1, 0.2, 0.3, 1e9]
    }
}

/// Grows with every value, although it claims not to.
struct Hoarder;

impl Monoid for Hoarder {
    const NAME: &'static str = "hoarder";
    const VERSION: u32 = 1;
    type Value = u64;
    type State = Vec<u64>;
    type Answer = usize;

    fn one(value: u64) -> Vec<u64> {
        vec![value]
    }

    fn join(mut left: Vec<u64>, right: Vec<u64>) -> Vec<u64> {
        left.extend(right);
        left
    }

    fn answer(state: Option<Vec<u64>>) -> usize {
        state.map_or(0, |all| all.len())
    }

    fn samples() -> Vec<u64> {
        vec![1, u64::MAX]
    }
}

/// The first of two, which claims that order makes no difference.
struct First;

impl Monoid for First {
    const NAME: &'static str = "first";
    const VERSION: u32 = 1;
    const IS_COMMUTATIVE: bool = true;
    type Value = u64;
    type State = u64;
    type Answer = Option<u64>;

    fn one(value: u64) -> u64 {
        value
    }

    fn join(left: u64, _: u64) -> u64 {
        left
    }

    fn answer(state: Option<u64>) -> Option<u64> {
        state
    }

    fn samples() -> Vec<u64> {
        vec![1, 2]
    }
}

// Wrong answers that depend on page splits would go unnoticed: such code is refused before it is used.
#[test]
fn broken_promises_are_found_before_a_database_is_opened() {
    let refused = |options: duramen::DbOptions, words: &str| {
        let error = options.in_memory().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(words), "{error}");
    };
    refused(Db::options().reducer::<Floats>(), "not associative");
    refused(Db::options().reducer::<Hoarder>(), "and BYTES_MAX is 64");
    refused(Db::options().reducer::<First>(), "IS_COMMUTATIVE");
    Db::options()
        .reducer::<LongestRun>()
        .reducer::<LongestRun>()
        .reducer::<LongestRun2>()
        .in_memory()
        .unwrap();
}

#[test]
#[should_panic(expected = "seed")]
fn a_broken_promise_is_named_with_its_seed() {
    /// Associative for few, and not for many.
    struct Saturates;

    impl Monoid for Saturates {
        const NAME: &'static str = "saturates";
        const VERSION: u32 = 1;
        type Value = i8;
        type State = i8;
        type Answer = Option<i8>;

        fn one(value: i8) -> i8 {
            value
        }

        fn join(left: i8, right: i8) -> i8 {
            left.saturating_add(right)
        }

        fn answer(state: Option<i8>) -> Option<i8> {
            state
        }
    }

    assert_monoid::<Saturates>([20, -20, 3]);
}

// Without the code the view could never answer: a program must have the code to create the collection.
#[test]
fn a_collection_is_not_created_without_the_code_of_its_views() {
    let db = Db::in_memory().unwrap();
    let error = db.put(&word(1)).unwrap_err();
    assert_eq!(error.code(), Code::ReducerMissing);
    assert!(error.to_string().contains("longest-run"), "{error}");
    assert!(error.hint().contains("reducer"), "{error}");
}
