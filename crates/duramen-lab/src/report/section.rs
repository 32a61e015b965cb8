//! A section of a page: a heading, then paragraphs, notes, facts, tables and charts in the given order.

use crate::report::chart::{Bars, Histograms, Lines};
use crate::report::escape;
use crate::report::table::Table;

/// Whether something is good or bad news. Never shown by colour alone: the text beside it states it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Neither.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Needs attention.
    Warn,
    /// Data may be lost.
    Bad,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Tone::Plain => "plain",
            Tone::Good => "good",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Note { tone: Tone, head: String, text: String },
    Facts(Vec<(String, String)>),
    Code(String),
    Table(Table),
    Folded(String, Table),
    Lines(Lines),
    Bars(Bars),
    Histograms(Histograms),
}

/// One section.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    heading: String,
    parts: Vec<Part>,
}

impl Section {
    /// An empty section under a heading.
    #[must_use]
    pub fn new(heading: impl Into<String>) -> Section {
        Section { heading: heading.into(), parts: Vec::new() }
    }

    /// A paragraph of plain text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Section {
        self.with(Part::Text(text.into()))
    }

    /// A framed remark: a word or two in bold, then a sentence.
    #[must_use]
    pub fn note(self, tone: Tone, head: impl Into<String>, text: impl Into<String>) -> Section {
        self.with(Part::Note { tone, head: head.into(), text: text.into() })
    }

    /// Names with their values, one per line.
    #[must_use]
    pub fn facts<N: Into<String>, T: Into<String>>(self, facts: impl IntoIterator<Item = (N, T)>) -> Section {
        self.with(Part::Facts(facts.into_iter().map(|(name, text)| (name.into(), text.into())).collect()))
    }

    /// Text for or from a program, in a fixed-width font: a command line, a log.
    #[must_use]
    pub fn code(self, text: impl Into<String>) -> Section {
        self.with(Part::Code(text.into()))
    }

    /// A table.
    #[must_use]
    pub fn table(self, table: Table) -> Section {
        self.with(Part::Table(table))
    }

    /// A table that is opened by a click on these words: details that few readers need.
    #[must_use]
    pub fn folded(self, words: impl Into<String>, table: Table) -> Section {
        self.with(Part::Folded(words.into(), table))
    }

    /// A chart of lines.
    #[must_use]
    pub fn lines(self, chart: Lines) -> Section {
        self.with(Part::Lines(chart))
    }

    /// A chart of bars.
    #[must_use]
    pub fn bars(self, chart: Bars) -> Section {
        self.with(Part::Bars(chart))
    }

    /// Histograms over one axis.
    #[must_use]
    pub fn histograms(self, chart: Histograms) -> Section {
        self.with(Part::Histograms(chart))
    }

    fn with(mut self, part: Part) -> Section {
        self.parts.push(part);
        self
    }

    pub(crate) fn write(&self, out: &mut String) {
        out.push_str(&format!("<section><h2>{}</h2>\n", escape::text(&self.heading)));
        for part in &self.parts {
            part.write(out);
        }
        out.push_str("</section>\n");
    }
}

impl Part {
    fn write(&self, out: &mut String) {
        match self {
            Part::Text(text) => out.push_str(&format!("<p>{}</p>\n", escape::text(text))),
            Part::Note { tone, head, text } => out.push_str(&format!(
                "<p class=\"note {}\"><strong>{}</strong> {}</p>\n",
                tone.class(),
                escape::text(head),
                escape::text(text)
            )),
            Part::Facts(facts) => {
                out.push_str("<dl>");
                for (name, text) in facts {
                    out.push_str(&format!("<dt>{}</dt><dd>{}</dd>", escape::text(name), escape::text(text)));
                }
                out.push_str("</dl>\n");
            }
            Part::Code(text) => {
                out.push_str(&format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", escape::text(text)));
            }
            Part::Table(table) => table.write(out),
            Part::Folded(words, table) => {
                out.push_str(&format!("<details><summary>{}</summary>\n", escape::text(words)));
                table.write(out);
                out.push_str("</details>\n");
            }
            Part::Lines(chart) => chart.write(out),
            Part::Bars(chart) => chart.write(out),
            Part::Histograms(chart) => chart.write(out),
        }
    }
}
