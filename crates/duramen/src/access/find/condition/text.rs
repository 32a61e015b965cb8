//! Conditions in text: `carrier=UA`, `delay>=60`, `carrier in UA,AA`, and words between them.
//!
//! Owns the syntax, which the command line and its shell share with programs.

mod written;

use super::{Condition, Operator, Test, check_text, is_typed, kind_at, wanted};
use crate::access::find::compare::Wanted;
use crate::access::find::path::Path;
use crate::catalog::cell::key_element;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};
use crate::value::document::Value;
use crate::value::json;
use crate::value::tuple::Element;

/// The sign before a value that is given as JSON. The operator is then `Equal`.
const JSON_SIGN: &str = ":=";

/// The signs of conditions in text; of two with a common prefix the longer comes first.
const SIGNS: [(&str, Operator); 9] = [
    (JSON_SIGN, Operator::Equal),
    ("==", Operator::Equal),
    ("<>", Operator::NotEqual),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// What stands between a field and a value, or after a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Sign(&'static str, Operator),
    In,
    Contains,
    StartsWith,
    IsNull,
    IsNotNull,
}

const WORDS: [(&str, Word); 5] = [
    (" in ", Word::In),
    (" contains ", Word::Contains),
    (" starts with ", Word::StartsWith),
    (" is null", Word::IsNull),
    (" is not null", Word::IsNotNull),
];

const FORMS: &str = "write FIELD=VALUE, with = != < <= > >= or := and JSON; or FIELD in A,B, FIELD contains TEXT, \
                     FIELD starts with TEXT, FIELD is null, FIELD is not null";

impl Condition {
    /// Parses a condition: a field, one of the signs `=` `!=` `<` `<=` `>` `>=`, and a value as in a cell of
    /// CSV, by the type of the field's column; or a field, `:=` and a value in JSON. `==` is `=`, and `<>` is
    /// `!=`.
    ///
    /// `carrier=UA`, `delay>=60`, `time<2013-01-01T10:00:00Z`, `tailnum:=null`.
    ///
    /// Words do what signs cannot: `carrier in UA,AA`, `carrier in ["UA","AA"]`, `name contains Air`,
    /// `name starts with Jet`, `tailnum is null`, `tailnum is not null`.
    ///
    /// A text may be quoted: `city="New York"`. Without quotes it is neither the word for null, nor does it
    /// go on with another condition.
    ///
    /// In a column of type any and inside of values, where no column sets a type, the type of the value that
    /// is found decides how the text is read: `home.zip=0150` finds the text, `home.floor=3` the number and
    /// the text. A number after `<`, `<=`, `>` or `>=` is compared with numbers only; `home.zip>"3"` compares
    /// texts.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a text that is no condition, for a field that the schema does not have,
    /// and for a value that is not of the field's type. The hint contains the correct form.
    pub fn parse(schema: &Schema, text: &str) -> Result<Condition> {
        let Some((field, word, value)) = split(text, Some(schema)) else {
            return Err(Error::invalid(format!("{text:?} is no condition")).with_hint(FORMS));
        };
        let (field, value) = trimmed(schema, field, value);
        let path = Path::of(schema, field)?;
        let read = |value: &str| read(schema, &path, text, word, value);
        Ok(Condition(match word {
            Word::Sign(JSON_SIGN, operator) => {
                let wanted =
                    from_json(schema, &path, value).ok_or_else(|| refused(schema, &path, text, value))?;
                Test::Compare { path, operator, wanted }
            }
            Word::Sign(_, operator) => Test::Compare { wanted: read(value)?, path, operator },
            Word::In => {
                let wanted = match json::parse(value) {
                    Ok(Value::List(items)) => {
                        items.into_iter().map(|item| wanted(schema, &path, item)).collect::<Result<_>>()?
                    }
                    _ => written::items(value)?.into_iter().map(read).collect::<Result<_>>()?,
                };
                Test::In { path, wanted }
            }
            Word::Contains => {
                check_text(schema, &path, "contains", true)?;
                let wanted = part(schema, &path, text, word, value)?;
                Test::Contains { wanted: Wanted::of_text(wanted), path }
            }
            Word::StartsWith => {
                return Condition::starts_with(schema, field, part(schema, &path, text, word, value)?);
            }
            Word::IsNull => return Condition::is_null(schema, field),
            Word::IsNotNull => return Condition::is_not_null(schema, field),
        }))
    }

