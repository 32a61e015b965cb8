//! Queries over several views, pages of views, results that are read step by step: all compared with a scan
//! of the documents.

use std::collections::BTreeMap;

use duramen::prelude::*;
use duramen::{Code, PageToken, Select};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "flights",
    view(ByCarrier, key = carrier, value = minutes, reduce = (Count, Sum)),
    view(ByRoute, key = (origin, day)),
    view(ByTag, key = tags, each),
)]
struct Flight {
    #[key]
    day: u32,
    #[key]
    number: String,
    carrier: String,
    origin: Option<String>,
    minutes: i64,
    tags: Vec<String>,
}

/// Numbers drawn one after the other, the same from the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn flight(dice: &mut Dice) -> Flight {
    let day = u32::try_from(dice.below(12)).unwrap();
    Flight {
        day,
        // Texts of which one is a prefix of another, and with a zero byte, which keys escape.
        number: ["A", "A\0", "AB", "B", "C"][usize::try_from(dice.below(5)).unwrap()]
            .repeat(usize::try_from(1 + dice.below(3)).unwrap()),
        carrier: format!("C{}", dice.below(3)),
        origin: (dice.below(5) > 0).then(|| format!("O{}", dice.below(3))),
        minutes: i64::try_from(dice.below(100)).unwrap(),
        tags: (0..dice.below(3)).map(|_| format!("t{}", dice.below(4))).collect(),
    }
}

type Flights = BTreeMap<(u32, String), Flight>;

fn filled(count: usize, dice: &mut Dice) -> (Db, Flights) {
    let db = Db::in_memory().unwrap();
    let mut model = Flights::new();
    for _ in 0..count {
        let flight = flight(dice);
        db.put(&flight).unwrap();
        model.insert((flight.day, flight.number.clone()), flight);
    }
    (db, model)
}

/// A term of a query: its operator, and its view and key.
#[derive(Debug, Clone)]
enum Asks {
    Carrier(String),
    Route(String, u32),
    Tag(String),
}

#[derive(Debug, Clone, Copy)]
enum Join {
    And,
    Or,
    AndNot,
}

fn words(dice: &mut Dice) -> Vec<(Join, Asks)> {
    let mut words = Vec::new();
    for _ in 0..dice.below(5) {
        let join = [Join::And, Join::And, Join::Or, Join::AndNot][usize::try_from(dice.below(4)).unwrap()];
        words.push((
            join,
            match dice.below(3) {
                0 => Asks::Carrier(format!("C{}", dice.below(4))),
                1 => Asks::Route(format!("O{}", dice.below(3)), u32::try_from(dice.below(12)).unwrap()),
                _ => Asks::Tag(format!("t{}", dice.below(5))),
            },
        ));
    }
    words
}

fn asked<'s>(mut select: Select<'s, Flight>, words: &[(Join, Asks)]) -> Select<'s, Flight> {
    for (join, asks) in words {
        select = match (join, asks) {
            (Join::And, Asks::Carrier(key)) => select.and::<ByCarrier>(key),
            (Join::And, Asks::Route(origin, day)) => select.and::<ByRoute>((origin, *day)),
            (Join::And, Asks::Tag(key)) => select.and::<ByTag>(key),
            (Join::Or, Asks::Carrier(key)) => select.or::<ByCarrier>(key),
            (Join::Or, Asks::Route(origin, day)) => select.or::<ByRoute>((origin, *day)),
            (Join::Or, Asks::Tag(key)) => select.or::<ByTag>(key),
            (Join::AndNot, Asks::Carrier(key)) => select.and_not::<ByCarrier>(key),
            (Join::AndNot, Asks::Route(origin, day)) => select.and_not::<ByRoute>((origin, *day)),
            (Join::AndNot, Asks::Tag(key)) => select.and_not::<ByTag>(key),
        };
    }
    select
}

