//! What the inference of types found that the user should know: columns that a few values made text, and
//! columns without a value.
//!
//! Owns the words of these warnings, and their form in the summary under `--json`.

use duramen::schema::ColumnType;
use duramen::{Code, Document, Value, doc};

use super::description::RowDescription;
use super::inference::null_flag;
use crate::columns::ColumnChange;
use crate::failure::Failure;
use crate::names::list_item;
use crate::numbers::grouped;
use crate::output::shell_word;
use crate::progress::Progress;

const CHARS_MAX: usize = 60;

const MISSPELT: &str = "if it is a mistake, correct the input and import it with --replace; the column stays";

/// Everything that was found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) fallbacks: Vec<Fallback>,
    /// Columns without a value, with the types that they get.
    pub(super) empty: Vec<(String, ColumnType)>,
    /// Columns of texts that are all times.
    pub(super) times: Vec<String>,
    /// Columns of numbers that are stored as text, since the words for null were not known at first.
    pub(super) text_before: Vec<String>,
    /// What the input adds to the columns of the collection, and what it leaves out.
    pub(super) change: ColumnChange,
    /// The inspected rows, if more may follow.
    pub(super) rows_of_sample: Option<usize>,
}

/// A column with a wider type than most of its values have.
#[derive(Debug)]
pub(super) struct Fallback {
    pub(super) column: String,
    pub(super) kind: ColumnType,
    /// The type of the other values.
    pub(super) instead_of: ColumnType,
    /// The first value that is not of that type, and its line.
    pub(super) line: u64,
    pub(super) value: Value,
    /// Why it is not, if that is not obvious: the rest of a sentence.
    pub(super) problem: &'static str,
    /// How many values are not of that type, and how many there are.
    pub(super) count: u64,
    pub(super) values: u64,
    /// What the user can do about it, without the flag that accepts the type.
    pub(super) remedy: String,
    /// The words that `--null` reads as null, if that is the way.
    pub(super) null_words: Vec<String>,
}

impl Findings {
    /// Prints the findings.
    pub(super) fn say(&self, progress: &Progress, description: &RowDescription) {
        for fallback in &self.fallbacks {
            progress.warning(&self.message(fallback), &fallback.hint());
        }
        for column in &self.text_before {
            let message = format!("the column {column} stays text, and has only numbers besides null");
            let keeps = type_flag(column, ColumnType::Text);
            let drop = description.drop_and_again();
            progress
                .warning(&message, &format!("{drop}; {keeps} keeps the column text without this warning"));
        }
        self.say_columns(progress);
        if self.empty.is_empty() {
            return;
        }
        let becomes = |(column, kind): &(String, ColumnType)| match kind {
            ColumnType::Int => format!("{column} (int: it is summed)"),
            ColumnType::Text => format!("{column} (text from now on)"),
            _ => format!("{column} (the first value decides its type)"),
        };
        let columns: Vec<String> = self.empty.iter().map(becomes).collect();
        let rows = match self.rows_of_sample {
            Some(rows) => format!("in the first {} rows", grouped(rows as u64)),
            None => "in any row".to_owned(),
        };
        let columns = columns.join(", ");
        progress.note(&format!("without a value {rows}: {columns}; --type COLUMN=TYPE settles a type"));
    }

    /// How the columns get other types that a few values made text.
    pub(super) fn how_again(&self, drop_command: &str) -> Option<String> {
        let names: Vec<&str> = self.fallbacks.iter().map(|fallback| fallback.column.as_str()).collect();
        let first = names.first()?;
        let mut words: Vec<&String> = Vec::new();
        for word in self.fallbacks.iter().flat_map(|fallback| &fallback.null_words) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let flags: Vec<String> = words.into_iter().map(|word| null_flag(word)).collect();
        let import = match flags.as_slice() {
            [] => "an import of the corrected input".to_owned(),
            flags => format!("the same import with {}", flags.join(" ")),
        };
        let columns =
            if names.len() == 1 { format!("the type of {first}") } else { "these types".to_owned() };
        Some(format!("to change {columns}: {drop_command}, then {import}"))
    }

