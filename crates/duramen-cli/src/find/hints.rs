//! What a query probably meant where it names no field, or is no condition.

use duramen::Schema;
use duramen::find::{Condition, OrderBy};

use super::groups;
use crate::args::FindArgs;
use crate::database::candidates;
use crate::failure::{Failure, Result};
use crate::names::list_item;
use crate::output::shell_word;

/// Words of other query languages between a field and a value.
const FOREIGN: [(&str, &str); 12] = [
    ("eq", "="),
    ("equals", "="),
    ("is", "="),
    ("ne", "!="),
    ("gt", ">"),
    ("ge", ">="),
    ("gte", ">="),
    ("lt", "<"),
    ("le", "<="),
    ("lte", "<="),
    ("like", " contains "),
    ("~", " contains "),
];

/// Parses a condition. The error tells what was probably meant.
pub(super) fn condition(schema: &Schema, text: &str) -> Result<Condition> {
    Condition::parse(schema, text).map_err(|error| {
        let hint = match Condition::field_of(text) {
            None => no_condition(schema, text, &error.hint()),
            Some(field) if is_unknown(schema, field) => of_name(schema, field),
            Some(_) => error.hint(),
        };
        Failure::usage(error.message(), hint)
    })
}

/// The hint for a text without an operator.
fn no_condition(schema: &Schema, text: &str, forms: &str) -> String {
    if schema.kind(text).is_some() {
        return format!("write {text}=VALUE with the value to find; '{text} is not null' finds all values");
    }
    let (field, rest) = text.split_once(' ').unwrap_or((text, ""));
    if schema.kind(field).is_some() {
        let rest = rest.trim_start();
        let (word, value) = rest.split_once(' ').unwrap_or((rest, ""));
        let foreign = FOREIGN.iter().find(|(foreign, _)| foreign.eq_ignore_ascii_case(word));
        return match foreign {
            Some((_, sign)) => {
                format!("write {}", shell_word(&format!("{field}{sign}{}", value.trim_matches('%'))))
            }
            None => format!("write {}", shell_word(&format!("{field}={rest}"))),
        };
    }
    let example = schema.columns().first().map_or("FIELD", |column| column.name.as_str());
    format!("{}; quote < and > for your shell", forms.replace("FIELD", example))
}

/// Refuses flags that name a field that the documents do not have.
pub(super) fn check_fields(schema: &Schema, args: &FindArgs) -> Result<()> {
    let flags = &args.aggregates;
    let mut named: Vec<(&str, String)> = Vec::new();
    for (flag, lists) in [
        ("--fields", &args.fields),
        ("--group-by", &args.group_by),
        ("--sum", &flags.sum),
        ("--mean", &flags.mean),
        ("--min", &flags.min),
        ("--max", &flags.max),
        ("--distinct", &flags.distinct),
    ] {
        named.extend(lists.iter().flatten().map(|name| (flag, name.clone())));
    }
    for text in flags.quantile.iter().flatten() {
        named.push(("--quantile", groups::quantile(text)?.0));
    }
    if !groups::are_wanted(args) {
        let order = args.order_by.iter().flatten().filter_map(|text| OrderBy::parse(text).ok());
        named.extend(order.map(|order| ("--order-by", order.field().to_owned())));
    }
    match named.into_iter().find(|(_, name)| is_unknown(schema, name)) {
        Some((flag, name)) => {
            let message = format!("{flag}: {} has no field {name}", schema.name());
            Err(Failure::usage(message, of_name(schema, &name)))
        }
        None => Ok(()),
    }
}

/// Whether a name is no field, nor a part of one.
fn is_unknown(schema: &Schema, name: &str) -> bool {
    schema.kind(name).is_none() && !name.contains(['.', '['])
}

/// The fields that a name may mean: one with a comma, of which it is a part, or similar ones.
fn of_name(schema: &Schema, name: &str) -> String {
    let names: Vec<String> = schema.columns().iter().map(|column| column.name.clone()).collect();
    let is_part = |whole: &&String| whole.contains(',') && whole.split(',').any(|part| part == name);
    match names.iter().find(is_part) {
        Some(whole) => {
            format!("a name with a comma is in quotes in a list: {}", shell_word(&list_item(whole)))
        }
        None => candidates("fields", name, &names),
    }
}
