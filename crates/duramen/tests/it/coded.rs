//! Views in code: right after any change, in programs with and without the code, through panics and new
//! versions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen::prelude::*;
use duramen::view::{CodedView, Emitter, reduce};
use duramen::{Code, Disk, MemDisk, ViewPhase};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "notes", coded(ByWord), coded(ByLength))]
struct Note {
    #[key]
    id: u64,
    text: String,
    weight: i64,
}

struct ByWord;

impl CodedView for ByWord {
    type Collection = Note;
    type Key = String;
    type Value = (i64, u64);
    type Reduce = (reduce::Count, reduce::Sum, reduce::At<reduce::Max<u64>, 1>);
    const NAME: &'static str = "by_word";
    const VERSION: u32 = 1;

    fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
        assert!(!note.text.contains("panic"), "a word that the code cannot take");
        for word in note.text.split_whitespace() {
            let weight =
                if word == "twice" { note.weight + i64::from(emit_is_second(word)) } else { note.weight };
            emit.row(word, (weight, word.len() as u64));
        }
    }
}

/// True at every other call: for a word that must not occur in a test that needs deterministic rows.
fn emit_is_second(_: &str) -> bool {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) % 2 == 1
}

struct ByLength;

impl CodedView for ByLength {
    type Collection = Note;
    type Key = (u32, u64);
    type Value = ();
    type Reduce = (reduce::Count,);
    const NAME: &'static str = "by_length";
    const VERSION: u32 = 1;
    const UNIQUE: bool = true;

    fn map(note: &Note, emit: &mut Emitter<'_, ByLength>) {
        // Two notes of the same weight may not have texts of the same length.
        if let (Ok(length), Ok(weight)) = (u32::try_from(note.text.len()), u64::try_from(note.weight)) {
            emit.row((length, weight), ());
        }
    }
}

fn note(id: u64, text: &str, weight: i64) -> Note {
    Note { id, text: text.to_owned(), weight }
}

type Words = BTreeMap<String, (u64, i128, Option<u64>)>;

fn expected(db: &Db) -> Words {
    let mut words = Words::new();
    for note in db.collection::<Note>().to_vec().unwrap() {
        let mut own: Vec<&str> = note.text.split_whitespace().collect();
        own.sort_unstable();
        own.dedup();
        for word in own {
            let all = words.entry(word.to_owned()).or_default();
            *all = (all.0 + 1, all.1 + i128::from(note.weight), Some(word.len() as u64));
        }
    }
    words
}

fn answered(db: &Db) -> Words {
    db.view::<ByWord>().group_by::<String>().unwrap().into_iter().collect()
}

fn any_note(random: &mut u64) -> Note {
    let mut next = |below: u64| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random % below
    };
    let words: Vec<String> = (0..next(5)).map(|_| format!("word{}", next(9))).collect();
    note(next(40), &words.join(" "), -1 - i64::try_from(next(100)).unwrap())
}

fn on(disk: &Arc<dyn Disk>) -> Db {
    Db::options().background(false).open_on(Arc::clone(disk), "/db").unwrap()
}

// Programs with the code and programs without take turns. Whenever the view answers, it equals a scan; and
// with the code it always gets ready.
#[test]
fn a_view_in_code_is_what_the_documents_come_to() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(10));
    let mut random = 0x5eed_0010;
    println!("seed {random}");
    for round in 0..6 {
        let db = on(&disk);
        db.put(&any_note(&mut random)).unwrap();
        for step in 0..60 {
            let note = any_note(&mut random);
            match step % 4 {
                0 => drop(db.delete::<Note>(note.id).unwrap()),
                1 => {
                    let by_hand = doc! { "id": note.id, "text": note.text.clone(), "weight": note.weight };
                    drop(db.documents("notes").put(by_hand).unwrap());
                }
                _ => drop(db.put(&note).unwrap()),
            }
        }
        db.build_views::<Note>(|_| Ok(())).unwrap();
        assert_eq!(answered(&db), expected(&db), "round {round}");
        let report = db.check_documents().unwrap();
        assert!(report.is_clean() && report.unchecked.is_empty(), "{report:?}");
        drop(db);

        let db = on(&disk);
        let notes = db.documents("notes");
        let report = db.check_documents().unwrap();
        assert_eq!(report.unchecked, ["notes.by_word", "notes.by_length"], "{report:?}");
        // A change that needs no code leaves the view ready.
        notes.delete(any_note(&mut random).id).unwrap();
        assert!(notes.view("by_word").count().is_ok());
        for note in [any_note(&mut random), any_note(&mut random)] {
            notes
                .put(doc! { "id": note.id, "text": format!("{} more", note.text), "weight": note.weight })
                .unwrap();
        }
        let error = notes.view("by_word").count().unwrap_err();
        assert!(error.code() == Code::Rebuilding && error.message().contains("without its code"), "{error}");
        let state = notes.views().unwrap().into_iter().find(|state| state.view.name() == "by_word").unwrap();
        assert!(
            matches!(state.phase, ViewPhase::Behind { documents: 1 | 2 }) && !state.has_code,
            "{state:?}"
        );
        assert!(!db.step_background().unwrap(), "there is nothing that it could do");
        assert_eq!(notes.build_views(|_| Ok(())).unwrap_err().code(), Code::Unsupported);
        drop((db, notes));
        let db = on(&disk);
        // A query is enough to register the code.
        assert_eq!(db.view::<ByWord>().count().unwrap_err().code(), Code::Rebuilding);
        while db.step_background().unwrap() {}
        assert_eq!(answered(&db), expected(&db), "round {round}");
        assert!(db.check().unwrap().is_clean() && db.check_documents().unwrap().is_clean());
    }
}