    /// A refusal of rows that are stored already, if a column of them stays text: to replace them changes no
    /// type.
    pub(super) fn beside_text(&self, failure: Failure, description: &RowDescription) -> Failure {
        match &failure {
            Failure::Said(said) if said.code == Code::AlreadyExists && !self.text_before.is_empty() => {
                failure.hinted(description.drop_and_again())
            }
            _ => failure,
        }
    }

    /// Prints what the columns are besides their types.
    fn say_columns(&self, progress: &Progress) {
        for message in self.change.warnings() {
            progress.warning(&message, MISSPELT);
        }
        let change = self.change.note_of_new().into_iter().chain(self.change.note_of_missing());
        change.for_each(|note| progress.note(&note));
        if !self.times.is_empty() {
            let flags = self.times.iter().map(|column| type_flag(column, ColumnType::Time));
            let (columns, flags) = (self.times.join(", "), flags.collect::<Vec<_>>().join(" "));
            progress.note(&format!("text that looks like times: {columns}; to store times: {flags}"));
        }
    }

    fn message(&self, fallback: &Fallback) -> String {
        let Fallback { column, kind, instead_of, count, values, .. } = fallback;
        let (count, values) = (grouped(*count), grouped(*values));
        let sample = match self.rows_of_sample {
            Some(rows) => format!(", in the first {} rows", grouped(rows as u64)),
            None => String::new(),
        };
        let cause = fallback.cause();
        if *instead_of == ColumnType::Unknown {
            let words = "has only words that usually stand for null";
            return format!("the column {column} is {kind}, and {words}: {cause} ({values} values{sample})");
        }
        format!(
            "the column {column} is {kind}, not {instead_of}: {cause} ({count} of {values} values{sample})"
        )
    }

    /// Adds to a refusal of sums the value because of which a summed column holds no integers.
    pub(super) fn explain(&self, failure: Failure, description: &RowDescription) -> Failure {
        match self.fallbacks.iter().find(|fallback| description.sums(&fallback.column)) {
            Some(fallback) => failure.and(&format!(": {}", fallback.cause())).hinted(fallback.remedy.clone()),
            None => failure,
        }
    }

    /// Adds the findings to the summary.
    pub(super) fn write(&self, summary: &mut Document) {
        let fallback = |fallback: &Fallback| {
            Value::from(doc! {
                "column": fallback.column.as_str(), "type": fallback.kind.name(),
                "instead_of": fallback.instead_of.name(), "line": fallback.line,
                "value": fallback.value.clone(), "count": fallback.count, "values": fallback.values,
                "hint": fallback.hint(),
            })
        };
        let empty = |(column, kind): &(String, ColumnType)| {
            Value::from(doc! { "column": column.as_str(), "type": kind.name() })
        };
        let names =
            |columns: &[String]| columns.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>();
        summary.set("time_columns", names(&self.times));
        summary.set("text_before", names(&self.text_before));
        self.change.write(summary);
        summary.set("fallbacks", self.fallbacks.iter().map(fallback).collect::<Vec<_>>());
        summary.set("empty_columns", self.empty.iter().map(empty).collect::<Vec<_>>());
    }
}

impl Fallback {
    fn cause(&self) -> String {
        let value = match &self.value {
            Value::Text(text) => format!("{:?}", shortened(text)),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => format!("{value:?}"),
            Value::Bool(value) => value.to_string(),
            nested => nested.kind().to_owned(),
        };
        format!("line {} holds {value}{}", self.line, self.problem)
    }

    fn hint(&self) -> String {
        let flag = type_flag(&self.column, self.kind);
        let keeps = match self.kind {
            ColumnType::Text => "keeps the column text",
            _ => "keeps values of all types",
        };
        format!("{}; {flag} {keeps} without this warning", self.remedy)
    }
}

/// The flag that gives a column its type.
pub(crate) fn type_flag(column: &str, kind: ColumnType) -> String {
    format!("--type {}", shell_word(&format!("{}={kind}", list_item(column))))
}

/// The first characters of a text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
