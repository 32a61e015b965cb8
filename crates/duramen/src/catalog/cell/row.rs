//! Encodes a row of cells as a key and the values of a document, by the columns' types.

use std::sync::Arc;

use super::{parse_float, parse_int};
use crate::catalog::schema::{ColumnType, Schema};
use crate::catalog::shapes::Layout;
use crate::store::error::{Error, Result};
use crate::value::document::Value;
use crate::value::msgpack::write;
use crate::value::time::Time;
use crate::value::tuple::{Element, Encoder, check_length};

/// A cell that does not fit its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCell {
    /// Which column of the row, from 0.
    pub index: usize,
    /// Its name.
    pub column: String,
    /// What the column holds.
    pub wanted: ColumnType,
    /// Why it does not fit.
    pub why: Misfit,
    /// The rest of a sentence that begins with the column's name.
    pub problem: String,
}

/// Why a cell does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// It is not of the column's type.
    OtherType,
    /// It is not UTF-8.
    NotUtf8,
    /// It is null, and the column is part of the key.
    NullInKey,
    /// The key would be too long with it.
    KeyTooLong,
    /// The cell, or the row, is larger than a document may be.
    TooLarge,
}

/// Encodes rows of the same columns.
#[derive(Debug, Clone)]
pub struct RowEncoder {
    columns: Vec<Prepared>,
    layout: Arc<Layout>,
    /// The columns in the order in which their values are stored.
    stored: Vec<usize>,
    key: Vec<usize>,
    null_markers: Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
struct Prepared {
    name: String,
    kind: ColumnType,
    in_key: bool,
}

/// One cell that is not null, read by its type.
enum Cell<'a> {
    Int(i128),
    Float(f64),
    Text(&'a str),
    Bool(bool),
    Time(Time),
}

impl RowEncoder {
    /// An encoder for rows with these columns of a collection.
    ///
    /// Cells equal to a null marker are null. A column whose type the schema does not know accepts only null.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if a key column or a summed one is not among the columns, or a column is
    /// listed twice.
    pub fn new(schema: &Schema, header: &[String], null_markers: &[String]) -> Result<RowEncoder> {
        if let Some(i) = (1..header.len()).find(|&i| header[..i].contains(&header[i])) {
            return Err(Error::invalid(format!("the column {:?} is there twice", header[i])));
        }
        let find = |name: &String| {
            header.iter().position(|column| column == name).ok_or_else(|| {
                Error::invalid(format!("there is no column {name} in the input"))
                    .with_hint(format!("its columns are {}", header.join(",")))
            })
        };
        let key = schema.key_columns().iter().map(find).collect::<Result<Vec<_>>>()?;
        for name in schema.sum_columns() {
            find(name)?;
        }
        let shown: Vec<&str> = header.iter().map(String::as_str).collect();
        let layout = Layout::of(&shown, schema.sum_columns())
            .ok_or_else(|| Error::invalid("a column is summed twice"))?;
        let stored = layout.names().iter().map(find).collect::<Result<Vec<_>>>()?;
        let prepared = |(index, name): (usize, &String)| {
            let kind = schema.kind(name).unwrap_or_default();
            Prepared { name: name.clone(), kind, in_key: key.contains(&index) }
        };
        let columns = header.iter().enumerate().map(prepared).collect();
        let null_markers = null_markers.iter().map(|marker| marker.as_bytes().to_vec()).collect();
        Ok(RowEncoder { columns, layout: Arc::new(layout), stored, key, null_markers })
    }

    /// The names of the columns, in the order of the values.
    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// How many cells a row has.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Whether a cell means null.
    #[must_use]
    pub fn is_null(&self, cell: &[u8]) -> bool {
        self.null_markers.iter().any(|marker| marker == cell)
    }

    /// Appends the key and the values of one row, in the order of [`RowEncoder::layout`].
    ///
    /// # Errors
    /// [`BadCell`] for the first cell of the row that does not fit; the buffers then hold part of the row.
    pub(crate) fn encode<'a>(
        &self,
        cell: impl Fn(usize) -> &'a [u8],
        key: &mut Vec<u8>,
        document: &mut Vec<u8>,
    ) -> std::result::Result<(), BadCell> {
        for &index in &self.stored {
            if let Err(bad) = self.write_value(index, cell(index), document) {
                return Err(self.first_bad(&cell).unwrap_or(bad));
            }
        }
        let start = key.len();
        let mut encoder = Encoder::new(key);
        // None of these cells is null: `write_value` has refused that.
        for &index in &self.key {
            match read_cell(self.columns[index].kind, cell(index)) {
                None => return Err(self.misfit(index, cell(index))),
                Some(Cell::Int(value)) => encoder.int(value).expect("it was read as 64 bits"),
                Some(Cell::Float(value)) => encoder.float(value),
                Some(Cell::Text(value)) => encoder.text(value),
                Some(Cell::Bool(value)) => encoder.bool(value),
                Some(Cell::Time(value)) => encoder.time(value),
            }
        }
        check_length(&key[start..]).map_err(|error| {
            let last = self.key.last().copied().unwrap_or(0);
            self.bad(last, Misfit::KeyTooLong, format!("ends a key that is too long: {}", error.message()))
        })
    }

