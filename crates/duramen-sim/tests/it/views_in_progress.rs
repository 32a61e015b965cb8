//! Power cuts while views are being built: declared, unique, in code, added by name, and changed ones beside those that they follow;
//! and documents written by a program without the code (D1, D2). Whatever survives is what some commits in a row made; a view that
//! answers says what a walk over the documents says; and started again, twice, every view gets there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use duramen::Code;
use duramen::prelude::*;
use duramen::view::{CodedView, Emitter, Reduce, ViewSpec, reduce};
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;

/// Before anybody thought of views.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "items")]
struct Item {
    #[key]
    id: u64,
    owner: String,
    cents: i64,
    words: String,
    email: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "items",
    view(ByOwner, key = owner, value = cents, reduce = (Count, Sum)),
    view(ByEmail, key = email, unique),
    coded(ByWord),
)]
struct Viewed {
    #[key]
    id: u64,
    owner: String,
    cents: i64,
    words: String,
    email: Option<String>,
}

mod later {
    use duramen::prelude::*;

    /// The program of the next release: a declared view has changed, and so has the one in code.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(
        name = "items",
        view(ByOwner, key = (owner, id), value = cents, reduce = (Count, Sum)),
        coded(super::ByWordOfLater, was = super::ByWordOfBefore)
    )]
    pub(super) struct Changed {
        #[key]
        pub(super) id: u64,
        pub(super) owner: String,
        pub(super) cents: i64,
        pub(super) words: String,
        pub(super) email: Option<String>,
    }
}

use later::Changed;

macro_rules! by_word {
    ($name:ident, $of:ident, $version:literal, $map:expr) => {
        struct $name;

        impl CodedView for $name {
            type Collection = $of;
            type Key = String;
            type Value = i64;
            type Reduce = (reduce::Count, reduce::Sum);
            const NAME: &'static str = "by_word";
            const VERSION: u32 = $version;

            fn map(item: &$of, emit: &mut Emitter<'_, $name>) {
                let map: fn(&str) -> String = $map;
                item.words.split_whitespace().for_each(|word| emit.row(map(word), item.cents));
            }
        }
    };
}

by_word!(ByWord, Viewed, 1, str::to_owned);
by_word!(ByWordOfBefore, Changed, 1, str::to_owned);
by_word!(ByWordOfLater, Changed, 2, |word| format!("{word}!"));

type Items = BTreeMap<u64, Item>;
type Sums = BTreeMap<String, (u64, i128)>;

fn open(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db")).unwrap()
}

/// Who writes: a program that knows nothing, one without the code, one of each release.
#[derive(Debug, Clone, Copy)]
enum Writer {
    Plain,
    ByName,
    Viewed,
    Changed,
}

fn item(dice: &mut Dice, writer: Writer) -> Item {
    let words = (0..dice.below(4)).map(|_| format!("w{}", dice.below(5))).collect::<Vec<_>>().join(" ");
    let email =
        (!matches!(writer, Writer::Plain) && dice.below(2) == 0).then(|| format!("{}@x", dice.below(30)));
    let cents = i64::try_from(dice.below(1_000)).unwrap() - 500;
    Item { id: dice.below(26), owner: format!("o{}", dice.below(4)), cents, words, email }
}

fn put(tx: &mut Transaction<'_>, writer: Writer, item: &Item) -> Result<()> {
    let Item { id, owner, cents, words, email } = item.clone();
    match writer {
        Writer::Plain => tx.put(item),
        Writer::Viewed => tx.put(&Viewed { id, owner, cents, words, email }),
        Writer::Changed => tx.put(&Changed { id, owner, cents, words, email }),
        Writer::ByName => tx
            .documents("items")
            .put(doc! { "id": id, "owner": owner, "cents": cents, "words": words, "email": email }),
    }
}