fn wanted(model: &Flights, words: &[(Join, Asks)]) -> Vec<Flight> {
    let is = |flight: &Flight, asks: &Asks| match asks {
        Asks::Carrier(key) => flight.carrier == *key,
        Asks::Route(origin, day) => flight.origin.as_ref() == Some(origin) && flight.day == *day,
        Asks::Tag(key) => flight.tags.contains(key),
    };
    let holds = |flight: &&Flight| {
        words.iter().fold(true, |so_far, (join, asks)| match join {
            Join::And => so_far && is(flight, asks),
            Join::Or => so_far || is(flight, asks),
            Join::AndNot => so_far && !is(flight, asks),
        })
    };
    model.values().filter(holds).cloned().collect()
}

fn pages<T>(mut next: impl FnMut(Option<&PageToken>) -> Result<duramen::Page<T>>) -> Vec<T> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = next(after.as_ref()).unwrap();
        found.extend(page.items);
        // A token is kept as text between two pages.
        after = page.next.map(|token| token.to_string().parse().unwrap());
        if after.is_none() {
            return found;
        }
    }
}

fn check(select: &Select<'_, Flight>, mut wanted: Vec<Flight>, what: &str) {
    assert_eq!(select.to_vec().unwrap(), wanted, "{what}");
    assert_eq!(select.count().unwrap(), wanted.len() as u64, "{what}");
    assert_eq!(select.first().unwrap(), wanted.first().cloned(), "{what}");
    assert_eq!(pages(|after| select.page(3, after)), wanted, "{what}");
    let explain = select.explain_run().unwrap();
    assert_eq!(explain.ran.unwrap().documents, wanted.len() as u64, "{what}");
    assert!(explain.rows_max >= wanted.len() as u64, "{what}: {explain}");
    wanted.reverse();
    let reversed = select.reverse();
    assert_eq!(reversed.to_vec().unwrap(), wanted, "{what}, reversed");
    assert_eq!(pages(|after| reversed.page(4, after)), wanted, "{what}, reversed");
    let keys: Vec<(u32, String)> = reversed.limit(2).keys().unwrap().map(Result::unwrap).collect();
    wanted.truncate(2);
    assert_eq!(
        keys,
        wanted.into_iter().map(|flight| (flight.day, flight.number)).collect::<Vec<_>>(),
        "{what}"
    );
}

#[test]
fn views_together_say_what_a_walk_over_the_documents_says() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let (db, mut model) = filled(150, &mut dice);
        let mut found = 0;
        for _ in 0..40 {
            let words = words(&mut dice);
            let wanted = wanted(&model, &words);
            found += wanted.len();
            check(&asked(db.select(), &words), wanted, &format!("seed {seed}, {words:?}"));
        }
        assert!(found > 100, "{found}: the questions find something");
        // A transaction sees its own writes.
        db.transact(|tx| {
            let mut inside = model.clone();
            for _ in 0..10 {
                let flight = flight(&mut dice);
                tx.put(&flight)?;
                inside.insert((flight.day, flight.number.clone()), flight);
            }
            let words = words(&mut dice);
            let found = asked(tx.select(), &words).to_vec()?;
            assert_eq!(found, wanted(&inside, &words), "seed {seed}, {words:?}");
            model = inside;
            Ok(())
        })
        .unwrap();
    }
}

// The view with the fewest rows leads: the others must not be scanned.
#[test]
fn a_rare_key_makes_the_answer_short() {
    let db = Db::in_memory().unwrap();
    let flight = |day: u32, carrier: &str, origin: &str| Flight {
        day,
        number: "1".into(),
        carrier: carrier.into(),
        origin: Some(origin.into()),
        minutes: 1,
        tags: vec!["all".into()],
    };
    db.transact(|tx| {
        (0..3_000)
            .try_for_each(|day| tx.put(&flight(day, if day % 1_000 == 7 { "rare" } else { "often" }, "OSL")))
    })
    .unwrap();
    let select = db.select::<Flight>().by::<ByTag>("all").and::<ByCarrier>("rare");
    let explain = select.explain_run().unwrap();
    let ran = explain.ran.unwrap();
    assert_eq!(ran.documents, 3);
    assert!(ran.rows < 60, "{explain}");
    assert_eq!(
        select.explain().unwrap().to_string(),
        "flights: documents, in the order of their keys\n  in all of: 3 row(s)\n    view by_carrier, key rare: 3 row(s)\n    \
         view by_tag, key all: 3000 row(s)\n  gives at most 3; a walk that merges the views, the smallest first; memory for one \
         key of each"
    );
    // Results of a snapshot are of its state, however long they are read.
    let snapshot = db.snapshot().unwrap();
    let mut documents = snapshot.select::<Flight>().by::<ByCarrier>("rare").iter().unwrap();
    assert_eq!(documents.next().unwrap().unwrap().day, 7);
    db.delete::<Flight>((1_007, "1")).unwrap();
    assert_eq!(documents.map(|flight| flight.unwrap().day).collect::<Vec<_>>(), [1_007, 2_007]);
    assert_eq!(db.select::<Flight>().by::<ByCarrier>("rare").count().unwrap(), 2);
}

