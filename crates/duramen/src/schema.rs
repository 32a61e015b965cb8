//! The catalogue entry of a collection: its name, key columns, column types, summed fields, null marker.
//!
//! Owns the stored form of the entry (MessagePack with names, versioned: docs/format.md, section "Documents and
//! collections") and the rules by which a document fits. Never touches a tree.

mod column;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use column::exact_float;
pub use column::{Column, ColumnType};

use crate::document::{Document, Value};
use crate::error::{Error, Result};
use crate::sums::{FLOATS, Sums};
use crate::tuple::{Encoder, check_length};

/// Longest name of a collection, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// What a collection is: made with the builder methods, kept in the catalogue, grown by new columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: String,
    key: Vec<String>,
    columns: Vec<Column>,
    sums: Vec<String>,
    null_marker: Option<String>,
}

impl Schema {
    /// A collection of this name. It needs a key before it can be created.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Schema {
        Schema {
            name: name.into(),
            key: Vec::new(),
            columns: Vec::new(),
            sums: Vec::new(),
            null_marker: None,
        }
    }

    /// Makes these columns the key, in this order: it is the order of the documents.
    #[must_use]
    pub fn key<T: Into<String>>(mut self, columns: impl IntoIterator<Item = T>) -> Schema {
        self.key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps exact sums of these integer columns over every range.
    #[must_use]
    pub fn sum<T: Into<String>>(mut self, columns: impl IntoIterator<Item = T>) -> Schema {
        self.sums = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Gives a column a type, or changes it. Columns without one take the type of their first value.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, kind: ColumnType) -> Schema {
        let name = name.into();
        match self.columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.kind = kind,
            None => self.columns.push(Column { name, kind }),
        }
        self
    }

    /// The text that stands for null in CSV.
    #[must_use]
    pub fn null_marker(mut self, marker: impl Into<String>) -> Schema {
        self.null_marker = Some(marker.into());
        self
    }

    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key columns, in order.
    #[must_use]
    pub fn key_columns(&self) -> &[String] {
        &self.key
    }

    /// The columns known so far, in the order they were met.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The summed columns, in order.
    #[must_use]
    pub fn sum_columns(&self) -> &[String] {
        &self.sums
    }

    /// The text that stands for null in CSV, if one was set.
    #[must_use]
    pub fn null(&self) -> Option<&str> {
        self.null_marker.as_deref()
    }

    /// The type of a column, if it is known.
    #[must_use]
    pub fn kind(&self, column: &str) -> Option<ColumnType> {
        self.columns.iter().find(|known| known.name == column).map(|known| known.kind)
    }

    /// The reducer that keeps the sums.
    ///
    /// # Errors
    /// As [`Sums::new`].
    pub fn reducer(&self) -> Result<Sums> {
        Sums::new(&self.sums)
    }

    /// Whether it can be a collection.
    ///
    /// # Errors
    /// `InvalidArgument`, saying what is missing or in the way.
    pub fn validate(&self) -> Result<()> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control)
        {
            return Err(Error::invalid(format!(
                "{:?} cannot be the name of a collection: 1 to {NAME_BYTES_MAX} bytes without control characters can",
                self.name
            )));
        }
        if self.key.is_empty() {
            return Err(Error::invalid(format!("the collection {} has no key", self.name))
                .with_hint("name the columns that tell its documents apart"));
        }
        if let Some(i) = (1..self.key.len()).find(|&i| self.key[..i].contains(&self.key[i])) {
            return Err(Error::invalid(format!("the column {} is in the key twice", self.key[i])));
        }
        self.reducer()?;
        for column in &self.sums {
            check_sum(column, self.kind(column).unwrap_or(ColumnType::Unknown))?;
        }
        Ok(())
    }

    /// Takes over the columns of another schema that are new here, or whose type was not known here. Returns whether
    /// anything changed.
    ///
    /// # Errors
    /// `InvalidArgument` for a column of another type, naming both.
    pub fn merge(&mut self, other: &Schema) -> Result<bool> {
        let mut grew = false;
        for theirs in &other.columns {
            let Some(ours) = self.columns.iter_mut().find(|column| column.name == theirs.name) else {
                self.columns.push(theirs.clone());
                grew = true;
                continue;
            };
            if ours.kind == ColumnType::Unknown && theirs.kind != ColumnType::Unknown {
                ours.kind = theirs.kind;
                grew = true;
            } else if theirs.kind != ColumnType::Unknown && ours.kind != theirs.kind {
                return Err(Error::invalid(format!(
                    "the column {} of {} holds {}, and {} was asked for",
                    ours.name, self.name, ours.kind, theirs.kind
                )));
            }
        }
        if self.null_marker.is_none() && other.null_marker.is_some() {
            self.null_marker.clone_from(&other.null_marker);
            grew = true;
        }
        Ok(grew)
    }

    /// Makes a document fit: each value has its column's type (integers widen to float where that is exact), key
    /// columns are there, summed ones are integers. New fields become columns. Returns whether the schema grew.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the field, what it holds and what its column holds. The document may be changed in part.
    pub fn admit(&mut self, document: &mut Document) -> Result<bool> {
        let mut grew = false;
        for (index, (name, value)) in document.iter_mut().enumerate() {
            if self.columns.get(index).is_none_or(|column| column.name != name) {
                grew |= self.admit_field(name, value)?;
            } else {
                grew |= self.columns[index].admit(value)?;
            }
        }
        for column in &self.key {
            if matches!(document.get(column), None | Some(Value::Null)) {
                return Err(Error::invalid(format!(
                    "the document has no {column}, which is part of the key of {}",
                    self.name
                )));
            }
        }
        if grew {
            self.validate()?;
        }
        Ok(grew)
    }

    fn admit_field(&mut self, name: &str, value: &mut Value) -> Result<bool> {
        if let Some(column) = self.columns.iter_mut().find(|column| column.name == name) {
            return column.admit(value);
        }
        self.columns.push(Column { name: name.to_owned(), kind: ColumnType::of(value) });
        Ok(true)
    }

    /// Appends the key of a document that fits.
    ///
    /// # Errors
    /// `InvalidArgument` for a missing key column or a map in one; `KeyTooLong`.
    pub fn write_key(&self, document: &Document, out: &mut Vec<u8>) -> Result<()> {
        let mut encoder = Encoder::new(out);
        for column in &self.key {
            let element = document.get(column).and_then(Value::to_element).ok_or_else(|| {
                Error::invalid(format!(
                    "the document has no {column} that can be part of the key of {}",
                    self.name
                ))
            })?;
            encoder.element(&element)?;
        }
        check_length(out)
    }

    /// Whether another import or call may use the collection under these terms.
    ///
    /// # Errors
    /// `InvalidArgument` if `other` names another key or other sums.
    pub fn check_same_terms(&self, other: &Schema) -> Result<()> {
        for (what, flag, stored, asked) in
            [("key", "--key", &self.key, &other.key), ("sums", "--sum", &self.sums, &other.sums)]
        {
            if stored != asked {
                return Err(Error::invalid(format!(
                    "the collection {} has the {what} ({}), and ({}) was asked for",
                    self.name,
                    stored.join(","),
                    asked.join(",")
                ))
                .with_hint(format!("leave {flag} out to use what is stored, or choose another collection")));
            }
        }
        Ok(())
    }
}

/// Whether a column of this type can be summed.
fn check_sum(column: &str, kind: ColumnType) -> Result<()> {
    match kind {
        ColumnType::Int | ColumnType::Unknown => Ok(()),
        ColumnType::Float => {
            Err(Error::invalid(format!("the column {column} cannot be summed: it holds floats, {FLOATS}")))
        }
        other => Err(Error::invalid(format!(
            "the column {column} cannot be summed: it holds {other}, not integers"
        ))),
    }
}