/// One transaction on the database and on the model.
fn commit(db: &Db, model: &mut Items, dice: &mut Dice, writer: Writer) {
    let fresh = item(dice, writer);
    let deletes = dice.below(5) == 0;
    let committed = db.transact(|tx| match deletes {
        true => tx.documents("items").delete(fresh.id).map(drop),
        false => put(tx, writer, &fresh),
    });
    match committed {
        Ok(()) if deletes => drop(model.remove(&fresh.id)),
        Ok(()) => drop(model.insert(fresh.id, fresh)),
        Err(error) => assert_eq!(error.code(), Code::UniqueViolation, "{error}"),
    }
}

/// What was there after each commit, and how much was recorded when it was acknowledged.
struct Run {
    disk: MemDisk,
    states: Vec<(usize, Items)>,
    /// How many answers of a view were compared while a follower of it was being built.
    old_answers: usize,
}

fn run(seed: u64) -> Run {
    let (disk, mut dice, mut model) = (MemDisk::new(seed), Dice::new(seed), Items::new());
    disk.record();
    let mut run = Run { disk: disk.clone(), states: vec![(0, Items::new())], old_answers: 0 };
    let rounds = [
        (Writer::Plain, 20),
        (Writer::Viewed, 6),
        (Writer::ByName, 3),
        (Writer::Viewed, 14),
        (Writer::Changed, 7),
        (Writer::ByName, 3),
        (Writer::Changed, 14),
    ];
    for (round, (writer, commits)) in rounds.into_iter().enumerate() {
        let db = open(&disk);
        for step in 0..commits {
            commit(&db, &mut model, &mut dice, writer);
            run.states.push((disk.recorded_len(), model.clone()));
            if round == 1 && step == 2 {
                let named = ViewSpec::new("by_cents", ["cents"]).values(["id"]).reduce([Reduce::Sum(0)]);
                db.documents("items").add_view(named).unwrap();
            }
            if !matches!(writer, Writer::Plain) {
                db.step_background().unwrap();
                let when = format!("seed {seed}, round {round}, step {step}");
                run.old_answers += check_answers(&db, &model, &when, writer);
            }
        }
        db.close().unwrap();
    }
    run
}

fn answer<T>(asked: Result<T>, when: &str) -> Option<T> {
    match asked {
        Ok(answer) => Some(answer),
        Err(error) if matches!(error.code(), Code::Rebuilding | Code::NoSuchTree) => None,
        Err(error) => panic!("{when}: {error}"),
    }
}

/// Every view that answers is right. Returns how many of them are older than one that is being built.
fn check_answers(db: &Db, items: &Items, when: &str, as_who: Writer) -> usize {
    let (mut owners, mut words, mut cents) = (Sums::new(), Sums::new(), BTreeMap::<i64, (u64, i128)>::new());
    for item in items.values() {
        let add = |sums: &mut Sums, key: &str| {
            let sum = sums.entry(key.to_owned()).or_default();
            *sum = (sum.0 + 1, sum.1 + i128::from(item.cents));
        };
        add(&mut owners, &item.owner);
        let own: BTreeSet<&str> = item.words.split_whitespace().collect();
        own.into_iter().for_each(|word| add(&mut words, word));
        let sum = cents.entry(item.cents).or_default();
        *sum = (sum.0 + 1, sum.1 + i128::from(item.id));
    }
    let named = answer(db.documents("items").view("by_cents").group_by(1), when);
    if let Some(named) = named {
        let found = named
            .into_iter()
            .map(|(key, all)| (Value::from(key[0].clone()), all.count, all.parts[0].value.clone()));
        let wanted =
            cents.into_iter().map(|(cents, (count, sum))| (Value::from(cents), count, Value::Int(sum)));
        assert!(found.eq(wanted), "{when}: by_cents");
    }
    let is_building = |name: &str| {
        let states = db.documents("items").views().unwrap_or_default();
        states.iter().any(|state| state.view.name() == name && !state.is_ready())
    };
    let mut old_answers = 0;
    let mut compare = |asked: Result<Vec<(String, (u64, i128))>>, wanted: &Sums, name: &str| {
        if let Some(found) = answer(asked, when) {
            let exclaimed = |(word, sums): (&String, &(u64, i128))| (format!("{word}!"), *sums);
            let found: Sums = found.into_iter().collect();
            let later: Sums = wanted.iter().map(exclaimed).collect();
            assert!(
                found == *wanted || (name == "by_word" && found == later),
                "{when}: {name} says {found:?}, not {wanted:?}"
            );
            old_answers += usize::from(is_building(name) && !found.is_empty());
        }
    };
    match as_who {
        Writer::Plain | Writer::ByName => {}
        Writer::Viewed => {
            compare(db.view::<ByOwner>().group_by::<String>(), &owners, "by_owner");
            compare(db.view::<ByWord>().group_by::<String>(), &words, "by_word");
            let emails: BTreeSet<String> = items.values().filter_map(|item| item.email.clone()).collect();
            let found = answer(db.view::<ByEmail>().iter(), when);
            let found = found.map(|rows| rows.map(|row| row.unwrap().key).collect::<Vec<_>>());
            assert!(found.is_none_or(|found| found.iter().eq(&emails)), "{when}: by_email");
        }
        Writer::Changed => {
            compare(db.view::<later::ByOwner>().group_by::<String>(), &owners, "by_owner");
            compare(db.view::<ByWordOfLater>().group_by::<String>(), &words, "by_word");
        }
    }
    old_answers
}

