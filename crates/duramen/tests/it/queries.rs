//! 200 generated queries on the flights of January and the tables beside them, against SQLite's answers in
//! data/nycflights/queries.jsonl. scripts/queries-by-sqlite makes that file anew.

use std::path::Path;

use duramen::find::{Aggregate, Condition, Find, FindPlan, Join, OrderBy};
use duramen::prelude::*;
use duramen::view::ViewSpec;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::flights_table::FLIGHTS;

const QUERIES: &str = include_str!("../../../../data/nycflights/queries.jsonl");

/// Sums of floats are SQLite's own to this part: it adds them one after the other.
const NEAR: f64 = 1e-9;

fn texts(json: &Json) -> Vec<String> {
    let items = json.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// Fills the collections; with views, so that the same queries take other access paths.
fn load(tables: &Json, with_views: bool) -> Db {
    let db = Db::options().background(false).in_memory().unwrap();
    for (name, table) in tables.as_object().unwrap() {
        let columns: Vec<(String, ColumnType)> = table["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| {
                let kind = ColumnType::from_name(column[1].as_str().unwrap()).unwrap();
                (column[0].as_str().unwrap().to_owned(), kind)
            })
            .collect();
        let schema = Schema::new(name.as_str()).key(texts(&table["key"]));
        let schema = columns.iter().fold(schema, |schema, (name, kind)| schema.column(name.as_str(), *kind));
        let views: &[&[&str]] = match name.as_str() {
            _ if !with_views => &[],
            "flights" => &[&["origin", "dest"], &["dep_delay"], &["distance"], &["tailnum", "month"]],
            "weather" => &[&["temp"], &["visib", "origin"], &["wind_dir"]],
            "planes" => &[&["manufacturer", "model"], &["year"]],
            "airports" => &[&["alt"], &["tzone"], &["dst"]],
            _ => &[&["name"]],
        };
        let schema = views.iter().fold(schema, |schema, key| {
            schema.view(ViewSpec::new(format!("by_{}", key.join("_")), key.iter().copied()))
        });
        let documents = db.ensure(&schema).unwrap();
        let path = Path::new(FLIGHTS).with_file_name(format!("{name}.csv.gz"));
        let file = std::fs::File::open(path).unwrap();
        let text = std::io::read_to_string(flate2::read::GzDecoder::new(file)).unwrap();
        let rows: Vec<Document> = text.lines().skip(1).map(|line| document(&columns, line)).collect();
        let is_wanted = |row: &&Document| name != "flights" || row.get("month") == Some(&Value::from(1));
        let rows: Vec<&Document> = rows.iter().filter(is_wanted).collect();
        for part in rows.chunks(5_000) {
            db.transact(|tx| {
                let documents = tx.documents(documents.name());
                part.iter().try_for_each(|row| documents.put((*row).clone()))
            })
            .unwrap();
        }
    }
    db
}

fn document(columns: &[(String, ColumnType)], line: &str) -> Document {
    let mut document = Document::new();
    for ((name, kind), cell) in columns.iter().zip(line.split(',')) {
        // A null is a null, or no field at all.
        match kind {
            _ if cell == "NA" && name.len().is_multiple_of(2) => {}
            _ if cell == "NA" => document.set(name.as_str(), Value::Null),
            ColumnType::Int => document.set(name.as_str(), cell.parse::<i64>().unwrap()),
            ColumnType::Float => document.set(name.as_str(), cell.parse::<f64>().unwrap()),
            _ => document.set(name.as_str(), cell),
        }
    }
    document
}

/// The rows of an answer, as lists of values, and the plan. `None` if `only_by_views` and no view is used.
fn ask(db: &Db, query: &Json, only_by_views: bool) -> Result<Option<(Vec<Vec<Value>>, String)>> {
    let name = query["collection"].as_str().unwrap();
    let documents = db.documents(name);
    let mut find = documents.find([]);
    for join in query["joins"].as_array().unwrap() {
        let of = |key: &str| join[key].as_str().unwrap();
        let inner = Join::inner(of("collection"), texts(&join["on"])).named(of("name"));
        find = find.join(if join["left"] == true { inner.or_null() } else { inner });
    }
    let schema = find.schema()?;
    let words = texts(&query["conditions"]);
    let find = find.and(Condition::parse_words(words, |text| Condition::parse(&schema, text))?);
    let order = texts(&query["order"]).iter().map(|text| OrderBy::parse(text)).collect::<Result<Vec<_>>>()?;
    let limit = query["limit"].as_u64();
    let rows = |found: Vec<Document>, names: &[String]| {
        let row =
            |document: &Document| names.iter().map(|name| document.get(name).unwrap().clone()).collect();
        found.iter().map(row).collect::<Vec<Vec<Value>>>()
    };
    let is_left_out = |plan: &FindPlan| only_by_views && plan.path.view().is_none();
    if query["aggregates"].is_array() {
        let plan = find.plan()?;
        if is_left_out(&plan) {
            return Ok(None);
        }
        return Ok(Some((rows_of_groups(&find, query, &order, limit)?, plan.to_string())));
    }
    let fields = texts(&query["fields"]);
    let find = find.fields(&fields).order_by(order);
    let find = limit.map_or(find.clone(), |limit| find.limit(limit));
    let plan = find.plan()?;
    if is_left_out(&plan) {
        return Ok(None);
    }
    if plan.is_exact {
        assert_eq!(find.count()?, query["rows"].as_u64().unwrap(), "{plan}");
    }
    let found = find.iter()?.collect::<Result<Vec<_>>>()?;
    Ok(Some((rows(found, &fields), plan.to_string())))
}