// User code that panics must fail its caller and nothing else.
#[test]
fn a_panic_in_the_code_fails_that_transaction_only() {
    let db = Db::in_memory().unwrap();
    db.put(&note(1, "one two", 1)).unwrap();
    let error = db.put(&note(1, "panic now", 1)).unwrap_err();
    assert_eq!(error.code(), Code::ReducerPanicked);
    assert!(error.message().contains("by_word") && error.message().contains("cannot take"), "{error}");
    // Even if the closure discards the error, no half of a document may remain.
    db.transact(|tx| {
        tx.put(&note(2, "three", 2))?;
        assert!(tx.put(&note(1, "panic now", 1)).is_err());
        Ok(())
    })
    .unwrap();
    assert_eq!(answered(&db), expected(&db));
    assert_eq!(db.get::<Note>(1).unwrap(), Some(note(1, "one two", 1)));
    let error = db.put(&note(3, "twice twice", 1)).unwrap_err();
    let (one, two) = ("(1, 5)", "(2, 5)");
    let is_named = |text: &str| ["by_word", "twice", one, two].iter().all(|part| text.contains(part));
    assert!(error.code() == Code::InvalidArgument && is_named(error.message()), "{error}");
    // The same row again is one row.
    db.put(&note(5, "same same same", 1)).unwrap();
    assert_eq!(db.view::<ByWord>().key("same").reduce().unwrap(), (1, 1, Some(4)));
    let error = db.put(&note(4, "eno owt", 1)).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation, "{error}");
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn code_that_makes_other_rows_each_time_is_found_by_a_check() {
    let db = Db::in_memory().unwrap();
    db.put(&note(1, "twice", 1)).unwrap();
    let found = (0..2).any(|_| !db.check_documents().unwrap().is_clean());
    assert!(found, "one of two looks is not the write's");
}

mod later {
    use duramen::prelude::*;
    use duramen::view::{CodedView, Emitter, reduce};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "logs", coded(ByWord))]
    pub(super) struct First {
        #[key]
        pub(super) id: u64,
        pub(super) text: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "logs", coded(ByLowerWord, was = ByWordOfSecond))]
    pub(super) struct Second {
        #[key]
        pub(super) id: u64,
        pub(super) text: String,
    }

    /// A program that has only the new code.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "logs", coded(ByUpperWord))]
    pub(super) struct Third {
        #[key]
        pub(super) id: u64,
        pub(super) text: String,
    }

    macro_rules! by_word {
        ($name:ident, $of:ident, $version:literal, $map:expr) => {
            pub(super) struct $name;

            impl CodedView for $name {
                type Collection = $of;
                type Key = String;
                type Value = ();
                type Reduce = (reduce::Count,);
                const NAME: &'static str = "by_word";
                const VERSION: u32 = $version;

                fn map(log: &$of, emit: &mut Emitter<'_, $name>) {
                    let map: fn(&str) -> String = $map;
                    log.text.split_whitespace().for_each(|word| emit.row(map(word), ()));
                }
            }
        };
    }

    by_word!(ByWord, First, 1, str::to_owned);
    by_word!(ByWordOfSecond, Second, 1, str::to_owned);
    by_word!(ByLowerWord, Second, 2, str::to_lowercase);
    by_word!(ByUpperWord, Third, 3, str::to_uppercase);
}

// A new version is built beside the old one. The old one answers as long as the program has its code.
#[test]
fn a_new_version_is_built_while_the_old_one_answers() {
    use later::{ByLowerWord, ByUpperWord, ByWord, First, Second, Third};

    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(11));
    let db = on(&disk);
    let text = |id: u64| format!("Word{} other", id % 10);
    db.transact(|tx| (0..1_200).try_for_each(|id| tx.put(&First { id, text: text(id) }))).unwrap();
    assert_eq!(db.view::<ByWord>().key("Word3").count().unwrap(), 120);
    drop(db);

    let db = on(&disk);
    db.put(&Second { id: 5_000, text: "Word3".into() }).unwrap();
    let mut by_old = 0;
    while db.view::<ByLowerWord>().key("word3").count().unwrap() == 0 {
        by_old += 1;
        assert_eq!(db.view::<ByLowerWord>().key("Word3").count().unwrap(), 120 + by_old);
        db.put(&Second { id: 5_000 + by_old, text: "Word3".into() }).unwrap();
        assert!(db.step_background().unwrap());
    }
    assert!(by_old >= 3, "{by_old}");
    assert_eq!(db.view::<ByLowerWord>().key("word3").count().unwrap(), 121 + by_old);
    assert_eq!(db.documents("logs").views().unwrap().len(), 1);
    drop(db);

    let db = on(&disk);
    db.put(&Third { id: 9_000, text: "word3".into() }).unwrap();
    let error = db.view::<ByUpperWord>().count().unwrap_err();
    assert_eq!(error.code(), Code::Rebuilding);
    db.build_views::<Third>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByUpperWord>().key("WORD3").count().unwrap(), 122 + by_old);
    assert!(db.check().unwrap().is_clean() && db.check_documents().unwrap().is_clean());
}
