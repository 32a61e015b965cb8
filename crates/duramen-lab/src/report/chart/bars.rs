//! Bars below each other, each with its name and figure, in groups or not.

use std::fmt::Write;

use super::{COLOUR_COUNT, begin_figure};
use crate::report::escape;
use crate::report::section::Tone;
use crate::report::unit::Unit;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    name: String,
    value: f64,
    note: String,
    tone: Tone,
    colour: usize,
}

impl Bar {
    /// A bar of this length.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64) -> Bar {
        Bar { name: name.into(), value, note: String::new(), tone: Tone::Plain, colour: 0 }
    }

    /// A note after the figure, and its tone.
    #[must_use]
    pub fn note(mut self, tone: Tone, text: impl Into<String>) -> Bar {
        (self.tone, self.note) = (tone, text.into());
        self
    }

    /// One of the line colours, counted from 0: use the same colour for the same thing in every chart of a
    /// page.
    #[must_use]
    pub fn colour(mut self, index: usize) -> Bar {
        self.colour = index % COLOUR_COUNT;
        self
    }
}

/// A chart of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    title: String,
    unit: Unit,
    groups: Vec<(String, Vec<Bar>)>,
}

impl Bars {
    /// An empty chart.
    #[must_use]
    pub fn new(title: impl Into<String>, unit: Unit) -> Bars {
        Bars { title: title.into(), unit, groups: Vec::new() }
    }

    /// Bars under a heading; an empty heading is left out. Bars of all groups have one scale.
    #[must_use]
    pub fn group(mut self, heading: impl Into<String>, bars: impl IntoIterator<Item = Bar>) -> Bars {
        self.groups.push((heading.into(), bars.into_iter().collect()));
        self
    }

    pub(crate) fn write(&self, out: &mut String) {
        let bars = self.groups.iter().flat_map(|(_, bars)| bars);
        let most = bars.map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
        begin_figure(&self.title, out);
        for (heading, bars) in &self.groups {
            if !heading.is_empty() {
                let _ = write!(out, "<p class=\"axis\">{}</p>", escape::text(heading));
            }
            out.push_str("<ul class=\"bars\">");
            for bar in bars {
                let part = if most > 0.0 { (bar.value / most).clamp(0.0, 1.0) } else { 0.0 };
                let _ = write!(
                    out,
                    "<li class=\"{} c{}\"><span>{}</span><span class=\"track\"><i style=\"width:{:.2}%\"></i></span>\
                     <b>{}</b><em>{}</em></li>",
                    bar.tone.class(),
                    bar.colour,
                    escape::text(&bar.name),
                    part * 100.0,
                    escape::text(&self.unit.text(bar.value)),
                    escape::text(&bar.note)
                );
            }
            out.push_str("</ul>");
        }
        out.push_str("</figure>\n");
    }
}
