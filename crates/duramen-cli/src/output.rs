//! The only module that prints.
//!
//! Owns standard output and standard error: results on the one, notes and errors on the other. Prints JSON
//! where requested; uses colour only on a terminal that supports it. A closed output ends the command
//! silently.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table};
use duramen::{Document, json};

use crate::failure::{Failure, Result, Said};
use crate::signals::Signals;

/// How results are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether notes are suppressed.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Whether a progress bar on standard error would be visible and wanted.
    pub(crate) fn shows_progress(self) -> bool {
        !self.json && !self.quiet && io::stderr().is_terminal()
    }

    /// One line of a result.
    pub(crate) fn line(self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        let text = if out.is_terminal() { for_terminal(text) } else { Cow::Borrowed(text) };
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }

    /// A result as one JSON object of version 1.
    pub(crate) fn object(self, kind: &str, fields: Document) -> Result<()> {
        let mut object = Document::new().with("v", 1).with("kind", kind);
        for (name, value) in fields.iter() {
            object.set(name, value.clone());
        }
        self.line(&object.to_json()?)
    }

    /// A result as a table.
    pub(crate) fn table(self, table: &Table) -> Result<()> {
        self.line(&fitted(table.clone(), terminal_columns()).to_string())
    }

    /// A note beside the result: for users, so not under `--json` or `--quiet`.
    pub(crate) fn note(self, text: &str) {
        if !self.json && !self.quiet {
            // If standard error is closed, nothing can be reported.
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// A warning about a result that may not be what the user wants. Under `--json` it is an object on
    /// standard error.
    pub(crate) fn warning(self, message: &str, hint: &str) {
        if !self.quiet {
            let _ = if self.json { json_warning(message, hint) } else { plain_warning(message, hint) };
        }
    }

    /// A buffered standard output for many lines; [`flush`] it at the end.
    pub(crate) fn stream(self) -> BufWriter<Stream> {
        let is_terminal = io::stdout().is_terminal();
        BufWriter::with_capacity(64 * 1024, Stream { is_terminal, cut: Vec::new() })
    }

    /// The error of a command.
    pub(crate) fn failure(self, failure: &Failure) {
        let Failure::Said(said) = failure else { return };
        let _ = if self.json { json_error(said) } else { plain_error(said) };
    }
}

/// Standard output. What goes to a terminal is escaped as [`printable`] does.
pub(crate) struct Stream {
    is_terminal: bool,
    /// The first bytes of a character whose rest has not come yet.
    cut: Vec<u8>,
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return io::stdout().write(bytes);
        }
        self.cut.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.cut) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.cut.len(),
        };
        let text: Vec<u8> = self.cut.drain(..whole).collect();
        io::stdout().write_all(for_terminal(&String::from_utf8_lossy(&text)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Flushes the buffer.
pub(crate) fn flush(out: &mut impl Write) -> Result<()> {
    out.flush().map_err(|error| Failure::output(&error))
}

fn plain_error(said: &Said) -> io::Result<()> {
    let mut err = anstream::stderr().lock();
    writeln!(err, "\x1b[1;31merror[{}]\x1b[0m: {}", said.code, printable(&said.message))?;
    if !said.hint.is_empty() {
        writeln!(err, "\x1b[1;36mhint\x1b[0m: {}", printable(&said.hint))?;
    }
    err.flush()
}

fn plain_warning(message: &str, hint: &str) -> io::Result<()> {
    let mut err = anstream::stderr().lock();
    writeln!(err, "\x1b[1;33mwarning\x1b[0m: {}", printable(message))?;
    writeln!(err, "\x1b[1;36mhint\x1b[0m: {}", printable(hint))?;
    err.flush()
}

fn json_warning(message: &str, hint: &str) -> io::Result<()> {
    let mut line = b"{\"v\":1,\"kind\":\"warning\",\"message\":".to_vec();
    json::write_text(&mut line, message);
    line.extend_from_slice(b",\"hint\":");
    json::write_text(&mut line, hint);
    line.extend_from_slice(b"}\n");
    io::stderr().lock().write_all(&line)
}

fn json_error(said: &Said) -> io::Result<()> {
    let mut line = Vec::new();
    line.extend_from_slice(b"{\"v\":1,\"code\":");
    json::write_text(&mut line, &said.code.to_string());
    line.extend_from_slice(b",\"message\":");
    json::write_text(&mut line, &said.message);
    line.extend_from_slice(b",\"hint\":");
    json::write_text(&mut line, &said.hint);
    line.extend_from_slice(b"}\n");
    io::stderr().lock().write_all(&line)
}

/// Text in which no character can move the cursor, recolour the terminal or reorder what is read. Control and
/// bidirectional characters are escaped as in JSON, which stays the same JSON.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, moves_text).into_owned()
}

/// The same for lines: their ends are kept.
fn for_terminal(lines: &str) -> Cow<'_, str> {
    escaped(lines, |character| character != '\n' && moves_text(character))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' if is_escaped('\n') => shown.push_str("\\n"),
            '\t' if is_escaped('\t') => shown.push_str("\\t"),
            '\r' if is_escaped('\r') => shown.push_str("\\r"),
            character if is_escaped(character) => {
                write!(shown, "\\u{:04x}", u32::from(character)).expect("a string takes any text");
            }
            character => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// A control character, or one that changes the direction of the text around it.
fn moves_text(character: char) -> bool {
    let is_bidirectional = matches!(
        character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_bidirectional
}

/// The width of the terminal on standard output, if it is one.
pub(crate) fn terminal_columns() -> Option<u16> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(columns)
}

/// A table with its cells wrapped to a width.
fn fitted(mut table: Table, columns: Option<u16>) -> Table {
    if let Some(columns) = columns {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    }
    table
}

/// A word quoted for a Unix shell.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "_-./,:+@%=".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Asks on the terminal: whether the answer is `yes`. Without a terminal it does not ask.
pub(crate) fn confirm(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    // ^C at the prompt ends the process, in a shell too.
    Signals::rest();
    let mut err = io::stderr().lock();
    let asked = write!(err, "{question} Type yes to go on: ").and_then(|()| err.flush());
    let mut answer = String::new();
    Some(asked.is_ok() && io::stdin().read_line(&mut answer).is_ok() && answer.trim() == "yes")
}

/// An empty table in the common style.
pub(crate) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED).set_header(header.iter().copied());
    table
}

/// Aligns columns of numbers.
pub(crate) fn align_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests {
    //! What reaches a terminal moves nothing there, and fits.
    use super::*;

    #[test]
    fn nothing_moves_the_cursor_or_turns_the_text_around() {
        assert_eq!(printable("a\u{1b}[2J\n\u{202e}b\u{9b}"), "a\\u001b[2J\\n\\u202eb\\u009b");
        assert_eq!(for_terminal("{\"a\":\"\u{2066}\"}\nb"), "{\"a\":\"\\u2066\"}\nb");
        assert_eq!(printable("Größe 表"), "Größe 表");
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let mut table = new_table(&["name", "what it is"]);
        table.add_row(["one", &"many words that go on for a while ".repeat(9)]);
        let widest = |table: Table| table.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest(fitted(table.clone(), Some(60))), Some(60));
        assert!(widest(fitted(table, None)) > Some(300), "a file takes lines of any length");
    }
}
