//! Records of CSV: cells without types, all rows as wide as the header, every quote closed.

use std::hash::{BuildHasher, RandomState};
use std::io::{Cursor, Read};

use csv::ByteRecord;

use super::line_numbers::{Latest, LineNumbers};
use super::source::{Input, Reader, read_failure};
use crate::failure::{Failure, Result};
use crate::numbers::counted;

/// Records of one reading of an input.
///
/// A mark that no input contains follows the input as a record of its own. If it is not read as such a
/// record, an unclosed quote has swallowed it and everything before it. Without the mark that would go
/// unnoticed.
pub(super) struct Records {
    name: String,
    reader: csv::Reader<Latest<std::io::Chain<Reader, Cursor<Vec<u8>>>>>,
    lines: LineNumbers,
    end_mark: Vec<u8>,
    pub(super) header: Vec<String>,
    pub(super) record: ByteRecord,
}

impl Records {
    /// Reads the header; the first record is next.
    pub(super) fn open(input: &mut Input, delimiter: u8) -> Result<Records> {
        let end_mark = format!("\u{0}end {:016x}\u{0}", RandomState::new().hash_one("end")).into_bytes();
        let tail = [b"\n", end_mark.as_slice(), b"\n"].concat();
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(delimiter)
            .flexible(true)
            .buffer_capacity(1 << 18)
            .from_reader(Latest::new(input.reader()?.chain(Cursor::new(tail))));
        let (name, lines, record) = (input.name(), LineNumbers::default(), ByteRecord::new());
        let mut records = Records { name, reader, lines, end_mark, header: Vec::new(), record };
        if !records.read()? {
            return Err(Failure::data(
                format!("{} is empty, and CSV begins with a line of column names", records.name),
                "look whether the right file was named",
            ));
        }
        let cells = records.record.iter().enumerate();
        records.header = cells.map(|(at, cell)| column_name(at, cell)).collect::<Result<Vec<_>>>()?;
        let header = &records.header;
        if let Some(i) = (1..header.len()).find(|&i| header[..i].contains(&header[i])) {
            let first = header.iter().position(|name| *name == header[i]).unwrap_or_default();
            return Err(Failure::data(
                format!(
                    "{} has the column {:?} twice in its header: columns {} and {}",
                    records.name,
                    header[i],
                    first + 1,
                    i + 1
                ),
                "rename one of them in the first line",
            ));
        }
        Ok(records)
    }

    /// Reads the next record into the stored one; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if !self.read()? {
            return Ok(false);
        }
        let (found, wanted) = (self.record.len(), self.header.len());
        if found != wanted {
            if found == 1 && self.record.iter().all(|cell| cell.trim_ascii().is_empty()) {
                return Err(Failure::data(
                    format!("line {}: it has only blanks, and the header has {wanted} cells", self.line()),
                    "remove the line; a line without any character is passed over",
                ));
            }
            let found = counted(found as u64, "cell");
            return Err(Failure::data(
                format!("line {}: {found}, and the header has {wanted}", self.line()),
                "look for a comma or a quote too many or too few in that line",
            ));
        }
        Ok(true)
    }

    /// The line on which the kept record begins.
    pub(super) fn line(&self) -> u64 {
        line_of(&self.record)
    }

    /// Reads a record of any width; `false` at the mark, an error if the mark is inside a cell.
    fn read(&mut self) -> Result<bool> {
        let more = self.reader.read_byte_record(&mut self.record);
        let more = more.map_err(|error| csv_failure(&self.name, error))?;
        self.lines.correct(&mut self.record, self.reader.position(), self.reader.get_ref());
        let last = self.record.iter().next_back().unwrap_or_default();
        if !more || (self.record.len() == 1 && last == self.end_mark) {
            return Ok(false);
        }
        // The mark's last byte occurs in no usual text, so this check costs nothing.
        if last.trim_ascii_end().ends_with(&self.end_mark) {
            return Err(Failure::data(
                format!("line {}: a quote is opened in this row and never closed", self.line()),
                "close it, or double it where it belongs to the text: \"5\"\" pipe\"",
            ));
        }
        Ok(true)
    }
}

/// The line on which a record begins.
pub(super) fn line_of(record: &ByteRecord) -> u64 {
    record.position().map_or(0, csv::Position::line)
}

fn column_name(at: usize, cell: &[u8]) -> Result<String> {
    match std::str::from_utf8(cell) {
        Ok(name) if !name.is_empty() => Ok(name.to_owned()),
        Ok(_) => Err(Failure::data(
            format!("column {} has no name in the first line", at + 1),
            match at {
                0 => {
                    "give it a name there, such as id; pandas leaves the column out with to_csv(..., index=False)"
                }
                _ => "give it a name there: CSV begins with a line of column names",
            },
        )),
        Err(_) => Err(Failure::data(
            "the first line is not UTF-8",
            "convert the input to UTF-8, or look whether it is CSV at all",
        )),
    }
}

fn csv_failure(name: &str, error: csv::Error) -> Failure {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => read_failure(name, &error),
        other => {
            Failure::data(format!("{name} is not CSV: {other:?}"), "look whether the right file was named")
        }
    }
}
