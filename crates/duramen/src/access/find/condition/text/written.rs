//! Values as people write them in conditions: quoted or not, in lists or not; and likely mistakes.
//!
//! A text column takes almost any value, so a mistake would find nothing, or something else, in silence.

use super::{Word, split};
use crate::access::find::path::Path;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};

/// The text between quotes of one kind, if the value is quoted.
pub(super) fn unquoted(value: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
}

/// Whether quotes around a value are not part of it: in a column of numbers they are a mistake.
pub(super) fn may_be_quoted(kind: ColumnType) -> bool {
    matches!(kind, ColumnType::Text | ColumnType::Any | ColumnType::Unknown | ColumnType::Time)
}

/// The items of a list such as `UA,AA`, `UA, AA` or `(UA, AA)`.
///
/// # Errors
/// `InvalidArgument` (E0201) for an item that begins or ends with a quote, and not both: it has a comma.
pub(super) fn items(value: &str) -> Result<Vec<&str>> {
    let value = value.trim();
    let inner = value.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(value);
    let item = |item: &'_ str| {
        let is_open = ['"', '\''].into_iter().any(|quote| item.starts_with(quote) != item.ends_with(quote));
        is_open.then_some(()).map_or(Ok(()), |()| {
            let message = format!("{item} is half of a quoted value");
            Err(Error::invalid(message)
                .with_hint("write a list with commas in its values as JSON: in [\"a,b\",\"c\"]"))
        })
    };
    inner.split(',').map(str::trim).map(|text| item(text).map(|()| text)).collect()
}

/// Refuses a value without quotes that is probably meant otherwise.
///
/// # Errors
/// `InvalidArgument` (E0201) for the word for null, and for a value that goes on with another condition.
pub(super) fn check(schema: &Schema, path: &Path, text: &str, word: Word, value: &str) -> Result<()> {
    let field = path.text();
    let is_null = value.eq_ignore_ascii_case("null") || schema.null().is_some_and(|null| null == value);
    if is_null && !value.is_empty() && matches!(word, Word::Sign(..)) && path.is_column() {
        let message = format!("{text}: {value} stands for null, which is no text");
        let hint =
            format!("write '{field} is null' or '{field} is not null'; '{field}=\"{value}\"' is the text");
        return Err(Error::invalid(message).with_hint(hint));
    }
    let next = [" and ", " or ", ","].into_iter().find_map(|between| {
        value.match_indices(between).find_map(|(at, _)| {
            let next = value[at + between.len()..].trim_start();
            let (field, ..) = split(next, Some(schema))?;
            Path::of(schema, field).is_ok().then_some(next)
        })
    });
    next.map_or(Ok(()), |next| {
        let message = format!("{text}: the value seems to go on with another condition, {next}");
        let hint =
            format!("quote each condition by itself; a value with such words is written {field}=\"...\"");
        Err(Error::invalid(message).with_hint(hint))
    })
}
