//! The types of the columns of CSV, inferred from cells, and the few cells that decide against most others.
//!
//! Integers widen to floats, and a column with anything else is text. Never reads the input itself.

use csv::ByteRecord;
use duramen::cell;
use duramen::schema::ColumnType;
use duramen::{Schema, Value};

use super::description::RowDescription;
use super::findings::{Fallback, Findings, shortened, type_flag};
use super::shapes::{Shape, is_time};
use crate::failure::{Failure, Result};
use crate::output::shell_word;

/// Different words of a column that are kept: of more, none stands for null.
const WORDS_MAX: usize = 4;

/// Longer integers may be none that a float holds.
const EXACT_DIGITS_MAX: usize = 15;

/// Words that usually stand for null.
const NULL_WORDS: [&str; 14] =
    ["", "na", "n/a", "#n/a", "null", "none", "nil", "nan", "missing", "-", "--", ".", "?", "\\n"];

/// What is known about each column so far.
pub(super) struct Inference {
    columns: Vec<Inferred>,
    null_markers: Vec<Vec<u8>>,
    row_count: u64,
    /// Whether a cell was null.
    has_nulls: bool,
}

struct Inferred {
    name: String,
    given: Option<ColumnType>,
    /// The type of the numbers.
    number_kind: ColumnType,
    number_count: u64,
    other_count: u64,
    first_other: Option<Misfit>,
    /// The first cell that is NaN or infinite.
    first_non_finite: Option<Misfit>,
    has_words: bool,
    /// The first different cells that are no numbers.
    words: Vec<String>,
    /// Cells that are numbers in another form.
    shaped_count: u64,
    first_shaped: Option<(Misfit, Shape)>,
    /// Cells that are times, as long as all are.
    time_count: u64,
    /// The cells of a column that is stored as text, if `--null` may show that it holds numbers.
    text_before: Option<Before>,
    /// Integers that no float holds.
    inexact_count: u64,
    first_inexact: Option<Misfit>,
}

#[derive(Default)]
struct Before {
    numbers: u64,
    nulls: u64,
    others: u64,
}

struct Misfit {
    line: u64,
    cell: String,
}

impl Misfit {
    fn new(line: u64, cell: &[u8]) -> Misfit {
        Misfit { line, cell: String::from_utf8_lossy(cell).into_owned() }
    }
}

impl Inference {
    pub(super) fn new(description: &RowDescription, header: &[String], null_markers: &[String]) -> Inference {
        Inference {
            columns: header.iter().map(|name| Inferred::new(name, description)).collect(),
            null_markers: null_markers.iter().map(|marker| marker.as_bytes().to_vec()).collect(),
            row_count: 0,
            has_nulls: false,
        }
    }

    /// Whether nothing is left to infer.
    pub(super) fn is_settled(&self) -> bool {
        self.columns.iter().all(|column| column.given.is_some())
    }

    /// Whether the rows tell anything of columns whose types are settled.
    pub(super) fn checks_settled(&self) -> bool {
        self.columns.iter().any(|column| column.text_before.is_some())
    }

    /// Adds a row that begins on this line.
    pub(super) fn look(&mut self, record: &ByteRecord, line: u64) {
        self.row_count += 1;
        for (column, cell) in self.columns.iter_mut().zip(record) {
            let is_null = || self.null_markers.iter().any(|marker| marker == cell);
            if let Some(before) = &mut column.text_before {
                before.look(cell, is_null());
            }
            if column.given.is_some() || column.takes(cell, line) {
                continue;
            }
            if is_null() {
                self.has_nulls = true;
            } else {
                column.widen(cell, line);
            }
        }
    }

    /// The columns with their types.
    ///
    /// A column without a value is an integer if it is summed; otherwise its first later value decides. If
    /// more rows may follow it is text, which accepts every value.
    pub(super) fn columns(&self, description: &RowDescription, may_go_on: bool) -> Vec<(String, ColumnType)> {
        let columns = self.columns.iter().map(|column| {
            let kind = match column.kind() {
                ColumnType::Unknown if description.sums(&column.name) => ColumnType::Int,
                ColumnType::Unknown if may_go_on => ColumnType::Text,
                known => known,
            };
            (column.name.clone(), kind)
        });
        columns.collect()
    }

    /// What the user should know about the columns.
    pub(super) fn findings(&self, description: &RowDescription, may_go_on: bool) -> Findings {
        let null_flags = self.null_flags(description);
        let fallbacks = self.columns.iter().filter_map(|column| column.fallback(&null_flags)).collect();
        let is_empty = |column: &Inferred| {
            self.row_count > 0 && column.kind() == ColumnType::Unknown && !description.is_key(&column.name)
        };
        let kinds = self.columns(description, may_go_on);
        let empty = self.columns.iter().zip(kinds).filter(|(column, _)| is_empty(column));
        let rows_of_sample = may_go_on.then(|| usize::try_from(self.row_count).unwrap_or(usize::MAX));
        let named = |is_named: fn(&Inferred) -> bool| {
            let columns = self.columns.iter().filter(|column| is_named(column));
            columns.map(|column| column.name.clone()).collect()
        };
        Findings {
            fallbacks,
            empty: empty.map(|(_, kind)| kind).collect(),
            times: named(Inferred::has_only_times),
            text_before: named(|column| column.text_before.as_ref().is_some_and(Before::has_only_numbers)),
            change: description.change(self.columns.iter().map(|column| column.name.as_str())),
            rows_of_sample,
        }
    }

