//! Warnings of columns of text that hold numbers, where a query compares their values.
//!
//! Text is ordered character by character. The answer is right for text, and probably wrong for the question.

use std::collections::BTreeSet;

use duramen::find::OrderBy;
use duramen::schema::ColumnType;
use duramen::{Schema, Value, cell, json};
use duramen_proto::v1;

use super::groups;
use crate::args::FindArgs;
use crate::backend::Reading;
use crate::failure::{Failure, Result};
use crate::import::{is_null_word, is_number_to_a_person, null_flag, type_flag};
use crate::output::{Output, shell_word};
use duramen::find::Condition;

/// The first documents, and as many of the last, tell whether a column of text holds numbers.
const SAMPLE_MAX: u64 = 500;

/// Of more different words none stands for null.
const WORDS_MAX: usize = 4;

/// What is doubtful about a query, such as a comparison of numbers as texts.
pub(super) struct Warning {
    pub(super) message: String,
    hint: String,
}

impl Warning {
    pub(super) fn new(message: String, hint: String) -> Warning {
        Warning { message, hint }
    }

    /// The warning about a condition in text, if it needs one. With JSON, as in `n:="5"`, the text is meant.
    pub(super) fn of(db: &Reading, schema: &Schema, text: &str) -> Result<Option<Warning>> {
        let Some(Comparison { field, is_order, value, .. }) = Comparison::of(text) else { return Ok(None) };
        let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
        if !is_number || schema.kind(field) != Some(ColumnType::Text) {
            return Ok(None);
        }
        let how = match is_order {
            false => format!("{value} and {value}.0 are different texts"),
            true => "as text 10 comes before 9".to_owned(),
        };
        Ok(Some(Warning {
            message: format!("the column {field} is text, and {text} compares text: {how}"),
            hint: Held::of(db, schema, field)?.hint(schema, field, "compare"),
        }))
    }

    /// The warning about a condition on values of any type, with a number, if some documents have numbers as
    /// text there.
    pub(super) fn of_any_type(db: &Reading, stored: &Schema, text: &str) -> Result<Option<Warning>> {
        let Some(Comparison { field, sign, is_order, value }) = Comparison::of(text) else { return Ok(None) };
        let is_number = matches!(json::parse(value), Ok(Value::Int(_) | Value::Float(_)));
        let column = if stored.kind(field).is_some() { Some(field) } else { field.split(['.', '[']).next() };
        if !is_number || column.and_then(|column| stored.kind(column)) != Some(ColumnType::Any) {
            return Ok(None);
        }
        // A path that cannot be read is an error of the query itself.
        let Ok(sample) = db.sample(&values(stored, field, false)) else { return Ok(None) };
        for document in &sample.documents {
            if let Some(found) = document.get(field).and_then(text_of_number) {
                let how = match is_order {
                    true => format!("{text} compares numbers only"),
                    false => format!("{text} finds the number, and the text {value} as it is written"),
                };
                let message = format!("{field} is the text {found:?} in some documents: {how}");
                let texts = shell_word(&format!("{field}{sign}\"{value}\""));
                return Ok(Some(Warning::new(
                    message,
                    format!("{texts} compares texts, where 10 comes before 9"),
                )));
            }
        }
        Ok(None)
    }

    /// The warnings about the flags that compare the values of a field: one for each column of text in which
    /// two numbers are in another order than as text.
    pub(super) fn of_flags(
        db: &Reading,
        stored: &Schema,
        fields: &Schema,
        args: &FindArgs,
    ) -> Result<Vec<Warning>> {
        let mut compared: Vec<(String, Vec<String>)> = Vec::new();
        for (field, flag) in comparisons(args)? {
            // What is joined has other documents.
            let is_text = |schema: &Schema| schema.kind(&field) == Some(ColumnType::Text);
            if !is_text(stored) || !is_text(fields) {
                continue;
            }
            match compared.iter_mut().find(|(known, _)| *known == field) {
                Some((_, flags)) => flags.push(flag),
                None => compared.push((field, vec![flag])),
            }
        }
        let mut warnings = Vec::new();
        for (field, flags) in compared {
            let held = Held::of(db, stored, &field)?;
            let Some((less, more)) = held.disorder() else { continue };
            let verb = if flags.len() == 1 { "compares" } else { "compare" };
            let flags = flags.join(" and ");
            warnings.push(Warning {
                message: format!(
                    "the column {field} is text, and {flags} {verb} text: as text {more} comes before {less}"
                ),
                hint: held.hint(stored, &field, "compare"),
            });
        }
        Ok(warnings)
    }

    pub(super) fn say(&self, out: Output) {
        out.warning(&self.message, &self.hint);
    }
}

/// The values of a field in the first documents, or in the last.
fn values(stored: &Schema, field: &str, is_reverse: bool) -> v1::Find {
    v1::Find {
        collection: stored.name().to_owned(),
        fields: vec![field.to_owned()],
        reverse: is_reverse,
        limit: Some(SAMPLE_MAX),
        ..v1::Find::default()
    }
}

/// A condition with one of the signs for values.
struct Comparison<'t> {
    field: &'t str,
    sign: &'static str,
    is_order: bool,
    value: &'t str,
}

impl Comparison<'_> {
    fn of(text: &str) -> Option<Comparison<'_>> {
        let field = Condition::field_of(text)?;
        let rest = text.strip_prefix(field)?;
        let (sign, value) = ["!=", "<>", "<=", ">=", "==", "=", "<", ">"]
            .into_iter()
            .find_map(|sign| Some((sign, rest.strip_prefix(sign)?)))?;
        let is_order = !matches!(sign, "!=" | "<>" | "==" | "=");
        Some(Comparison { field: field.trim_end(), sign, is_order, value: value.trim() })
    }
}