    /// Appends the value of one cell.
    fn write_value(
        &self,
        index: usize,
        text: &[u8],
        document: &mut Vec<u8>,
    ) -> std::result::Result<(), BadCell> {
        let column = &self.columns[index];
        if self.is_null(text) {
            if column.in_key {
                let problem = "is null, and it is part of the key".into();
                return Err(self.bad(index, Misfit::NullInKey, problem));
            }
            write::null(document);
            return Ok(());
        }
        match read_cell(column.kind, text) {
            None => return Err(self.misfit(index, text)),
            Some(Cell::Int(value)) => write::int(document, value).expect("it was read as 64 bits"),
            Some(Cell::Float(value)) => write::float(document, value),
            Some(Cell::Text(value)) => {
                let too_large = |error: Error| self.bad(index, Misfit::TooLarge, error.message().to_owned());
                write::text(document, value).map_err(too_large)?;
            }
            Some(Cell::Bool(value)) => write::bool(document, value),
            Some(Cell::Time(value)) => write::time(document, value),
        }
        Ok(())
    }

    /// The first cell of a row, in its own order, whose value cannot be stored.
    #[cold]
    fn first_bad<'a>(&self, cell: &impl Fn(usize) -> &'a [u8]) -> Option<BadCell> {
        let mut scratch = Vec::new();
        (0..self.columns.len()).find_map(|index| self.write_value(index, cell(index), &mut scratch).err())
    }

    #[cold]
    fn misfit(&self, index: usize, text: &[u8]) -> BadCell {
        let shown = shorten(&String::from_utf8_lossy(text));
        let wanted = self.columns[index].kind;
        let (why, problem) = match std::str::from_utf8(text) {
            Err(_) => (Misfit::NotUtf8, format!("holds {shown:?}, which is not UTF-8")),
            Ok(_) => (Misfit::OtherType, format!("holds {shown:?}, which is not {}", described(wanted))),
        };
        self.bad(index, why, problem)
    }

    #[cold]
    fn bad(&self, index: usize, why: Misfit, problem: String) -> BadCell {
        let column = &self.columns[index];
        BadCell { index, column: column.name.clone(), wanted: column.kind, why, problem }
    }
}

fn read_cell(kind: ColumnType, text: &[u8]) -> Option<Cell<'_>> {
    match kind {
        ColumnType::Int => parse_int(text).map(Cell::Int),
        ColumnType::Float => parse_float(text).map(Cell::Float),
        ColumnType::Bool => match text {
            _ if text.eq_ignore_ascii_case(b"true") => Some(Cell::Bool(true)),
            _ if text.eq_ignore_ascii_case(b"false") => Some(Cell::Bool(false)),
            _ => None,
        },
        ColumnType::Time => {
            let text = std::str::from_utf8(text).ok()?;
            Time::parse_in_column(text).map(Cell::Time)
        }
        ColumnType::Text | ColumnType::Any => std::str::from_utf8(text).ok().map(Cell::Text),
        // The type is unknown: stored as text, the value would be in a column without a type.
        ColumnType::Unknown => None,
    }
}

/// Parses a text as an element of a key, by the type of its column; `None` if it does not fit.
///
/// A column of any type takes JSON values, and other texts as text.
#[must_use]
pub fn key_element(kind: ColumnType, text: &str) -> Option<Element> {
    if kind == ColumnType::Unknown || kind == ColumnType::Any {
        return crate::value::json::parse(text)
            .ok()
            .as_ref()
            .and_then(Value::to_element)
            .or_else(|| Some(Element::Text(text.to_owned())));
    }
    Some(match read_cell(kind, text.as_bytes())? {
        Cell::Int(value) => Element::Int(value),
        Cell::Float(value) => Element::Float(value),
        Cell::Text(value) => Element::Text(value.to_owned()),
        Cell::Bool(value) => Element::Bool(value),
        Cell::Time(value) => Element::Time(value),
    })
}

/// A type as words that complete "which is not ...".
pub(crate) fn described(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Int => "an integer in its plain form",
        ColumnType::Float => "a decimal number that a float holds",
        ColumnType::Bool => "true or false",
        ColumnType::Time => "a time such as 2013-01-01T10:00:00Z, or a date such as 2013-01-01",
        ColumnType::Text | ColumnType::Any => "text",
        ColumnType::Unknown => "null, all that a column without a type takes",
    }
}

/// The start of a text, cut if it is long.
pub(crate) fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