fn check_cut(run: &Run, at: usize, choice: &CrashChoice, as_who: Writer) -> bool {
    let when = format!("cut at operation {at}, {choice:?}, {as_who:?}");
    let image = run.disk.trace().crash_image(at, choice);
    let acknowledged = run.states.partition_point(|(recorded, _)| *recorded <= at) - 1;
    let db = open(&image);
    let items = db.collection::<Item>().to_vec().unwrap();
    let items: Items = items.into_iter().map(|item| (item.id, item)).collect();
    let found = run.states[acknowledged..].iter().any(|(_, state)| *state == items);
    assert!(found, "{when}: not what any {acknowledged} commits or more made: {items:?}");
    let unready = |db: &Db| db.view_states().unwrap().iter().any(|state| !state.is_ready());
    let was_building = unready(&db);
    // Started again twice, after a few steps.
    check_answers(&db, &items, &when, as_who);
    db.step_background().unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(&image);
    check_answers(&db, &items, &when, as_who);
    db.step_background().unwrap();
    db.step_background().unwrap();
    drop(db);
    let db = open(&image);
    check_answers(&db, &items, &when, as_who);
    match as_who {
        Writer::Changed => db.build_views::<Changed>(|_| Ok(())).unwrap(),
        _ => {
            // What the later program was building is not this one's.
            db.view::<ByWordOfLater>().count().ok();
            db.build_views::<Viewed>(|_| Ok(())).unwrap();
        }
    }
    assert!(!unready(&db), "{when}: {:?}", db.view_states());
    check_answers(&db, &items, &when, as_who);
    let report = db.check_documents().unwrap();
    assert!(report.is_clean() && report.unchecked.is_empty(), "{when}: {report:?}");
    assert!(db.check().unwrap().is_clean(), "{when}");
    was_building
}

#[test]
fn views_that_are_being_built_survive_power_cuts() {
    let (mut cuts, mut building, mut old_answers) = (0, 0, 0);
    for seed in [1, 2] {
        println!("seed {seed}");
        let run = run(seed);
        old_answers += run.old_answers;
        let operations = run.disk.recorded_len();
        let mut dice = Dice::new(seed);
        for at in (0..operations).step_by(operations / 150 + 1) {
            let choices =
                [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: dice.below(u64::MAX) }];
            for choice in choices {
                let as_who = if dice.below(2) == 0 { Writer::Viewed } else { Writer::Changed };
                cuts += 1;
                building += usize::from(check_cut(&run, at, &choice, as_who));
            }
        }
    }
    println!("{cuts} cuts, {building} into a build, {old_answers} answers of old versions");
    assert!(
        cuts > 500 && building > 100 && old_answers > 5,
        "{cuts} cuts, {building} into a build, {old_answers} old"
    );
}
