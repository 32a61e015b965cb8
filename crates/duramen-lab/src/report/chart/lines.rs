//! A chart of lines: points in order, joined, each with its observed range, and named positions.

use std::fmt::Write;

use super::axis::{Axis, Scale};
use super::{COLOUR_COUNT, SIDE, begin_figure, coordinate, write_grid, write_x_labels};
use crate::report::escape;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    ranges: Vec<(f64, f64, f64)>,
    is_dashed: bool,
}

impl Line {
    /// A line through points (x, y), in order of x.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
        let points = points.into_iter().collect();
        Line { name: name.into(), points, ranges: Vec::new(), is_dashed: false }
    }

    /// The same line with ranges (x, least, most), drawn as a band behind it.
    #[must_use]
    pub fn ranges(mut self, ranges: impl IntoIterator<Item = (f64, f64, f64)>) -> Line {
        self.ranges = ranges.into_iter().collect();
        self
    }

    /// The same line in dashes, so that lines differ without colours.
    #[must_use]
    pub fn dashed(mut self) -> Line {
        self.is_dashed = true;
        self
    }
}

/// A chart of lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
    marks: Vec<(f64, String)>,
    levels: Vec<(f64, String)>,
}

impl Lines {
    /// An empty chart.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Lines {
        Lines { title: title.into(), x, y, lines: Vec::new(), marks: Vec::new(), levels: Vec::new() }
    }

    /// One more line.
    #[must_use]
    pub fn line(mut self, line: Line) -> Lines {
        self.lines.push(line);
        self
    }

    /// A named position on the x axis, drawn from top to bottom.
    #[must_use]
    pub fn mark(mut self, x: f64, name: impl Into<String>) -> Lines {
        self.marks.push((x, name.into()));
        self
    }

    /// A value of the y axis with a name, drawn from side to side.
    #[must_use]
    pub fn level(mut self, y: f64, name: impl Into<String>) -> Lines {
        self.levels.push((y, name.into()));
        self
    }

    pub(crate) fn write(&self, out: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let ranges = || self.lines.iter().flat_map(|line| &line.ranges);
        let marks = self.marks.iter().map(|(x, _)| *x);
        let levels = self.levels.iter().map(|(y, _)| *y);
        let x = self.x.scale(points().map(|(x, _)| *x).chain(marks));
        let of_ranges = ranges().flat_map(|(_, least, most)| [*least, *most]);
        let y = self.y.scale(points().map(|(_, y)| *y).chain(of_ranges).chain(levels));
        begin_figure(&self.title, out);
        self.write_legend(out);
        if !y.name().is_empty() {
            let _ = write!(out, "<p class=\"axis\">{}</p>", escape::text(y.name()));
        }
        let _ = write!(out, "<div class=\"plot\" style=\"--letters:{}\">", y.letters_max());
        out.push_str("<div class=\"y-labels\" aria-hidden=\"true\">");
        for tick in y.ticks().filter(|tick| !tick.label.is_empty()) {
            let bottom = tick.part * 100.0;
            let _ = write!(out, "<span style=\"bottom:{bottom:.2}%\">{}</span>", escape::text(&tick.label));
        }
        out.push_str("</div><div class=\"area\">");
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
            escape::text(&self.title)
        );
        write_grid(&x, Some(&y), out);
        for (level, _) in &self.levels {
            let _ =
                write!(out, "<path class=\"level\" d=\"M0 {}H{SIDE}\"/>", coordinate(1.0 - y.part(*level)));
        }
        for (place, _) in &self.marks {
            let _ = write!(out, "<path class=\"mark\" d=\"M{} 0V{SIDE}\"/>", coordinate(x.part(*place)));
        }
        for (index, line) in self.lines.iter().enumerate() {
            self.write_line(index, line, &x, &y, out);
        }
        out.push_str("</svg>");
        self.write_names(&x, &y, out);
        out.push_str("</div>");
        write_x_labels(&x, out);
        out.push_str("</div></figure>\n");
    }

    /// A single line needs no legend: the title names it.
    fn write_legend(&self, out: &mut String) {
        if self.lines.len() < 2 {
            return;
        }
        out.push_str("<ul class=\"legend\">");
        for (index, line) in self.lines.iter().enumerate() {
            let _ = write!(
                out,
                "<li><svg viewBox=\"0 0 28 8\" aria-hidden=\"true\"><path class=\"{}\" d=\"M0 4H28\"/></svg>{}</li>",
                class_of(index, line),
                escape::text(&line.name)
            );
        }
        out.push_str("</ul>");
    }

    fn write_line(&self, index: usize, line: &Line, x: &Scale, y: &Scale, out: &mut String) {
        let place =
            |at: f64, value: f64| format!("{} {}", coordinate(x.part(at)), coordinate(1.0 - y.part(value)));
        if !line.ranges.is_empty() {
            let upper = line.ranges.iter().map(|(at, _, most)| place(*at, *most));
            let lower = line.ranges.iter().rev().map(|(at, least, _)| place(*at, *least));
            let outline: Vec<String> = upper.chain(lower).collect();
            let colour = index % COLOUR_COUNT;
            let _ = write!(out, "<path class=\"band c{colour}\" d=\"M{}Z\"/>", outline.join("L"));
        }
        let places: Vec<String> = line.points.iter().map(|(at, value)| place(*at, *value)).collect();
        if !places.is_empty() {
            let _ = write!(out, "<path class=\"{}\" d=\"M{}\"/>", class_of(index, line), places.join("L"));
        }
        for (dot, (at, value)) in places.iter().zip(&line.points) {
            let words =
                format!("{}: {} at {}", line.name, self.y.unit().text(*value), self.x.unit().text(*at));
            let _ = write!(
                out,
                "<path class=\"dot c{}\" d=\"M{dot}h0.01\"><title>{}</title></path>",
                index % COLOUR_COUNT,
                escape::text(&words)
            );
        }
    }

    /// Names of marks are at the top, on the side of the mark with more room; names of levels are above their
    /// lines.
    fn write_names(&self, x: &Scale, y: &Scale, out: &mut String) {
        for (place, name) in &self.marks {
            let part = x.part(*place);
            let (side, percent) = if part > 0.5 { ("right", 1.0 - part) } else { ("left", part) };
            let _ = write!(
                out,
                "<span class=\"mark-name\" style=\"{side}:{:.2}%\">{}</span>",
                percent * 100.0,
                escape::text(name)
            );
        }
        for (level, name) in &self.levels {
            let _ = write!(
                out,
                "<span class=\"level-name\" style=\"bottom:{:.2}%\">{}</span>",
                y.part(*level) * 100.0,
                escape::text(name)
            );
        }
    }
}

fn class_of(index: usize, line: &Line) -> String {
    let dashes = if line.is_dashed { " dashed" } else { "" };
    format!("line c{}{dashes}", index % COLOUR_COUNT)
}