    /// Refuses a column of numbers that are not all finite.
    ///
    /// # Errors
    /// The first such cell of the first such column.
    pub(super) fn check_finite(&self, description: &RowDescription) -> Result<()> {
        let is_numeric =
            |column: &&Inferred| column.given.is_none() && column.number_count > 0 && !column.has_words;
        for column in self.columns.iter().filter(is_numeric) {
            let Some(Misfit { line, cell }) = &column.first_non_finite else { continue };
            let name = &column.name;
            return Err(Failure::data(
                format!("line {line}, column {name}: holds {cell:?}, and a float has to be finite"),
                format!(
                    "{}; {} keeps the column text",
                    remedy(&column.words, &self.null_flags(description)),
                    type_flag(name, ColumnType::Text)
                ),
            ));
        }
        Ok(())
    }

    /// The flags for the words that are null already, before and after those for others. The first marker is
    /// the one that is stored.
    fn null_flags(&self, description: &RowDescription) -> (Vec<String>, Vec<String>) {
        let markers = self.null_markers.iter().map(|marker| String::from_utf8_lossy(marker).into_owned());
        let is_default =
            description.null.is_empty() && description.stored.as_ref().and_then(Schema::null).is_none();
        match is_default {
            false => (markers.collect(), Vec::new()),
            true if self.has_nulls => (Vec::new(), markers.collect()),
            true => Default::default(),
        }
    }
}

impl Inferred {
    fn new(name: &str, description: &RowDescription) -> Inferred {
        Inferred {
            name: name.to_owned(),
            given: description.given(name),
            shaped_count: 0,
            first_shaped: None,
            time_count: 0,
            text_before: description.is_text_before(name).then(Before::default),
            number_kind: ColumnType::Unknown,
            number_count: 0,
            other_count: 0,
            first_other: None,
            first_non_finite: None,
            has_words: false,
            words: Vec::new(),
            inexact_count: 0,
            first_inexact: None,
        }
    }

    /// Counts a cell of the type that the numbers have. Returns whether it is one.
    fn takes(&mut self, cell: &[u8], line: u64) -> bool {
        let is_number = match self.number_kind {
            ColumnType::Unknown => false,
            kind => cell::fits(kind, cell),
        };
        self.number_count += u64::from(is_number);
        if is_number && cell.len() > EXACT_DIGITS_MAX {
            self.check_exact(cell, line);
        }
        is_number
    }

    /// Counts a cell of another type.
    #[inline(never)]
    fn widen(&mut self, cell: &[u8], line: u64) {
        let kind = cell::infer(cell);
        if kind == ColumnType::Text {
            self.time_count += u64::from(self.time_count == self.other_count && is_time(cell));
            self.other_count += 1;
            if let Some(shape) = Shape::of(cell) {
                self.shaped_count += 1;
                self.first_shaped.get_or_insert_with(|| (Misfit::new(line, cell), shape));
            }
            if !self.has_words {
                match is_non_finite(cell) {
                    true => drop(self.first_non_finite.get_or_insert_with(|| Misfit::new(line, cell))),
                    false => self.has_words = true,
                }
            }
            if self.words.len() < WORDS_MAX && !self.words.iter().any(|word| word.as_bytes() == cell) {
                self.words.push(String::from_utf8_lossy(cell).into_owned());
                self.first_other.get_or_insert_with(|| Misfit::new(line, cell));
            }
            return;
        }
        self.number_count += 1;
        self.number_kind = cell::widen(self.number_kind, kind);
        self.check_exact(cell, line);
    }

    fn check_exact(&mut self, cell: &[u8], line: u64) {
        if !cell::fits(ColumnType::Float, cell) {
            self.inexact_count += 1;
            self.first_inexact.get_or_insert_with(|| Misfit::new(line, cell));
        }
    }

    /// Whether floats and an integer that no float holds are in the column.
    fn is_inexact(&self) -> bool {
        self.number_kind == ColumnType::Float && self.inexact_count > 0
    }

    fn kind(&self) -> ColumnType {
        match self.given {
            Some(given) => given,
            None if self.other_count > 0 || self.is_inexact() => ColumnType::Text,
            None => self.number_kind,
        }
    }

    fn has_only_times(&self) -> bool {
        self.given.is_none()
            && self.number_count == 0
            && self.time_count > 0
            && self.time_count == self.other_count
    }

