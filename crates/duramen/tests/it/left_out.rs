//! Views whose building failed because of documents: they refuse no write, and are complete only once no such
//! document is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::view::{CodedView, Emitter, Monoid, Reduce, ViewSpec, reduce::Count, reduce::With};
use duramen::{Code, Disk, MemDisk};
use proptest::prelude::*;

const VIEWS: [&str; 3] = ["by_email", "by_city", "by_lane"];

/// Views that refuse documents in three ways: a key that another document has, a value that the reducer
/// refuses, and a key that has no order.
fn add_views(people: &Documents) {
    people.add_view(ViewSpec::new("by_email", ["email"]).unique()).unwrap();
    people.add_view(ViewSpec::new("by_city", ["city"]).values(["cents"]).reduce([Reduce::Sum(0)])).unwrap();
    people.add_view(ViewSpec::new("by_lane", ["lane"])).unwrap();
}

/// Columns of any type, so that the views cannot be refused before they meet a document.
fn people() -> Schema {
    Schema::new("people").key(["id"]).column("cents", ColumnType::Any).column("lane", ColumnType::Any)
}

fn person(id: u64, email: u64, cents: impl Into<Value>, lane: impl Into<Value>) -> Document {
    doc! { "id": id, "email": email, "city": "Oslo", "cents": cents.into(), "lane": lane.into() }
}

fn map() -> Value {
    Value::Map(doc! { "a": 1 })
}

fn failed(people: &Documents) -> Vec<String> {
    let states = people.views().unwrap().into_iter().filter(|state| state.failed.is_some());
    states.map(|state| state.view.name().to_owned()).collect()
}

fn work(db: &Db) {
    while db.step_background().unwrap() {}
}

/// Builds every view, and compares each with the documents.
fn check(db: &Db, count: u64) {
    let people = db.documents("people");
    people.build_views(|_| Ok(())).unwrap();
    for view in VIEWS {
        assert_eq!(people.view(view).count().unwrap(), count, "{view}");
    }
    assert_eq!(failed(&people), [""; 0]);
    assert!(db.check_documents().unwrap().is_clean());
}

// Seen with a view over a column with text in it: after it failed, no document could be written any more,
// although the view had never answered.
#[test]
fn a_view_that_failed_while_it_was_built_refuses_no_write() {
    let db = Db::options().background(false).in_memory().unwrap();
    let people = db.ensure(&people()).unwrap();
    for id in 0..700 {
        people.put(person(id, id, 1, 1)).unwrap();
    }
    for (id, bad) in
        [(600, person(600, 599, 1, 1)), (601, person(601, 601, "x", 1)), (602, person(602, 602, 1, map()))]
    {
        people.put(bad).unwrap_or_else(|error| panic!("{id}: {error}"));
    }
    add_views(&people);
    // A view whose building has not failed does refuse.
    assert_eq!(people.put(person(800, 800, 1, map())).unwrap_err().code(), Code::InvalidArgument);
    work(&db);
    assert_eq!(failed(&people), VIEWS);

    // Before the place where the walks stopped, at it, and behind it.
    for id in [3, 600, 800] {
        people.put(person(id, 5, "y", map())).unwrap();
    }
    people.put(person(900, 900, 1, 1)).unwrap();
    work(&db);
    assert_eq!(people.view("by_email").count().unwrap_err().code(), Code::Rebuilding);

    for id in [600, 601, 602, 800] {
        people.put(person(id, id, 1, 1)).unwrap();
    }
    let error = people.build_views(|_| Ok(())).unwrap_err();
    assert!(error.message().contains(" 3 "), "the walk had passed it when it was put: {error}");
    people.put(person(3, 3, 1, 1)).unwrap();
    check(&db, 702);
    assert_eq!(people.put(person(901, 900, 1, 1)).unwrap_err().code(), Code::UniqueViolation);
    assert_eq!(people.put(person(901, 901, "z", 1)).unwrap_err().code(), Code::InvalidArgument);
}

/// A view in code with a row for each word, whose reduction panics on one of them.
#[derive(Debug, Clone, Serialize, Deserialize, Collection)]
#[collection(coded(ByWord))]
struct Note {
    #[key]
    id: u64,
    text: String,
}

struct ByWord;

