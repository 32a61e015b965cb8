//! Rows of Parquet as documents: nested groups are maps, decimals text, dates and timestamps times.
//!
//! Needs the feature `parquet`. What the format has and documents have not is refused with row and column.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen::{Document, Time, Value};
use parquet::basic::{LogicalType, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};

use super::document_rows::DocumentSource;
use super::source::Input;
use crate::failure::{Failure, Result};

const SECONDS_A_DAY: i64 = 86_400;

/// Rows of one reading of a file.
pub(super) struct ParquetRows {
    name: String,
    rows: RowIter<'static>,
    /// Rows read so far, and all.
    count: u64,
    total: u64,
    /// Which columns hold nanoseconds since 1970, which the reader gives as integers.
    is_nanos: Vec<bool>,
    bytes_read: Arc<AtomicU64>,
    bytes_total: u64,
}

impl ParquetRows {
    pub(super) fn open(input: &mut Input) -> Result<ParquetRows> {
        let name = input.name();
        let file = input.whole_file()?;
        let reader = guarded(&name, || SerializedFileReader::new(file))?;
        let metadata = reader.metadata().file_metadata();
        let is_nanos = metadata.schema().get_fields().iter().map(|field| {
            let kind = field.get_basic_info().logical_type_ref();
            matches!(kind, Some(LogicalType::Timestamp(kind)) if kind.unit == TimeUnit::NANOS)
        });
        Ok(ParquetRows {
            is_nanos: is_nanos.collect(),
            count: 0,
            total: u64::try_from(metadata.num_rows()).unwrap_or(0),
            bytes_read: input.bytes_read(),
            bytes_total: input.bytes_total().unwrap_or(0),
            rows: guarded(&name, || Ok(RowIter::from_file_into(Box::new(reader))))?,
            name,
        })
    }
}

impl DocumentSource for ParquetRows {
    fn next(&mut self) -> Result<Option<(u64, Document)>> {
        let row = guarded(&self.name, || self.rows.next().transpose())?;
        let Some(row) = row else { return Ok(None) };
        self.count += 1;
        let part = u128::from(self.bytes_total) * u128::from(self.count) / u128::from(self.total.max(1));
        self.bytes_read.store(u64::try_from(part).unwrap_or(0), Ordering::Relaxed);
        let mut document = Document::new();
        for (index, (column, field)) in row.into_columns().into_iter().enumerate() {
            let value = match field {
                Field::Long(nanos) if self.is_nanos.get(index) == Some(&true) => {
                    Ok(time(nanos, 1_000_000_000))
                }
                field => value(field),
            };
            let value = value.map_err(|problem| {
                Failure::data(
                    format!("row {}, column {column}: {problem}", self.count),
                    "correct the file, or export it as CSV from the program that made it",
                )
            })?;
            document.set(column, value);
        }
        Ok(Some((self.count, document)))
    }
}

/// Runs the reader, which panics on some corrupt files.
fn guarded<T>(name: &str, read: impl FnOnce() -> std::result::Result<T, ParquetError>) -> Result<T> {
    let failed = |what: String| {
        Failure::data(format!("{name} cannot be read as Parquet: {what}"), "look whether the file is whole")
    };
    match panic::catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("its reader panicked".to_owned())),
    }
}

fn value(field: Field) -> std::result::Result<Value, String> {
    let finite = |value: f64| match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => Err(format!("holds {value}, and a float has to be finite")),
    };
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => value.into(),
        Field::Byte(value) => value.into(),
        Field::Short(value) => value.into(),
        Field::Int(value) => value.into(),
        Field::Long(value) => value.into(),
        Field::UByte(value) => value.into(),
        Field::UShort(value) => value.into(),
        Field::UInt(value) => value.into(),
        Field::ULong(value) => value.into(),
        Field::Float16(value) => finite(value.to_f64())?,
        Field::Float(value) => finite(value.into())?,
        Field::Double(value) => finite(value)?,
        Field::Str(value) => value.into(),
        Field::Bytes(value) => value.data().into(),
        Field::Date(days) => time(i64::from(days) * SECONDS_A_DAY, 1),
        Field::TimestampMillis(millis) => time(millis, 1_000),
        Field::TimestampMicros(micros) => time(micros, 1_000_000),
        // Exact as text; a float would round it.
        decimal @ Field::Decimal(_) => decimal.to_string().into(),
        of_day @ (Field::TimeMillis(_) | Field::TimeMicros(_)) => of_day.to_string().into(),
        Field::Group(row) => Value::Map(group(row)?),
        Field::ListInternal(list) => {
            let values = list.elements().iter().cloned().map(value);
            Value::List(values.collect::<std::result::Result<_, _>>()?)
        }
        Field::MapInternal(map) => {
            let mut document = Document::new();
            for (key, entry) in map.entries() {
                let Field::Str(name) = key else {
                    return Err("holds a map whose keys are no text".to_owned());
                };
                document.set(name.as_str(), value(entry.clone())?);
            }
            Value::Map(document)
        }
    })
}

fn group(row: Row) -> std::result::Result<Document, String> {
    let mut document = Document::new();
    for (name, field) in row.into_columns() {
        document.set(name, value(field)?);
    }
    Ok(document)
}

/// The time of a count of parts of a second since 1970.
fn time(count: i64, parts: i64) -> Value {
    let nanoseconds = count.rem_euclid(parts) * (1_000_000_000 / parts);
    let nanoseconds = u32::try_from(nanoseconds).expect("less than a second");
    Value::Time(Time::new(count.div_euclid(parts), nanoseconds).expect("less than a second"))
}