/// A text that is a number, or the first such item of a list.
fn text_of_number(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => text.parse::<f64>().is_ok_and(f64::is_finite).then(|| text.clone()),
        Value::List(items) => items.iter().find_map(text_of_number),
        _ => None,
    }
}

/// The fields whose values the flags compare, each with its flag as it was written.
fn comparisons(args: &FindArgs) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for text in args.order_by.iter().flatten() {
        let order = OrderBy::parse(text).map_err(|error| Failure::usage(error.message(), error.hint()))?;
        // The other results of groups are aggregates.
        let is_field =
            !groups::are_wanted(args) || args.group_by.iter().flatten().any(|name| name == order.field());
        if is_field {
            found.push((order.field().to_owned(), format!("--order-by {text}")));
        }
    }
    for (flag, fields) in [("--min", &args.aggregates.min), ("--max", &args.aggregates.max)] {
        found.extend(fields.iter().flatten().map(|field| (field.clone(), format!("{flag} {field}"))));
    }
    for text in args.aggregates.quantile.iter().flatten() {
        found.push((groups::quantile(text)?.0, format!("--quantile {text}")));
    }
    Ok(found)
}

/// Refuses sums of a column of text. The hint tells how its numbers are stored as numbers.
pub(super) fn check_sum(db: &Reading, stored: &Schema, flag: &str, field: &str) -> Result<()> {
    if stored.kind(field) != Some(ColumnType::Text) {
        return Ok(());
    }
    let held = Held::of(db, stored, field)?;
    let hint = match held.has_numbers() {
        true => held.hint(stored, field, "sum"),
        false => format!("{field} holds no numbers; --distinct, --min and --max take it"),
    };
    Err(Failure::usage(format!("{flag} {field}: the column {field} is text, which has no sum"), hint))
}

/// What some values of a column of text are.
#[derive(Default)]
struct Held {
    /// The numbers, each with its text.
    numbers: Vec<(f64, String)>,
    kind: ColumnType,
    /// How many values are numbers in another form than the plain one, and the first of them.
    shaped_count: usize,
    shaped: Option<String>,
    other_count: usize,
    /// The first different values that are no numbers.
    words: BTreeSet<String>,
}

impl Held {
    fn of(db: &Reading, stored: &Schema, field: &str) -> Result<Held> {
        let mut held = Held::default();
        for is_reverse in [false, true] {
            // Without them no number is found, and nothing else is wrong.
            let Ok(sample) = db.sample(&values(stored, field, is_reverse)) else { continue };
            for document in &sample.documents {
                if let Some(Value::Text(text)) = document.get(field) {
                    held.add(text);
                }
            }
        }
        Ok(held)
    }

    fn add(&mut self, text: &str) {
        let kind = cell::infer(text.as_bytes());
        match text.parse::<f64>() {
            Ok(number) if kind != ColumnType::Text => {
                self.kind = cell::widen(self.kind, kind);
                self.numbers.push((number, text.to_owned()));
            }
            _ if is_number_to_a_person(text) => {
                self.shaped_count += 1;
                self.shaped.get_or_insert_with(|| text.to_owned());
            }
            _ => {
                self.other_count += 1;
                if self.words.len() < WORDS_MAX {
                    self.words.insert(text.to_owned());
                }
            }
        }
    }

    /// Whether all words usually stand for null.
    fn has_null_words(&self) -> bool {
        self.words.len() < WORDS_MAX && self.words.iter().all(|word| is_null_word(word))
    }

    /// Whether the column is one of numbers, as an import decides it.
    fn has_numbers(&self) -> bool {
        let count = self.numbers.len() + self.shaped_count;
        count > 0 && (count >= self.other_count || self.has_null_words())
    }

    /// The texts of two numbers of which the smaller one comes second as text.
    fn disorder(&self) -> Option<(String, String)> {
        if !self.has_numbers() {
            return None;
        }
        let mut numbers = self.numbers.clone();
        numbers.sort_by(|(one, text), (other, next)| one.total_cmp(other).then_with(|| text.cmp(next)));
        let pair = numbers.windows(2).find(|pair| pair[0].1 > pair[1].1)?;
        Some((pair[0].1.clone(), pair[1].1.clone()))
    }

    /// How the values are compared, or summed, as numbers.
    fn hint(&self, schema: &Schema, field: &str, what: &str) -> String {
        if schema.is_typed() {
            return format!("to {what} numbers, give the field {field} a type of numbers in the program");
        }
        let kind = if self.kind == ColumnType::Unknown { ColumnType::Int } else { self.kind };
        let correct = match &self.shaped {
            Some(text) => {
                format!("write {text:?} and the like in the input in plain form, such as 5 or -0.5, and ")
            }
            None => String::new(),
        };
        let again = format!(
            "to {what} numbers, {correct}import again into a new collection with {}",
            type_flag(field, kind)
        );
        if self.numbers.is_empty() || !self.has_null_words() {
            return format!("{again}, and --null for each word that stands for null");
        }
        let known = schema.null().map(ToOwned::to_owned);
        let nulls: BTreeSet<String> = self.words.iter().cloned().chain(known).collect();
        nulls.iter().fold(again, |again, word| format!("{again} {}", null_flag(word)))
    }
}