    /// Combines conditions in text: one after another they must all hold, `or` stands between alternatives,
    /// and parentheses that stand alone group them. `and` may be written, and binds more tightly than `or`.
    ///
    /// `parse` reads one condition; [`Condition::parse`] does.
    ///
    /// # Errors
    /// Those of `parse`; `InvalidArgument` (E0201) for a word where a condition should stand, and for a
    /// parenthesis without its other half.
    pub fn parse_words<E: From<Error>>(
        words: impl IntoIterator<Item = impl AsRef<str>>,
        mut parse: impl FnMut(&str) -> std::result::Result<Condition, E>,
    ) -> std::result::Result<Vec<Condition>, E> {
        let words: Vec<_> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let mut rest = words.as_slice();
        let found = alternatives(&mut rest, &mut parse, DEPTH_MAX)?;
        match rest.first() {
            Some(word) => Err(misplaced(word).into()),
            None => Ok(found.parts().to_vec()),
        }
    }

    /// The field in the text of a condition, before its sign or word; `None` for a text that is no condition.
    /// The field need not exist.
    #[must_use]
    pub fn field_of(text: &str) -> Option<&str> {
        split(text, None).map(|(field, ..)| field)
    }
}

/// Deepest nesting of parentheses.
const DEPTH_MAX: usize = 64;

fn alternatives<E: From<Error>>(
    rest: &mut &[&str],
    parse: &mut impl FnMut(&str) -> std::result::Result<Condition, E>,
    depth: usize,
) -> std::result::Result<Condition, E> {
    let mut found = vec![together(rest, parse, depth)?];
    while let Some(after) = rest.strip_prefix(&["or"]) {
        *rest = after;
        found.push(together(rest, parse, depth)?);
    }
    Ok(Condition::any(found))
}

fn together<E: From<Error>>(
    rest: &mut &[&str],
    parse: &mut impl FnMut(&str) -> std::result::Result<Condition, E>,
    depth: usize,
) -> std::result::Result<Condition, E> {
    let mut found = Vec::new();
    loop {
        let Some((word, after)) = rest.split_first() else {
            let message = "a condition is missing at the end";
            return Err(Error::invalid(message).with_hint("`or` and `and` stand between conditions").into());
        };
        *rest = after;
        match *word {
            "or" | "and" | ")" => return Err(misplaced(word).into()),
            "(" => {
                let depth = depth.checked_sub(1).ok_or_else(|| {
                    Error::invalid(format!("parentheses nest at most {DEPTH_MAX} deep"))
                        .with_hint("write it with fewer")
                })?;
                found.push(alternatives(rest, parse, depth)?);
                *rest = rest.strip_prefix(&[")"]).ok_or_else(|| {
                    Error::invalid("a parenthesis is open at the end")
                        .with_hint("close it with `)`, a word of its own")
                })?;
            }
            word => found.push(parse(word)?),
        }
        if let Some(after) = rest.strip_prefix(&["and"]) {
            *rest = after;
        } else if matches!(rest.first(), None | Some(&"or" | &")")) {
            return Ok(Condition::all(found));
        }
    }
}

fn misplaced(word: &str) -> Error {
    Error::invalid(format!("{word:?} stands where a condition should"))
        .with_hint("`or` and `and` stand between conditions; parentheses come in pairs")
}

