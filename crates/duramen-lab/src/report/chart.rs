//! Charts, drawn once for every width: the drawing stretches with the page, and its labels are text of the
//! page.
//!
//! Owns the frame that all charts with axes share. Lines keep their thickness when they are stretched. A
//! point is a line of zero length with round ends, so that it keeps its shape too.

mod axis;
mod bars;
mod histograms;
mod lines;

pub use axis::Axis;
pub use bars::{Bar, Bars};
pub use histograms::{Histogram, Histograms};
pub use lines::{Line, Lines};

use self::axis::Scale;
use crate::report::escape;

/// Units of a drawing in both directions, whatever its size on the page.
const SIDE: f64 = 1000.0;

/// Colours of lines, as the style sheet numbers them.
const COLOUR_COUNT: usize = 6;

/// A coordinate: parts of [`SIDE`] from the left or, for heights, from the top.
fn coordinate(part: f64) -> String {
    let place = if part.is_finite() { part.clamp(-0.02, 1.02) * SIDE } else { 0.0 };
    format!("{place:.1}")
}

fn begin_figure(title: &str, out: &mut String) {
    out.push_str(&format!("<figure><figcaption>{}</figcaption>\n", escape::text(title)));
}

/// The grid of a drawing, behind its contents.
fn write_grid(x: &Scale, y: Option<&Scale>, out: &mut String) {
    let mut path = String::new();
    for tick in x.ticks() {
        path.push_str(&format!("M{} 0V{SIDE}", coordinate(tick.part)));
    }
    for tick in y.into_iter().flat_map(Scale::ticks) {
        path.push_str(&format!("M0 {}H{SIDE}", coordinate(1.0 - tick.part)));
    }
    out.push_str(&format!("<path class=\"grid\" d=\"{path}\"/>"));
}

/// The labels below a drawing, and their unit.
fn write_x_labels(scale: &Scale, out: &mut String) {
    out.push_str("<div class=\"x-labels\" aria-hidden=\"true\">");
    for tick in scale.labelled() {
        let wide = if tick.is_for_wide_only { " wide" } else { "" };
        out.push_str(&format!(
            "<span class=\"{}{wide}\" style=\"left:{:.2}%\">{}</span>",
            tick.side(),
            tick.part * 100.0,
            escape::text(&tick.label)
        ));
    }
    out.push_str("</div>");
    if !scale.name().is_empty() {
        out.push_str(&format!("<p class=\"axis\">{}</p>", escape::text(scale.name())));
    }
}
