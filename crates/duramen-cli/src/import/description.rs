//! What the user says of the rows: their collection, key, types and words for null.

use duramen::Schema;
use duramen::schema::ColumnType;

use super::assigned_ids::AssignedIds;
use super::flags::{drop_command, listed_columns, parse_types};
use super::format::probable_delimiter;
use crate::args::ImportArgs;
use crate::columns::ColumnChange;
use crate::failure::{Failure, Result};
use crate::names::listed;
use crate::output::shell_word;

/// What to do about a definition that the columns of the input do not fit.
const UNFIT: &str = "correct the values, or leave the column out of --key or --sum";

/// The user's description of the rows.
pub(crate) struct RowDescription {
    pub(crate) collection: String,
    pub(crate) key: Vec<String>,
    pub(crate) sum: Vec<String>,
    pub(crate) types: Vec<(String, ColumnType)>,
    pub(crate) null: Vec<String>,
    /// The character between the cells of CSV.
    pub(crate) delimiter: u8,
    /// Whether the user gave it.
    is_delimiter_given: bool,
    /// Whether the fields of nested objects become columns.
    pub(crate) flatten: bool,
    /// The command that drops the collection, in backticks.
    drop_command: String,
    /// The ids of rows without a natural key.
    pub(super) ids: Option<AssignedIds>,
    /// The stored schema, if the collection exists.
    pub(crate) stored: Option<Schema>,
}

impl RowDescription {
    /// The flags, of an input that was not opened yet.
    pub(super) fn of(args: &ImportArgs) -> Result<RowDescription> {
        let types = parse_types(&args.types)?;
        let (key, sum) = (listed_columns("--key", &args.key)?, listed_columns("--sum", &args.sum)?);
        Ok(RowDescription {
            collection: args.collection.clone(),
            key,
            sum,
            types,
            null: args.null.clone(),
            delimiter: b',',
            is_delimiter_given: args.delimiter.is_some(),
            flatten: args.flatten,
            drop_command: drop_command(args),
            ids: None,
            stored: None,
        })
    }

    /// Adds what the database tells: the stored collection, and the ids that rows get.
    ///
    /// # Errors
    /// That of a definition that does not fit it.
    pub(super) fn fit(&mut self, stored: Option<Schema>, ids: Option<AssignedIds>) -> Result<()> {
        if let Some(ids) = &ids {
            self.key = vec![ids.column.clone()];
        }
        (self.stored, self.ids) = (stored, ids);
        self.schema().map(drop)
    }

    /// The resulting collection, without its columns.
    fn schema(&self) -> Result<Schema> {
        let mut schema = match &self.stored {
            Some(stored) => stored.clone(),
            None if self.key.is_empty() => {
                return Err(Failure::usage(
                    format!("the collection {} is not there yet, and needs a key", self.collection),
                    "name the columns that tell its rows apart, in the order to sort by: --key COLUMN,...; or give the rows ids: --assign-id id",
                ));
            }
            None => Schema::new(&self.collection).key(self.key.clone()).sum(self.sum.clone()),
        };
        let description = Schema::new(&self.collection)
            .key(if self.key.is_empty() { schema.key_columns().to_vec() } else { self.key.clone() })
            .sum(if self.sum.is_empty() { schema.sum_columns().to_vec() } else { self.sum.clone() });
        schema.check_same_terms(&description).map_err(|error| {
            let hint = format!("{}; or drop it with its documents: {}", error.hint(), self.drop_command);
            Failure::from(error).hinted(hint)
        })?;
        if let (Some(marker), None) = (self.null.first(), schema.null()) {
            schema = schema.null_marker(marker);
        }
        Ok(schema)
    }

    /// How a stored collection gets other types.
    pub(super) fn drop_and_again(&self) -> String {
        format!("the type of a stored column does not change: {}, then the same import", self.drop_command)
    }

    /// The way to a column of the key that the input lacks.
    fn missing_column(&self, schema: &Schema, name: &str, names: &[&String]) -> String {
        let columns = format!("its columns are {}", listed(names.iter().copied()));
        let is_number = self.stored.is_some() && schema.kind(name) == Some(ColumnType::Int);
        if is_number && self.ids.is_none() && schema.key_columns() == [name] {
            return format!("to give the rows ids, add --assign-id {}; {columns}", shell_word(name));
        }
        probable_delimiter(names, self.delimiter).unwrap_or(columns)
    }