/// Field, word and value of a condition in text. A value may contain any sign or word: of several readings
/// the one with the shortest field that exists counts, after one whose field is a column as it stands.
fn split<'t>(text: &'t str, schema: Option<&Schema>) -> Option<(&'t str, Word, &'t str)> {
    let sign = text.char_indices().find_map(|(at, _)| {
        let (sign, operator) = *SIGNS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
        Some((&text[..at], Word::Sign(sign, operator), &text[at + sign.len()..]))
    });
    let sign = sign.filter(|(field, ..)| !field.is_empty());
    if sign.is_some_and(|(field, ..)| schema.is_some_and(|schema| schema.kind(field).is_some())) {
        return sign;
    }
    let words = WORDS.iter().filter_map(|(name, word)| {
        let (field, value) = text.split_once(name)?;
        let takes_value = !matches!(word, Word::IsNull | Word::IsNotNull);
        (!field.is_empty() && (takes_value || value.is_empty())).then_some((field, *word, value))
    });
    let mut readings: Vec<_> = sign.into_iter().chain(words).collect();
    readings.sort_by_key(|(field, ..)| field.len());
    let exists =
        |(field, ..): &&(&str, Word, &str)| schema.is_some_and(|schema| Path::of(schema, field).is_ok());
    readings.iter().find(exists).or(readings.first()).copied()
}

/// Field and value without the blanks around the sign: `delay >= 60`.
fn trimmed<'t>(schema: &Schema, field: &'t str, value: &'t str) -> (&'t str, &'t str) {
    let short = field.trim_end();
    let is_spaced = short.len() < field.len() && schema.kind(field).is_none();
    if is_spaced { (short, value.trim_start()) } else { (field, value) }
}

/// A value in plain text, as the column's cells have it.
fn read(schema: &Schema, path: &Path, text: &str, word: Word, value: &str) -> Result<Wanted> {
    let kind = kind_at(schema, path);
    let quoted = written::unquoted(value).filter(|_| written::may_be_quoted(kind));
    let value = match quoted {
        Some(quoted) if !is_typed(schema, path) => {
            return Ok(Wanted::Untyped(vec![Element::Text(quoted.to_owned())]));
        }
        Some(quoted) => quoted,
        None if written::may_be_quoted(kind) => {
            written::check(schema, path, text, word, value)?;
            value
        }
        None => value,
    };
    if !is_typed(schema, path) {
        let is_order = matches!(word, Word::Sign(_, operator) if !matches!(operator, Operator::Equal | Operator::NotEqual));
        return Ok(if is_order { Wanted::of_text_in_order(value) } else { Wanted::of_text(value) });
    }
    key_element(kind, value).map(Wanted::Typed).ok_or_else(|| refused(schema, path, text, value))
}

/// A part of a text, which `contains` and `starts with` look for.
fn part<'t>(schema: &Schema, path: &Path, text: &str, word: Word, value: &'t str) -> Result<&'t str> {
    if let Some(quoted) = written::unquoted(value) {
        return Ok(quoted);
    }
    written::check(schema, path, text, word, value).map(|()| value)
}

fn from_json(schema: &Schema, path: &Path, text: &str) -> Option<Wanted> {
    wanted(schema, path, json::parse(text).ok()?).ok()
}

fn refused(schema: &Schema, path: &Path, text: &str, value: &str) -> Error {
    let (field, kind) = (path.text(), kind_at(schema, path));
    Error::invalid(format!("{text}: the field {field} is of type {kind}, and {value:?} is not"))
        .with_hint(format!("{}; '{field} is null' finds documents without it", example(kind)))
}

/// An example of a value of a type.
pub(super) fn example(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Int => "an int is written -5 or 60, and an enum stored by number as its number",
        ColumnType::Float => "a float is written -0.5 or 1e9",
        ColumnType::Bool => "a bool is true or false",
        ColumnType::Time => "a time is written 2013-01-01T10:00:00Z, and a date 2013-01-01",
        ColumnType::Text | ColumnType::Any | ColumnType::Unknown => "write JSON after :=",
    }
}