impl CodedView for ByWord {
    type Collection = Note;
    type Key = String;
    type Value = String;
    type Reduce = (Count, With<Letters>);
    const NAME: &'static str = "by_word";
    const VERSION: u32 = 1;

    fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
        for word in note.text.split_whitespace() {
            emit.row(word, word.to_owned());
        }
    }
}

struct Letters;

impl Monoid for Letters {
    const NAME: &'static str = "letters";
    const VERSION: u32 = 1;
    type Value = String;
    type State = u64;
    type Answer = u64;

    fn one(word: String) -> u64 {
        assert!(word != "zzz", "a word that cannot be counted");
        word.len() as u64
    }

    fn join(left: u64, right: u64) -> u64 {
        left + right
    }

    fn answer(state: Option<u64>) -> u64 {
        state.unwrap_or(0)
    }
}

// The reducer refuses the last row of a document after the first rows were put: none of them may stay.
#[test]
fn a_document_that_a_view_in_code_refuses_has_no_row_in_it() {
    let db = Db::options().background(false).reducer::<Letters>().in_memory().unwrap();
    let put = |id: u64, text: &str| db.put(&Note { id, text: text.to_owned() });
    let notes = db.ensure(&Schema::new("note").key(["id"]).column("text", ColumnType::Text)).unwrap();
    notes.put(doc! { "id": 1, "text": "one two" }).unwrap();
    notes.put(doc! { "id": 2, "text": "zzz" }).unwrap();
    assert_eq!(db.build_views::<Note>(|_| Ok(())).unwrap_err().code(), Code::ReducerPanicked);

    put(1, "five six zzz").unwrap();
    put(3, "seven").unwrap();
    assert!(db.check_documents().unwrap().is_clean());
    for id in [1, 2] {
        assert!(db.build_views::<Note>(|_| Ok(())).is_err(), "the document {id} still has the word");
        put(id, "eight").unwrap();
    }
    db.build_views::<Note>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByWord>().reduce().unwrap(), (3, 15));
    assert!(db.check_documents().unwrap().is_clean());
}

#[derive(Debug, Clone)]
enum Step {
    Put { id: u64, email: u64, cents_are_text: bool, lane_is_map: bool },
    Delete(u64),
    Build,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..40_u64, 0..60_u64, prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    prop_oneof![
        12 => put.prop_map(|(id, email, cents_are_text, lane_is_map)| Step::Put { id, email, cents_are_text, lane_is_map }),
        3 => (0..40_u64).prop_map(Step::Delete),
        3 => Just(Step::Build),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    // Whatever was written between failures, a view that becomes complete lacks no document and has no row
    // too many.
    #[test]
    fn a_view_that_failed_misses_no_document(steps in prop::collection::vec(step(), 1..120), views_at in 0..60_usize) {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(1));
        let open = || Db::options().background(false).open_on(Arc::clone(&disk), "/db").unwrap();
        let mut db = open();
        let mut people = db.ensure(&people()).unwrap();
        let mut stored: BTreeMap<u64, Document> = BTreeMap::new();
        for (index, step) in steps.into_iter().enumerate() {
            if index == views_at {
                add_views(&people);
            }
            match step {
                Step::Put { id, email, cents_are_text, lane_is_map } => {
                    let cents = if cents_are_text { Value::from("much") } else { Value::from(id) };
                    let lane = if lane_is_map { map() } else { Value::from(2) };
                    let document = person(id, email, cents, lane);
                    if people.put(document.clone()).is_ok() {
                        stored.insert(id, document);
                    }
                }
                Step::Delete(id) => {
                    people.delete(id).unwrap();
                    stored.remove(&id);
                }
                Step::Build => drop(people.build_views(|_| Ok(()))),
                Step::Reopen => {
                    drop((people, db));
                    db = open();
                    people = db.documents("people");
                }
            }
            prop_assert!(db.check_documents().unwrap().is_clean());
        }
        for (id, document) in &stored {
            let found = people.get(*id).unwrap();
            prop_assert_eq!(found.as_ref(), Some(document));
            people.delete(*id).unwrap();
            people.put(person(*id, 100 + *id, *id, 1)).unwrap();
        }
        if people.views().unwrap().is_empty() {
            add_views(&people);
        }
        check(&db, stored.len() as u64);
    }
}