#[test]
fn a_collection_nobody_wrote_to_has_nothing_and_one_that_does_not_fit_says_so() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "flights")]
    struct Plain {
        #[key]
        day: u32,
        #[key]
        number: String,
    }
    let db = Db::in_memory().unwrap();
    let select = db.select::<Flight>().by::<ByCarrier>("C1").or::<ByTag>("t1");
    assert_eq!((select.count().unwrap(), select.first().unwrap()), (0, None));
    assert_eq!(select.explain_run().unwrap().rows_max, 0);
    db.put(&Plain { day: 1, number: "1".into() }).unwrap();
    let error = db.view::<ByCarrier>().count().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "its fields have no default: {error}");
}

#[test]
fn pages_of_views_go_on_where_they_ended() {
    let mut dice = Dice(77);
    let (db, model) = filled(120, &mut dice);
    let mut rows: Vec<(String, u32, String)> =
        model.values().map(|flight| (flight.carrier.clone(), flight.day, flight.number.clone())).collect();
    rows.sort();
    let view = db.view::<ByCarrier>();
    let shown = |entries: Vec<duramen::view::ViewEntry<ByCarrier>>| -> Vec<(String, u32, String)> {
        entries.into_iter().map(|entry| (entry.key, entry.document.0, entry.document.1)).collect()
    };
    assert_eq!(shown(pages(|after| view.page(7, after))), rows);
    let documents = pages(|after| view.page_docs(7, after));
    assert_eq!(documents, view.docs().unwrap());
    assert_eq!(documents.len(), rows.len());
    rows.retain(|row| row.0 == "C1");
    rows.reverse();
    assert_eq!(shown(pages(|after| view.key("C1").reverse().page(7, after))), rows);
    // Inserts and deletes between two pages move nothing.
    let first = view.key("C2").page_docs(2, None).unwrap();
    db.delete::<Flight>((first.items[0].day, &first.items[0].number)).unwrap();
    let second = view.key("C2").page_docs(2, first.next.as_ref()).unwrap();
    let all: Vec<&Flight> = model.values().filter(|flight| flight.carrier == "C2").collect();
    assert_eq!(second.items.iter().collect::<Vec<_>>(), all[2..4]);
}

#[test]
fn groups_and_documents_are_read_as_they_are_asked_for() {
    let (db, model) = filled(120, &mut Dice(5));
    let mut groups = db.view::<ByCarrier>().reverse().iter_groups::<String>().unwrap();
    let (carrier, (count, _)) = groups.next().unwrap().unwrap();
    assert_eq!(count, model.values().filter(|flight| flight.carrier == carrier).count() as u64);
    db.delete_range::<Flight>(..).unwrap();
    assert_eq!(groups.count(), 2, "they are of the state they began in");
    assert_eq!(db.view::<ByCarrier>().iter_groups::<String>().unwrap().count(), 0);
    let explain = db.view::<ByRoute>().prefix("O1").explain().unwrap();
    assert_eq!((explain.rows_max, explain.walks), (0, false));
    assert!(explain.to_string().contains("view by_route, keys that begin with O1: 0 row(s)"), "{explain}");
    let explain = db.collection::<Flight>().range((3, "A")..(5, "A")).limit(7).explain().unwrap();
    assert!(
        explain.to_string().contains("documents, keys from 3,A on and before 5,A: 0 row(s)"),
        "{explain}"
    );
}
