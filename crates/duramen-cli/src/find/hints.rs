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
const FOREIGN: [(&str, &str); 11] = [
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
    ("~", " contains "),
];

/// Parses a condition. The error tells what was probably meant.
///
/// `words` are those of the command from the condition on: without quotes it is cut at its blanks.
pub(super) fn condition(schema: &Schema, text: &str, words: &[String]) -> Result<Condition> {
    Condition::parse(schema, text).map_err(|error| {
        let hint = match Condition::field_of(text) {
            None => unquoted(schema, words).unwrap_or_else(|| no_condition(schema, text, &error.hint())),
            Some(field) if is_unknown(schema, field) => {
                not_in(schema, field, text).unwrap_or_else(|| of_name(schema, field))
            }
            Some(_) => error.hint(),
        };
        Failure::usage(error.message(), hint)
    })
}

/// The condition that words without quotes are parts of.
fn unquoted(schema: &Schema, words: &[String]) -> Option<String> {
    let [field, word, ..] = words else { return None };
    let count = match word.as_str() {
        "starts" => 4,
        "is" if words.get(2).is_some_and(|word| word == "not") => 4,
        "is" | "in" | "contains" | "like" | "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" => 3,
        _ => return None,
    };
    schema.kind(field)?;
    let whole = words.get(..count)?.join(" ");
    Some(format!("a condition with blanks is one word: quote it, {}", shell_word(&whole)))
}

/// The conditions of `FIELD not in A,B`.
fn not_in(schema: &Schema, field: &str, text: &str) -> Option<String> {
    let field = field.strip_suffix(" not").filter(|field| schema.kind(field).is_some())?;
    let values = text.strip_prefix(field)?.strip_prefix(" not in ")?.trim();
    let values = values.trim_start_matches('(').trim_end_matches(')').split(',');
    let each = values.map(|value| shell_word(&format!("{field}!={}", bare(value))));
    Some(format!("write {}", each.collect::<Vec<_>>().join(" ")))
}

/// A value without blanks and quotes around it.
fn bare(value: &str) -> &str {
    value.trim().trim_matches(['\'', '"'])
}

/// The condition, or the conditions, for words of other query languages.
fn translated(field: &str, rest: &str) -> String {
    let (word, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let one = |sign: &str, value: &str| shell_word(&format!("{field}{sign}{}", bare(value)));
    match word.to_ascii_lowercase().as_str() {
        "between" => match value.split_once(" and ").or_else(|| value.split_once(" AND ")) {
            Some((low, high)) => format!("{} {}", one(">=", low), one("<=", high)),
            None => format!("{} {}", one(">=", "LOW"), one("<=", "HIGH")),
        },
        "like" => {
            let pattern = bare(value);
            let sign = match (pattern.starts_with('%'), pattern.ends_with('%')) {
                (true, _) => " contains ",
                (false, true) => " starts with ",
                (false, false) => "=",
            };
            one(sign, pattern.trim_matches('%'))
        }
        "is" if value.to_ascii_lowercase().starts_with("not ") => one("!=", &value[4..]),
        lower => match FOREIGN.iter().find(|(foreign, _)| *foreign == lower) {
            Some((_, sign)) => one(sign, value),
            None => shell_word(&format!("{field}={rest}")),
        },
    }
}

/// The hint for a text without an operator.
fn no_condition(schema: &Schema, text: &str, forms: &str) -> String {
    if schema.kind(text).is_some() {
        return format!("write {text}=VALUE with the value to find; '{text} is not null' finds all values");
    }
    let (field, rest) = text.split_once(' ').unwrap_or((text, ""));
    if schema.kind(field).is_some() {
        return format!("write {}", translated(field, rest.trim_start()));
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
            let hint = slip(schema, flag, &name).unwrap_or_else(|| of_name(schema, &name));
            Err(Failure::usage(message, hint))
        }
        None => Ok(()),
    }
}

/// What was meant by a field with blanks in a list.
fn slip(schema: &Schema, flag: &str, name: &str) -> Option<String> {
    let trimmed = name.trim();
    if trimmed != name && schema.kind(trimmed).is_some() {
        return Some(format!("write {flag} without blanks after the commas: {trimmed} is a field"));
    }
    let (field, direction) = trimmed.rsplit_once(' ')?;
    let direction = direction.to_ascii_lowercase();
    let is_order = flag == "--order-by" && matches!(direction.as_str(), "asc" | "desc");
    (is_order && schema.kind(field.trim_end()).is_some())
        .then(|| format!("write {flag} {}:{direction}", shell_word(&list_item(field.trim_end()))))
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
