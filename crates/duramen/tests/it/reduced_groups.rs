//! Groups from the reductions of a view: the same answers as from reading all documents, or another path.

use duramen::find::{AccessPath, Aggregate, Condition, Find, Grouped, OrderBy};
use duramen::prelude::*;
use duramen::view::{KeyField, Reduce};
use duramen::{Span, ViewSpec};
use duramen_disk::memory::Random;

/// Views of which each may lack documents, rows or reductions that a query needs.
fn views() -> Vec<ViewSpec> {
    let sum = |view: ViewSpec| view.values(["n"]).reduce([Reduce::Sum(0)]);
    vec![
        sum(ViewSpec::new("by_a", ["a"])),
        sum(ViewSpec::new("by_a_nulls", ["a"]).nulls()),
        sum(ViewSpec::new("by_ba", [KeyField::field("b").descending(), KeyField::field("a")]).nulls()),
        sum(ViewSpec::new("by_ab", ["a", "b"]).nulls()),
        sum(ViewSpec::new("by_f", ["f"]).nulls()),
        sum(ViewSpec::new("by_tags", ["a", "tags"]).each()),
        ViewSpec::new("by_b", ["b"]).nulls(),
    ]
}

fn document(id: u64, random: &mut Random, null_of: usize) -> Document {
    let has = |random: &mut Random| random.below(null_of) > 0;
    let a = has(random).then(|| ["x", "y", "z\0"][random.below(3)]);
    let b = has(random).then(|| i64::try_from(random.below(4)).unwrap() - 2);
    let n = (random.below(3) > 0).then(|| i64::try_from(random.below(100)).unwrap() - 50);
    let f = [-0.0, 0.0, 1.5][random.below(3)];
    let tags: Vec<Value> = (0..random.below(3)).map(|tag| Value::from(tag as u64)).collect();
    doc! { "id": id, "a": a, "b": b, "n": n, "f": f, "tags": tags }
}

fn query<'s>(find: &Find<'s>, random: &mut Random) -> Grouped<'s> {
    let fields = [&["a"][..], &["b"], &["a", "b"], &["b", "a"], &["f"], &["n"], &[]][random.below(7)];
    let mut aggregates = vec![Aggregate::count()];
    let more = [Aggregate::sum("n"), Aggregate::mean("n"), Aggregate::max("n"), Aggregate::sum("f")];
    if random.below(4) > 0 {
        aggregates.push(more[if random.below(3) > 0 { random.below(2) } else { random.below(4) }].clone());
    }
    let grouped = find.group_by(fields.iter().copied(), aggregates);
    match random.below(4) {
        0 => grouped.order_by([OrderBy::descending("count")]).limit(2),
        _ => grouped,
    }
}

fn conditions(schema: &Schema, random: &mut Random) -> Vec<Condition> {
    let texts = [&[][..], &["a=x"], &["a in x,y"], &["b>=0"], &["a=y", "b<1"], &["b is null"], &["n>0"]];
    let texts = texts[random.below(texts.len() + 3) % texts.len()];
    texts.iter().map(|text| Condition::parse(schema, text).unwrap()).collect()
}

/// Compares some queries with those that read all documents. Returns how many read none.
fn compare<S: LocalReads>(documents: &duramen::DocumentsOf<'_, S>, random: &mut Random) -> usize {
    let mut reduced = 0;
    let schema = documents.schema().unwrap();
    for _ in 0..12 {
        let find = documents.find(conditions(&schema, random));
        let seed = random.below(1 << 20) as u64;
        let asked = query(&find, &mut Random::new(seed));
        let read = query(&find.range(Span::all()), &mut Random::new(seed));
        let plan = asked.plan().unwrap();
        let answers = |grouped: &Grouped<'_>| grouped.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(answers(&asked), answers(&read), "{} {asked:?}", plan.path_shown());
        assert!(!matches!(read.plan().unwrap().path, AccessPath::ViewReductions { .. }));
        let mut groups = asked.iter().unwrap();
        assert!(groups.all(|group| group.is_ok()));
        if let AccessPath::ViewReductions { view, .. } = &plan.path {
            assert!(
                ["by_a", "by_a_nulls", "by_ba", "by_ab", "by_b", "by_f"].contains(&view.as_str()),
                "{view}"
            );
            assert_eq!((plan.read_count, groups.read_count()), (0, 0));
            reduced += 1;
        }
    }
    reduced
}

fn round(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("rows").key(["id"]).column("a", ColumnType::Text).column("b", ColumnType::Int);
    let schema = schema.column("n", ColumnType::Int).column("f", ColumnType::Float);
    let rows = db.ensure(&schema.column("tags", ColumnType::Any)).unwrap();
    let null_of = [1_000_000, 5][random.below(2)];
    for view in views() {
        match random.below(3) {
            0 => {}
            1 => drop(rows.add_view(view).unwrap()),
            // It is not built before documents exist, or not at all.
            _ => drop(db.transact(|tx| tx.add_view("rows", &view)).unwrap()),
        }
        for _ in 0..random.below(8) {
            let id = random.below(60) as u64;
            rows.put(document(id, &mut random, null_of)).unwrap();
        }
        if random.below(2) == 0 {
            rows.build_views(|_| Ok(())).unwrap();
        }
        (0..random.below(3)).for_each(|_| assert!(rows.delete(random.below(60) as u64).is_ok()));
    }
    let mut reduced = compare(&db.snapshot().unwrap().documents("rows"), &mut random);
    db.transact(|tx| {
        let rows = tx.documents("rows");
        for _ in 0..random.below(10) {
            rows.put(document(random.below(60) as u64, &mut random, null_of))?;
            rows.delete(random.below(60) as u64)?;
        }
        reduced += compare(&rows, &mut random);
        Ok(())
    })
    .unwrap();
    reduced
}

#[test]
fn groups_of_a_view_are_those_of_its_documents() {
    let reduced: usize = (0..150)
        .map(|seed| {
            println!("seed {seed}");
            round(seed)
        })
        .sum();
    assert!(reduced > 300, "only {reduced} queries read no document");
}

/// Each of these would answer with groups or documents missing, or several times.
#[test]
fn a_view_that_lacks_documents_does_not_answer() {
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("rows").key(["id"]).column("a", ColumnType::Text).column("n", ColumnType::Int);
    let rows = db.ensure(&schema).unwrap();
    rows.add_view(ViewSpec::new("by_a", ["a"]).values(["n"]).reduce([Reduce::Sum(0)])).unwrap();
    rows.put(doc! { "id": 1, "a": "x", "n": 5 }).unwrap();
    let path = |text: &str| {
        let condition = (!text.is_empty()).then(|| Condition::parse(&rows.schema().unwrap(), text).unwrap());
        rows.find(condition).group_by(["a"], [Aggregate::sum("n")]).plan().unwrap().path
    };
    let by_a = |fields: &[&str]| AccessPath::ViewReductions {
        view: "by_a".into(),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    };
    assert_eq!(path(""), by_a(&[]));
    rows.put(doc! { "id": 2, "a": Value::Null, "n": 7 }).unwrap();
    assert_eq!(path(""), AccessPath::Scan);
    assert_eq!(path("a>=b"), by_a(&["a"]), "the condition leaves no null");
    assert_eq!(path("n>5"), AccessPath::Scan);
    rows.delete(2).unwrap();
    assert_eq!(path(""), by_a(&[]));
}
