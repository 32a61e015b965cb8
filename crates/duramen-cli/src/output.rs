//! The only module that prints.
//!
//! Owns standard output and standard error: results on the one, notes and errors on the other. Prints JSON
//! where requested; uses colour only on a terminal that supports it. A closed output ends the command
//! silently.

use std::io::{self, BufWriter, IsTerminal, Write};

use comfy_table::Table;
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
        self.line(&table.to_string())
    }

    /// A note beside the result: for users, so not under `--json` or `--quiet`.
    pub(crate) fn note(self, text: &str) {
        if !self.json && !self.quiet {
            // If standard error is closed, nothing can be reported.
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// A buffered standard output for many lines; [`flush`] it at the end.
    pub(crate) fn stream(self) -> BufWriter<io::Stdout> {
        BufWriter::with_capacity(64 * 1024, io::stdout())
    }

    /// The error of a command.
    pub(crate) fn failure(self, failure: &Failure) {
        let Failure::Said(said) = failure else { return };
        let _ = if self.json { json_error(said) } else { plain_error(said) };
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

/// Text with control characters escaped, so that it cannot move the cursor or recolour the terminal.
pub(crate) fn printable(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A word quoted for a Unix shell.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "_-./,:+@%=".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Asks on the terminal; `false` unless the answer is `yes`. Without a terminal it does not ask.
pub(crate) fn confirm(question: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    // ^C at the prompt ends the process, in a shell too.
    Signals::rest();
    let mut err = io::stderr().lock();
    let asked = write!(err, "{question} Type yes to go on: ").and_then(|()| err.flush());
    let mut answer = String::new();
    asked.is_ok() && io::stdin().read_line(&mut answer).is_ok() && answer.trim() == "yes"
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