    /// Whether all that is no number, perhaps every value, probably stands for null.
    fn has_only_null_words_besides(&self) -> bool {
        self.words.len() < WORDS_MAX && self.words.iter().all(|word| is_null_word(word))
    }

    /// The report of a column that is text although its values are probably numbers: at least half of them
    /// are, in plain form or in another one, or all others are words for null. With no number at all a column
    /// of such words is reported, too: it has no value.
    fn fallback(&self, null_flags: &(Vec<String>, Vec<String>)) -> Option<Fallback> {
        if self.given.is_some() || self.kind() != ColumnType::Text {
            return None;
        }
        let are_most_numbers = self.number_count + self.shaped_count >= self.other_count - self.shaped_count;
        if !are_most_numbers && !self.has_only_null_words_besides() {
            return None;
        }
        let fallback = |misfit: &Misfit, problem, count, remedy: String| Fallback {
            column: self.name.clone(),
            kind: ColumnType::Text,
            instead_of: self.number_kind,
            line: misfit.line,
            value: Value::Text(shortened(&misfit.cell)),
            problem,
            count,
            values: self.number_count + self.other_count,
            remedy,
            null_words: Vec::new(),
        };
        if let Some((first, shape)) = &self.first_shaped
            && self.shaped_count >= self.other_count - self.shaped_count
        {
            let report = fallback(first, shape.problem(), self.other_count, shape.remedy().to_owned());
            return Some(Fallback { instead_of: cell::widen(self.number_kind, shape.kind()), ..report });
        }
        match &self.first_other {
            Some(first) => {
                let remedy = remedy(&self.words, null_flags);
                let null_words = null_words(&self.words, null_flags).unwrap_or_default();
                let report = fallback(first, problem(&first.cell), self.other_count, remedy);
                Some(Fallback { null_words, ..report })
            }
            None => {
                let first = self.first_inexact.as_ref()?;
                Some(fallback(first, ", which no float holds", self.inexact_count, CORRECT.to_owned()))
            }
        }
    }
}

impl Before {
    fn look(&mut self, cell: &[u8], is_null: bool) {
        match is_null {
            true => self.nulls += 1,
            false if cell::infer(cell) == ColumnType::Text => self.others += 1,
            false => self.numbers += 1,
        }
    }

    fn has_only_numbers(&self) -> bool {
        self.numbers > 0 && self.nulls > 0 && self.others == 0
    }
}

const CORRECT: &str = "correct the input";

/// Why a cell with digits is no number; empty if that is obvious.
fn problem(cell: &str) -> &'static str {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    if !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        ", which no integer of 64 bits holds"
    } else if cell.trim().parse::<f64>().is_ok_and(f64::is_finite) {
        ", which is no number in its plain form"
    } else {
        ""
    }
}

/// All words for null, if these may stand for null, too.
fn null_words(words: &[String], (before, after): &(Vec<String>, Vec<String>)) -> Option<Vec<String>> {
    let is_no_null =
        |word: &String| word.bytes().any(|byte| byte.is_ascii_digit()) || shortened(word) != *word;
    if words.len() == WORDS_MAX || words.iter().any(is_no_null) {
        return None;
    }
    Some(before.iter().chain(words).chain(after).cloned().collect())
}

/// What to do about these words in a column of numbers.
fn remedy(words: &[String], null_flags: &(Vec<String>, Vec<String>)) -> String {
    let Some(nulls) = null_words(words, null_flags) else { return CORRECT.to_owned() };
    let flags: Vec<String> = nulls.iter().map(|word| null_flag(word)).collect();
    let flags = flags.join(" ");
    let is_null = |word: &String| is_null_word(word) || is_non_finite(word.as_bytes());
    match (words.iter().all(is_null), words.len()) {
        (true, 1) => format!("{flags} reads it as null"),
        (true, _) => format!("{flags} read them as null"),
        (false, 1) => format!("{CORRECT}, or read it as null with {flags}"),
        (false, _) => format!("{CORRECT}, or read them as null with {flags}"),
    }
}

/// Whether a cell is one of the floats that are no finite numbers, as programs write them.
fn is_non_finite(cell: &[u8]) -> bool {
    let is_short = (3..=9).contains(&cell.len());
    let number = || std::str::from_utf8(cell).ok()?.parse::<f64>().ok();
    is_short && cell.is_ascii() && !cell.iter().any(u8::is_ascii_digit) && number().is_some()
}

/// The flag that makes a word null.
pub(crate) fn null_flag(word: &str) -> String {
    let sign = if word.starts_with('-') { '=' } else { ' ' };
    format!("--null{sign}{}", shell_word(word))
}

/// Whether a cell is probably a word for null.
pub(crate) fn is_null_word(cell: &str) -> bool {
    NULL_WORDS.contains(&cell.to_lowercase().as_str())
}
