//! A table: a row of names, rows of figures, and a scroll box of its own where it is wider than the page.

use crate::report::escape;
use crate::report::section::Tone;

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    text: String,
    /// The fraction of the cell that a bar behind the text fills.
    bar: Option<f64>,
}

impl Cell {
    /// The same cell with a bar behind its text that fills this fraction of it, between 0 and 1.
    #[must_use]
    pub fn bar(mut self, part: f64) -> Cell {
        self.bar = Some(part);
        self
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), bar: None }
    }
}

/// A table. The first column names the rows; the others hold figures, aligned right, unless changed by
/// [`Table::words`].
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<(Tone, Vec<Cell>)>,
    words: Vec<usize>,
    caption: String,
}

impl Table {
    /// A table with these names of columns.
    #[must_use]
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Table {
        let header = header.into_iter().map(Into::into).collect();
        Table { header, rows: Vec::new(), words: Vec::new(), caption: String::new() }
    }

    /// A sentence above it.
    #[must_use]
    pub fn caption(mut self, text: impl Into<String>) -> Table {
        self.caption = text.into();
        self
    }

    /// A column of words, aligned left; the first is 0.
    #[must_use]
    pub fn words(mut self, column: usize) -> Table {
        self.words.push(column);
        self
    }

    /// One more row.
    #[must_use]
    pub fn row<T: Into<Cell>>(self, cells: impl IntoIterator<Item = T>) -> Table {
        self.toned(Tone::Plain, cells)
    }

    /// One more row, with a tone.
    #[must_use]
    pub fn toned<T: Into<Cell>>(mut self, tone: Tone, cells: impl IntoIterator<Item = T>) -> Table {
        self.rows.push((tone, cells.into_iter().map(Into::into).collect()));
        self
    }

    pub(crate) fn write(&self, out: &mut String) {
        out.push_str("<div class=\"scroll\" tabindex=\"0\"><table>");
        if !self.caption.is_empty() {
            out.push_str(&format!("<caption>{}</caption>", escape::text(&self.caption)));
        }
        out.push_str("<thead><tr>");
        for (index, name) in self.header.iter().enumerate() {
            let class = self.class(index);
            out.push_str(&format!("<th scope=\"col\"{class}>{}</th>", escape::text(name)));
        }
        out.push_str("</tr></thead><tbody>");
        for (tone, cells) in &self.rows {
            out.push_str(&format!("<tr class=\"{}\">", tone.class()));
            for (index, cell) in cells.iter().enumerate() {
                self.write_cell(index, cell, out);
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>\n");
    }

    fn write_cell(&self, index: usize, cell: &Cell, out: &mut String) {
        let text = escape::text(&cell.text);
        if index == 0 {
            out.push_str(&format!("<th scope=\"row\">{text}</th>"));
            return;
        }
        let class = self.class(index);
        match cell.bar {
            Some(part) => {
                let percent = part.clamp(0.0, 1.0) * 100.0;
                out.push_str(&format!(
                    "<td{class}><span class=\"meter\" style=\"--part:{percent:.1}%\">{text}</span></td>"
                ));
            }
            None => out.push_str(&format!("<td{class}>{text}</td>")),
        }
    }

    fn class(&self, column: usize) -> &'static str {
        if column == 0 || self.words.contains(&column) { " class=\"words\"" } else { "" }
    }
}