    /// Refuses a header that another delimiter would split further, unless the user gave the delimiter.
    pub(crate) fn check_delimiter(&self, header: &[String]) -> Result<()> {
        let hint = probable_delimiter(&header.iter().collect::<Vec<_>>(), self.delimiter);
        match hint.filter(|_| !self.is_delimiter_given && self.stored.is_none()) {
            Some(hint) => Err(Failure::data(
                "the header has probably another delimiter",
                format!("{hint}; if the delimiter is right, say so with --delimiter"),
            )),
            None => Ok(()),
        }
    }

    /// The type that the user or the catalogue gives a column.
    pub(crate) fn given(&self, column: &str) -> Option<ColumnType> {
        let description = self.types.iter().find(|(name, _)| name == column).map(|(_, kind)| *kind);
        let stored = self.stored.as_ref().and_then(|stored| stored.kind(column));
        description.or(stored.filter(|kind| *kind != ColumnType::Unknown))
    }

    /// How the columns of the input differ from those of the stored collection.
    pub(crate) fn change<'a>(&'a self, columns: impl Iterator<Item = &'a str>) -> ColumnChange {
        let ids = self.ids.iter().map(|ids| ids.column.as_str());
        self.stored
            .as_ref()
            .map_or_else(ColumnChange::default, |stored| ColumnChange::of(stored, ids.chain(columns)))
    }

    /// Whether `--null` may show that a column of numbers was stored as text for want of it.
    pub(crate) fn is_text_before(&self, column: &str) -> bool {
        let stored = self.stored.as_ref().and_then(|stored| stored.kind(column));
        let is_asked = self.types.iter().any(|(name, _)| name == column);
        !self.null.is_empty() && !is_asked && stored == Some(ColumnType::Text)
    }

    /// Whether a column is summed.
    pub(crate) fn sums(&self, column: &String) -> bool {
        self.sum.contains(column)
            || self.stored.as_ref().is_some_and(|stored| stored.sum_columns().contains(column))
    }

    /// Whether a column is part of the key. It then needs a value in every row.
    pub(crate) fn is_key(&self, column: &String) -> bool {
        self.key.contains(column)
            || self.stored.as_ref().is_some_and(|stored| stored.key_columns().contains(column))
    }

    /// The columns of the documents: that of the assigned ids, and those of the input.
    pub(super) fn with_ids(&self, mut columns: Vec<(String, ColumnType)>) -> Vec<(String, ColumnType)> {
        if let Some(ids) = &self.ids {
            columns.insert(0, (ids.column.clone(), ColumnType::Int));
        }
        columns
    }

    /// Adds inferred columns to the schema, in their order. `--type` and the catalogue take precedence.
    pub(crate) fn settle(&self, inferred: &[(String, ColumnType)]) -> Result<Schema> {
        let mut schema = self.schema()?;
        for (name, _) in &self.types {
            if !inferred.iter().any(|(column, _)| column == name) && schema.kind(name).is_none() {
                return Err(Failure::usage(
                    format!("--type names {name}, and the input has no such column"),
                    format!("its columns are {}", listed(inferred.iter().map(|(column, _)| column))),
                ));
            }
        }
        for (column, kind) in inferred {
            let kind = self.given(column).unwrap_or(*kind);
            if schema.kind(column).is_none_or(|stored| stored == ColumnType::Unknown) {
                schema = schema.column(column, kind);
            } else if schema.kind(column) != Some(kind) {
                return Err(Failure::usage(
                    format!(
                        "the column {column} of {} holds {}",
                        self.collection,
                        schema.kind(column).unwrap_or_default()
                    ),
                    "its type is settled: leave --type out, or import into another collection",
                ));
            }
        }
        for name in schema.key_columns().iter().chain(schema.sum_columns()) {
            if !inferred.is_empty() && !inferred.iter().any(|(column, _)| column == name) {
                let names: Vec<&String> = inferred.iter().map(|(column, _)| column).collect();
                let hint = self.missing_column(&schema, name, &names);
                let message = format!(
                    "the input has no column {name}, which the key or the sums of {} need",
                    self.collection
                );
                return Err(Failure::data(message, hint));
            }
        }
        schema.validate().map_err(|error| Failure::from(error).when_vague(UNFIT))?;
        Ok(schema)
    }
}