fn rows_of_groups(
    find: &Find<'_>,
    query: &Json,
    order: &[OrderBy],
    limit: Option<u64>,
) -> Result<Vec<Vec<Value>>> {
    let aggregate = |text: &String| {
        let mut parts = text.split(':');
        let (kind, field) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        let made = match kind {
            "count" => Aggregate::count(),
            "sum" => Aggregate::sum(field),
            "mean" => Aggregate::mean(field),
            "min" => Aggregate::min(field),
            "max" => Aggregate::max(field),
            "distinct" => Aggregate::distinct(field),
            _ => Aggregate::quantile(field, parts.next().unwrap().parse().unwrap()),
        };
        if kind == "count" { made } else { made.named(text.as_str()) }
    };
    let aggregates: Vec<Aggregate> = texts(&query["aggregates"]).iter().map(aggregate).collect();
    let grouped = find.group_by(texts(&query["group_by"]), aggregates).order_by(order.to_vec());
    let grouped = limit.map_or(grouped.clone(), |limit| grouped.limit(limit));
    let row = |group: Result<Document>| Ok(group?.iter().map(|(_, value)| value.clone()).collect());
    grouped.iter()?.map(row).collect()
}

/// A value in the form in which the script hashes it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "n".to_owned(),
        Value::Int(value) => format!("i{value}"),
        Value::Float(value) => format!("f{:016x}", value.to_bits()),
        Value::Text(value) => format!("t{value}"),
        other => panic!("{other:?}"),
    }
}

fn is_same(found: &Value, wanted: &Json) -> bool {
    match (found, wanted) {
        (Value::Null, Json::Null) => true,
        (Value::Text(found), Json::String(wanted)) => found == wanted,
        (Value::Int(found), Json::Number(wanted)) => wanted.as_i64().map(i128::from) == Some(*found),
        (Value::Float(found), Json::Number(wanted)) if wanted.is_f64() => {
            let wanted = wanted.as_f64().unwrap();
            (found - wanted).abs() <= NEAR * wanted.abs().max(1e-300)
        }
        _ => false,
    }
}

/// Whether the query was run; if so, its answer is SQLite's.
fn check(db: &Db, query: &Json, only_by_views: bool) -> bool {
    let shown = || serde_json::to_string(query).unwrap();
    let asked = ask(db, query, only_by_views).unwrap_or_else(|error| panic!("{error}: {}", shown()));
    let Some((found, plan)) = asked else { return false };
    assert_eq!(found.len() as u64, query["rows"].as_u64().unwrap(), "{plan}: {}", shown());
    if let Some(wanted) = query["answer"].as_array() {
        for (found, wanted) in found.iter().zip(wanted) {
            let wanted = wanted.as_array().unwrap();
            let same = found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(one, other)| is_same(one, other));
            assert!(same, "{found:?}, not {wanted:?}: {plan}: {}", shown());
        }
        return true;
    }
    let mut lines: Vec<String> =
        found.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join("\u{1f}")).collect();
    if query["ordered"] == false {
        lines.sort();
    }
    let hash = Sha256::digest(lines.join("\n").as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(query["sha256"], hash, "{plan}: {:?}: {}", found.first(), shown());
    true
}

/// How many queries were run.
fn check_all(with_views: bool) -> usize {
    let mut lines = QUERIES.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let db = load(&lines.next().unwrap()["tables"], with_views);
    lines.filter(|query| check(&db, query, with_views)).count()
}

#[test]
fn the_answers_are_those_of_sqlite() {
    assert_eq!(check_all(false), 200);
}

// Views lead other ways to the same answers.
#[test]
fn the_answers_through_views_are_those_of_sqlite() {
    let count = check_all(true);
    assert!(count >= 20, "{count} queries use a view");
}
