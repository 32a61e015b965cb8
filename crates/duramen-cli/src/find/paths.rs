//! Warnings of paths into values at which no document has anything, such as `address.ctiy`.
//!
//! A column is checked by its name. What is inside of its values only the documents tell.

use std::collections::BTreeSet;

use duramen::find::Condition;
use duramen::{Schema, Value};
use duramen_proto::v1;

use super::text_numbers::Warning;
use crate::args::FindArgs;
use crate::backend::Reading;
use crate::database::candidates;
use crate::failure::Result;
use crate::numbers::grouped;

/// So many documents are read for each path.
const SAMPLE_MAX: u64 = 500;

/// The warnings about the paths in conditions and flags.
pub(super) fn warnings(
    db: &Reading,
    stored: &Schema,
    args: &FindArgs,
    conditions: &[String],
) -> Result<Vec<Warning>> {
    let mut named: BTreeSet<&str> = conditions.iter().filter_map(|text| Condition::field_of(text)).collect();
    named.extend(args.fields.iter().chain(&args.group_by).flatten().map(String::as_str));
    let order = args.order_by.iter().flatten();
    named.extend(order.map(|text| text.rsplit_once(':').map_or(text.as_str(), |(field, _)| field)));
    let mut warnings = Vec::new();
    for path in named {
        let is_path = stored.kind(path).is_none() && path.contains(['.', '[']);
        let column = path.split(['.', '[']).next().unwrap_or_default();
        // What is joined has other documents.
        if is_path && stored.kind(column).is_some() {
            warnings.extend(absent(db, stored, path)?);
        }
    }
    Ok(warnings)
}

fn absent(db: &Reading, stored: &Schema, path: &str) -> Result<Option<Warning>> {
    let of = |path: &str| {
        let collection = stored.name().to_owned();
        let fields = vec![path.to_owned()];
        db.sample(&v1::Find { collection, fields, limit: Some(SAMPLE_MAX), ..v1::Find::default() })
    };
    // A path that cannot be read is an error of the query itself.
    let Ok(sample) = of(path) else { return Ok(None) };
    let count = sample.documents.len() as u64;
    for document in &sample.documents {
        match document.get(path) {
            None | Some(Value::Null) => {}
            Some(Value::List(items)) if items.iter().all(|item| *item == Value::Null) => {}
            Some(_) => return Ok(None),
        }
    }
    if count == 0 {
        return Ok(None);
    }
    let who = if count < SAMPLE_MAX {
        "no document has".to_owned()
    } else {
        format!("none of the first {} documents has", grouped(count))
    };
    let (above, last) = path.rsplit_once('.').unwrap_or((path, path));
    let mut names = BTreeSet::new();
    for document in of(above).iter().flat_map(|sample| &sample.documents) {
        if let Some(value) = document.get(above) {
            add_names(value, &mut names);
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    let hint = match names.is_empty() || above == path {
        true => format!("`duramen find DB -c {} --limit 1 --json` shows a document", stored.name()),
        false => candidates(&format!("parts of {above}"), last, &names),
    };
    Ok(Some(Warning::new(format!("{who} a value at {path}"), hint)))
}

/// The names in a map, or in the maps of a list.
fn add_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Map(document) => names.extend(document.iter().map(|(name, _)| name.to_owned())),
        Value::List(items) => items.iter().for_each(|item| add_names(item, names)),
        _ => {}
    }
}
