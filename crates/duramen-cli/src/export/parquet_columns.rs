//! The columns of an export as Parquet: values of one row group in memory, all columns optional.
//!
//! Needs the feature `parquet`. Integers are INT64, times timestamps in microseconds, values of several types
//! JSON. What does not fit is refused, never rounded.

use std::io::Write;
use std::sync::Arc;

use duramen::schema::ColumnType;
use duramen::{Document, Schema, Value};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::json_of;

type Result<T> = std::result::Result<T, ParquetError>;

/// A column's values and where they are: 1 for a value, 0 for null.
pub(super) struct Column {
    name: String,
    values: Values,
    levels: Vec<i16>,
}

enum Values {
    Int(Vec<i64>),
    Time(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
    Json(Vec<ByteArray>),
}

impl Column {
    pub(super) fn all(schema: &Schema) -> Vec<Column> {
        let column = |name: &String, kind| {
            let values = match kind {
                ColumnType::Int => Values::Int(Vec::new()),
                ColumnType::Time => Values::Time(Vec::new()),
                ColumnType::Float => Values::Float(Vec::new()),
                ColumnType::Bool => Values::Bool(Vec::new()),
                ColumnType::Any => Values::Json(Vec::new()),
                ColumnType::Text | ColumnType::Unknown => Values::Text(Vec::new()),
            };
            Column { name: name.clone(), values, levels: Vec::new() }
        };
        schema.columns().iter().map(|known| column(&known.name, known.kind)).collect()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the value of a document. The error is the rest of a sentence.
    pub(super) fn push(&mut self, value: &Value) -> std::result::Result<(), &'static str> {
        match (&mut self.values, value) {
            (_, Value::Null) => {}
            (Values::Int(values), Value::Int(value)) => {
                values.push(
                    i64::try_from(*value).map_err(|_| "an integer beyond 63 bits, which Parquet has not")?,
                );
            }
            (Values::Time(values), Value::Time(time)) => {
                let micros = time.seconds().checked_mul(1_000_000);
                let micros =
                    micros.and_then(|micros| micros.checked_add(i64::from(time.nanoseconds() / 1_000)));
                match micros {
                    Some(micros) if time.nanoseconds() % 1_000 == 0 => values.push(micros),
                    _ => return Err("a time that is no count of microseconds"),
                }
            }
            (Values::Float(values), Value::Float(value)) => values.push(*value),
            (Values::Bool(values), Value::Bool(value)) => values.push(*value),
            (Values::Text(values), Value::Text(text)) => values.push(text.as_str().into()),
            (Values::Json(values), value) => {
                let json = json_of(value).map_err(|_| "a value that JSON cannot say")?;
                values.push(json.as_str().into());
            }
            _ => return Err("a value that is not of the type of its column"),
        }
        self.levels.push(i16::from(*value != Value::Null));
        Ok(())
    }

    fn in_schema(&self) -> Result<Type> {
        let (physical, converted) = match self.values {
            Values::Int(_) => (Physical::INT64, ConvertedType::INT_64),
            Values::Time(_) => (Physical::INT64, ConvertedType::TIMESTAMP_MICROS),
            Values::Float(_) => (Physical::DOUBLE, ConvertedType::NONE),
            Values::Bool(_) => (Physical::BOOLEAN, ConvertedType::NONE),
            Values::Text(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            Values::Json(_) => (Physical::BYTE_ARRAY, ConvertedType::JSON),
        };
        let builder = Type::primitive_type_builder(&self.name, physical);
        builder.with_repetition(Repetition::OPTIONAL).with_converted_type(converted).build()
    }

    fn write<W: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        let levels = Some(self.levels.as_slice());
        let mut column =
            group.next_column()?.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
        match &mut self.values {
            Values::Int(values) | Values::Time(values) => {
                column.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Float(values) => {
                column.typed::<DoubleType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Bool(values) => {
                column.typed::<BoolType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Text(values) | Values::Json(values) => {
                column.typed::<ByteArrayType>().write_batch(values, levels, None)?;
                values.clear();
            }
        }
        self.levels.clear();
        column.close()
    }
}

/// The file, of which the head is written.
pub(super) fn begin<W: Write + Send>(columns: &[Column], out: W) -> Result<SerializedFileWriter<W>> {
    let fields = columns.iter().map(|column| column.in_schema().map(Arc::new)).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
}

/// Writes the rows that the columns hold, which are then empty.
pub(super) fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &mut [Column],
) -> Result<()> {
    let mut group = file.next_row_group()?;
    for column in columns {
        column.write(&mut group)?;
    }
    group.close().map(drop)
}

/// The value of a field; null without it.
pub(super) fn value_of<'a>(document: &'a Document, column: &Column) -> &'a Value {
    document.get(column.name()).unwrap_or(&Value::Null)
}
