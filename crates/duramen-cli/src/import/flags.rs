//! Flags of `duramen import` that hold lists.

use duramen::schema::ColumnType;

use super::findings::type_flag;
use super::inference::{is_null_word, null_flag};
use crate::args::ImportArgs;
use crate::failure::{Failure, Result};
use crate::keys;
use crate::output::{Output, shell_word};

/// The columns of a list: the cells of CSV records, so that a name may hold a comma.
pub(super) fn listed_columns(flag: &str, texts: &[String]) -> Result<Vec<String>> {
    let records = texts.iter().map(|text| keys::record(flag, text)).collect::<Result<Vec<_>>>()?;
    let columns: Vec<String> = records.into_iter().flatten().collect();
    if columns.iter().any(String::is_empty) {
        return Err(Failure::usage(format!("{flag}: a column has a name"), "leave the empty one out"));
    }
    named_once(flag, &columns)?;
    Ok(columns)
}

/// `--null` is one word, unlike the lists of the other flags.
pub(super) fn warn_of_null_lists(words: &[String], out: Output) {
    let is_null = |word: &&str| !word.is_empty() && is_null_word(word);
    for word in words.iter().filter(|word| word.contains(',') && word.split(',').any(|part| is_null(&part))) {
        let flags: Vec<String> = word.split(',').map(null_flag).collect();
        out.warning(
            &format!("--null takes one word, and {word:?} has a comma: only the cell {word:?} is null"),
            &format!("repeat the flag: {}", flags.join(" ")),
        );
    }
}

/// A cell of CSV in a column of type any is a text, also if it is written like a number.
pub(super) fn warn_of_any_in_csv(types: &[(String, ColumnType)], out: Output) {
    for (column, _) in types.iter().filter(|(_, kind)| *kind == ColumnType::Any) {
        out.warning(
            &format!(
                "{}: the values of CSV have no types, so each is stored as text",
                type_flag(column, ColumnType::Any)
            ),
            &format!(
                "{} with --null for each word stores numbers; NDJSON keeps values of several types",
                type_flag(column, ColumnType::Float)
            ),
        );
    }
}

/// JSON and Parquet have a null of their own.
pub(super) fn warn_of_null_without_csv(words: &[String], out: Output) {
    if let Some(word) = words.first() {
        out.warning(
            &format!("{} is for CSV: the values of this input stay as they are", null_flag(word)),
            "leave it out; the collection keeps the word for exports to CSV",
        );
    }
}

/// The command that drops the collection of an import.
pub(super) fn drop_command(args: &ImportArgs) -> String {
    format!("`duramen drop {} -c {} --yes`", args.database.words(), shell_word(&args.collection))
}

/// Refuses a list that names a column twice.
fn named_once(flag: &str, columns: &[String]) -> Result<()> {
    match (1..columns.len()).find(|&at| columns[..at].contains(&columns[at])) {
        Some(at) => Err(Failure::usage(
            format!("{flag} names the column {} twice", columns[at]),
            "name each column once",
        )),
        None => Ok(()),
    }
}

pub(super) fn parse_types(texts: &[String]) -> Result<Vec<(String, ColumnType)>> {
    let types = texts.iter().map(|text| keys::record("--type", text)).collect::<Result<Vec<_>>>()?;
    let types = types.iter().flatten().map(|text| parse_type(text)).collect::<Result<Vec<_>>>()?;
    named_once("--type", &types.iter().map(|(column, _)| column.clone()).collect::<Vec<_>>())?;
    Ok(types)
}

fn parse_type(text: &str) -> Result<(String, ColumnType)> {
    let names = || ColumnType::NAMED.map(ColumnType::name).join(", ");
    let Some((column, kind)) = text.rsplit_once('=') else {
        return Err(Failure::usage(format!("--type {text:?} names no type"), "write --type COLUMN=TYPE"));
    };
    match ColumnType::NAMED.into_iter().find(|known| known.name() == kind) {
        Some(kind) => Ok((column.to_owned(), kind)),
        None => {
            Err(Failure::usage(format!("--type: {kind:?} is no type"), format!("the types are {}", names())))
        }
    }
}
