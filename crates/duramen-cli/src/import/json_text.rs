//! The objects in the text of an input: one a line (NDJSON), or the elements of an array.
//!
//! Splits the text into objects; the library parses each. At most one object is in memory. A file `.json` may
//! also have objects one after the other: many programs call NDJSON so.

use std::io::{self, BufRead};

use duramen::Document;

use super::document_rows::DocumentSource;
use super::source::{Input, Reader, read_failure};
use crate::failure::{Failure, Result};

/// Documents of one reading, with the lines on which they begin.
pub(super) struct Objects {
    name: String,
    reader: Reader,
    line: u64,
    bytes: Vec<u8>,
    place: Place,
}

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A line of NDJSON.
    Line,
    /// The array, or the first object.
    Start,
    /// The first element of the array, or its end.
    Opened,
    /// A comma, or the end of the array.
    BetweenElements,
    /// Another object, or the end of the input.
    BetweenObjects,
    /// The end of the input.
    Closed,
}

impl Objects {
    pub(super) fn open(input: &mut Input, is_array: bool) -> Result<Objects> {
        let place = if is_array { Place::Start } else { Place::Line };
        let line = u64::from(is_array);
        Ok(Objects { name: input.name(), reader: input.reader()?, line, bytes: Vec::new(), place })
    }
}

impl DocumentSource for Objects {
    fn next(&mut self) -> Result<Option<(u64, Document)>> {
        self.bytes.clear();
        let line = match self.place {
            Place::Line => self.next_line()?,
            _ => self.next_element()?,
        };
        let Some(line) = line else { return Ok(None) };
        let text = std::str::from_utf8(&self.bytes).map_err(|_| {
            let hint = "convert the input to UTF-8, or look whether it is JSON at all";
            Failure::data(format!("line {line}: not UTF-8"), hint)
        })?;
        let document = Document::from_json(text).map_err(|error| {
            let own = error.hint();
            let hint = match self.place {
                _ if !own.is_empty() => &own,
                Place::Line if text.trim_start().starts_with('[') => "a JSON array needs --format json",
                Place::Line if text.trim_end().ends_with('}') => {
                    "NDJSON is one JSON object a line: look for a comma or a quote too many or too few"
                }
                Place::Line => {
                    "NDJSON is one JSON object a line; objects over several lines need --format json"
                }
                _ => "JSON is an array of objects, or objects one after the other",
            };
            Failure::data(format!("line {line}: {}", error.message()), hint)
        })?;
        Ok(Some((line, document)))
    }
}

impl Objects {
    /// Reads the next line that is not empty.
    fn next_line(&mut self) -> Result<Option<u64>> {
        loop {
            self.bytes.clear();
            let read = self.reader.read_until(b'\n', &mut self.bytes);
            if read.map_err(|error| read_failure(&self.name, &error))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if !self.bytes.trim_ascii().is_empty() {
                return Ok(Some(self.line));
            }
        }
    }

    /// Reads the next object of an array or of a sequence.
    fn next_element(&mut self) -> Result<Option<u64>> {
        loop {
            let found = self.skip_space()?;
            self.place = match (self.place, found) {
                (Place::Start, Some(b'[')) => Place::Opened,
                (Place::Opened | Place::BetweenElements, Some(b']')) => Place::Closed,
                (Place::BetweenElements, Some(b',')) => {
                    self.reader.consume(1);
                    if self.skip_space()? != Some(b'{') {
                        return Err(self.wrong("an object is wanted after the comma"));
                    }
                    return self.object().map(Some);
                }
                (Place::Opened, Some(b'{')) => {
                    self.place = Place::BetweenElements;
                    return self.object().map(Some);
                }
                (Place::Start | Place::BetweenObjects, Some(b'{')) => {
                    self.place = Place::BetweenObjects;
                    return self.object().map(Some);
                }
                (Place::Start | Place::BetweenObjects | Place::Closed, None) => return Ok(None),
                (_, None) => return Err(self.wrong("the input ends before the array does")),
                (Place::BetweenElements, Some(_)) => {
                    return Err(self.wrong("a comma or the end of the array is wanted"));
                }
                (Place::Closed, Some(_)) => return Err(self.wrong("something follows the array")),
                (_, Some(_)) => return Err(self.wrong("an object is wanted, in braces")),
            };
            self.reader.consume(1);
        }
    }

    fn wrong(&self, what: &str) -> Failure {
        let hint =
            "JSON is an array of objects, or objects one after the other: look whether the file is whole";
        Failure::data(format!("line {}: {what}", self.line), hint)
    }

    /// The next byte that is no white space, without consuming it.
    fn skip_space(&mut self) -> Result<Option<u8>> {
        loop {
            let bytes = fill(&mut self.reader).map_err(|error| read_failure(&self.name, &error))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let space = bytes.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
            self.line += count_lines(&bytes[..space]);
            let found = bytes.get(space).copied();
            self.reader.consume(space);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Reads the object that begins here. Returns its line.
    fn object(&mut self) -> Result<u64> {
        let line = self.line;
        let (mut depth, mut in_text, mut is_escaped) = (0_u64, false, false);
        loop {
            let bytes = fill(&mut self.reader).map_err(|error| read_failure(&self.name, &error))?;
            if bytes.is_empty() {
                let hint = "close its braces and quotes, or look whether the file is whole";
                return Err(Failure::data(format!("line {line}: this object has no end"), hint));
            }
            let end = bytes.iter().position(|byte| {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' if in_text => is_escaped = true,
                    b'"' => in_text = !in_text,
                    b'{' | b'[' if !in_text => depth += 1,
                    b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0
            });
            let count = end.map_or(bytes.len(), |end| end + 1);
            self.bytes.extend_from_slice(&bytes[..count]);
            self.line += count_lines(&bytes[..count]);
            self.reader.consume(count);
            if end.is_some() {
                return Ok(line);
            }
        }
    }
}

/// The buffered bytes; an interrupted read is repeated.
fn fill(reader: &mut Reader) -> io::Result<&[u8]> {
    while let Err(error) = reader.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    reader.fill_buf()
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
