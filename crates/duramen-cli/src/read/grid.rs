//! Rows in columns, printed as they come. The first rows set the widths, so memory does not grow with the
//! number of rows.

use std::io::Write;

use duramen::Document;
use duramen::schema::{Column, ColumnType};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::shown;
use crate::failure::{Failure, Result};
use crate::output::{Output, flush, printable, terminal_columns};

/// Rows that determine the widths.
const SAMPLE_ROWS: usize = 200;

/// Widest column, in characters of the terminal.
const WIDTH_MAX: usize = 40;

/// A grid of named columns with their types.
pub(crate) struct Grid<'a> {
    columns: &'a [Column],
    widths: Vec<usize>,
    /// How many of the columns fit in the terminal.
    fitting: usize,
}

impl Grid<'_> {
    pub(crate) fn new(columns: &[Column]) -> Grid<'_> {
        let width = |column: &Column| printable(&column.name).width().max(column.kind.name().len());
        let widths = columns.iter().map(|column| width(column).min(WIDTH_MAX)).collect();
        Grid { columns, widths, fitting: columns.len() }
    }

    /// Prints at most `limit` documents. Returns how many there were.
    pub(crate) fn show(
        mut self,
        mut next: impl FnMut() -> Result<Option<Document>>,
        limit: u64,
        out: Output,
    ) -> Result<u64> {
        let mut sample = Vec::new();
        while (sample.len() as u64) < limit.min(SAMPLE_ROWS as u64)
            && let Some(document) = next()?
        {
            let cells = self.cells(&document);
            for (width, cell) in self.widths.iter_mut().zip(&cells) {
                *width = cell.width().min(WIDTH_MAX).max(*width);
            }
            sample.push(cells);
        }
        if sample.is_empty() {
            return Ok(0);
        }
        self.fit(terminal_columns().map(usize::from));
        let mut stream = out.stream();
        self.header(&mut stream)?;
        let mut count = 0_u64;
        for cells in sample {
            self.line(&mut stream, &cells)?;
            count += 1;
        }
        while count < limit
            && let Some(document) = next()?
        {
            let cells = self.cells(&document);
            self.line(&mut stream, &cells)?;
            count += 1;
        }
        flush(&mut stream)?;
        if self.fitting < self.columns.len() {
            let hidden: Vec<&str> =
                self.columns[self.fitting..].iter().map(|column| column.name.as_str()).collect();
            let hidden = printable(&hidden.join(", "));
            out.note(&format!("not shown for want of room: {hidden}; --json shows all"));
        }
        Ok(count)
    }

    /// Prints the names, and the types under them.
    fn header(&self, stream: &mut impl Write) -> Result<()> {
        let texts = |text: fn(&Column) -> String| self.columns.iter().map(text).collect::<Vec<_>>();
        self.line(stream, &texts(|column| printable(&column.name)))?;
        self.line(stream, &texts(|column| column.kind.name().to_owned()))?;
        let rule: Vec<String> = self.widths.iter().map(|width| "─".repeat(*width)).collect();
        self.line(stream, &rule)
    }

    fn cells(&self, document: &Document) -> Vec<String> {
        let cell = |column: &Column| {
            document.get(&column.name).map_or_else(String::new, |value| printable(&shown(value)))
        };
        self.columns.iter().map(cell).collect()
    }

    /// Leaves out the columns on the right that do not fit, but never the first.
    fn fit(&mut self, width: Option<usize>) {
        let Some(width) = width else { return };
        let mut used = 0;
        self.fitting = self
            .widths
            .iter()
            .take_while(|column| {
                used += *column + 2;
                used <= width + 2
            })
            .count()
            .max(1);
    }

    fn line(&self, stream: &mut impl Write, cells: &[String]) -> Result<()> {
        let mut line = String::new();
        for ((cell, width), column) in cells.iter().zip(&self.widths).zip(self.columns).take(self.fitting) {
            let is_number = matches!(column.kind, ColumnType::Int | ColumnType::Float);
            if is_number {
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width())));
            }
            pad(&mut line, cell, if is_number { cell.width().min(*width) } else { *width });
            line.push_str("  ");
        }
        writeln!(stream, "{}", line.trim_end()).map_err(|error| Failure::output(&error))
    }
}

/// Appends a text in exactly this width, cut with a mark if it is longer.
fn pad(line: &mut String, text: &str, width: usize) {
    let whole = text.width();
    if whole <= width {
        line.push_str(text);
        line.extend(std::iter::repeat_n(' ', width - whole));
        return;
    }
    let mut used = 1;
    for character in text.chars() {
        let next = character.width().unwrap_or(0);
        if used + next > width {
            break;
        }
        used += next;
        line.push(character);
    }
    line.push('…');
    line.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
}

#[cfg(test)]
mod tests {
    //! Columns line up whatever they contain.
    use super::*;

    #[test]
    fn texts_are_padded_and_cut_by_what_the_terminal_shows() {
        for (text, width, expected) in
            [("ab", 4, "ab  "), ("abcdef", 4, "abc…"), ("日本語", 4, "日… "), ("", 2, "  ")]
        {
            let mut line = String::new();
            pad(&mut line, text, width);
            assert_eq!(line, expected);
        }
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out() {
        let columns: Vec<Column> = ["aaaa", "bbbb", "cccc"]
            .map(|name| Column { name: name.to_owned(), kind: ColumnType::Text })
            .to_vec();
        let mut grid = Grid::new(&columns);
        grid.fit(Some(10));
        assert_eq!(grid.fitting, 2);
        grid.fit(Some(2));
        assert_eq!(grid.fitting, 1);
    }
}
