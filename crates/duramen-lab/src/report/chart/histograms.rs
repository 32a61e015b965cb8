//! Histograms below each other over one logarithmic axis, so that slower ones are further right.
//!
//! Owns the buckets: equal ratios, the same for all. Each histogram has its own height; its note has its
//! sample count.

use std::fmt::Write;

use super::axis::Axis;
use super::{SIDE, begin_figure, coordinate, write_grid, write_x_labels};
use crate::report::escape;
use crate::report::section::Tone;
use crate::report::unit::Unit;

/// Buckets of the axis.
const BUCKET_COUNT: usize = 120;

/// One histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    name: String,
    note: String,
    tone: Tone,
    samples: Vec<f64>,
    marks: Vec<(f64, String)>,
}

impl Histogram {
    /// Of samples above 0, in any order.
    #[must_use]
    pub fn new(name: impl Into<String>, samples: impl IntoIterator<Item = f64>) -> Histogram {
        let samples = samples.into_iter().filter(|sample| sample.is_finite() && *sample > 0.0).collect();
        let (name, note) = (name.into(), String::new());
        Histogram { name, note, tone: Tone::Plain, samples, marks: Vec::new() }
    }

    /// Words beside the name: figures, or a warning.
    #[must_use]
    pub fn note(mut self, tone: Tone, text: impl Into<String>) -> Histogram {
        (self.tone, self.note) = (tone, text.into());
        self
    }

    /// A value with a name, drawn as a line.
    #[must_use]
    pub fn mark(mut self, value: f64, name: impl Into<String>) -> Histogram {
        self.marks.push((value, name.into()));
        self
    }
}

/// Histograms over one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Histograms {
    title: String,
    name: String,
    unit: Unit,
    rows: Vec<Histogram>,
}

impl Histograms {
    /// An empty chart; `name` is the name of the axis.
    #[must_use]
    pub fn new(title: impl Into<String>, name: impl Into<String>, unit: Unit) -> Histograms {
        Histograms { title: title.into(), name: name.into(), unit, rows: Vec::new() }
    }

    /// One more histogram below the others.
    #[must_use]
    pub fn histogram(mut self, histogram: Histogram) -> Histograms {
        self.rows.push(histogram);
        self
    }

    pub(crate) fn write(&self, out: &mut String) {
        let samples = self.rows.iter().flat_map(|row| row.samples.iter().copied());
        let scale = Axis::log(self.name.clone(), self.unit).scale(samples);
        begin_figure(&self.title, out);
        out.push_str("<div class=\"rows\">");
        for row in &self.rows {
            let counts = counts(row.samples.iter().map(|sample| scale.part(*sample)));
            let tone = row.tone.class();
            let _ = write!(
                out,
                "<div class=\"row {tone}\"><p><strong>{}</strong> <span>{}</span></p>\
                 <svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
                escape::text(&row.name),
                escape::text(&row.note),
                escape::text(&format!("{}: {}", row.name, row.note)),
            );
            write_grid(&scale, None, out);
            let _ = write!(out, "<path class=\"heap\" d=\"{}\"/>", outline(&counts));
            for (value, name) in &row.marks {
                let words = format!("{name} {}", self.unit.text(*value));
                let _ = write!(
                    out,
                    "<path class=\"mark\" d=\"M{} 0V{SIDE}\"><title>{}</title></path>",
                    coordinate(scale.part(*value)),
                    escape::text(&words)
                );
            }
            out.push_str("</svg></div>");
        }
        out.push_str("</div>");
        write_x_labels(&scale, out);
        out.push_str("</figure>\n");
    }
}

/// How many parts of 1 fall into each bucket; the last one takes 1 itself.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part between 0 and 1 of a small number of buckets"
)]
fn counts(parts: impl Iterator<Item = f64>) -> [u32; BUCKET_COUNT] {
    let mut counts = [0u32; BUCKET_COUNT];
    for part in parts {
        let bucket = (part.clamp(0.0, 1.0) * BUCKET_COUNT as f64) as usize;
        let count = &mut counts[bucket.min(BUCKET_COUNT - 1)];
        *count = count.saturating_add(1);
    }
    counts
}

/// The outline, from bucket to bucket. Heights are square roots of counts, so that rare slow samples stay
/// visible.
fn outline(counts: &[u32; BUCKET_COUNT]) -> String {
    let most = f64::from(counts.iter().copied().max().unwrap_or(0).max(1)).sqrt();
    let mut path = format!("M0 {SIDE}");
    for (bucket, count) in counts.iter().enumerate() {
        let height = f64::from(*count).sqrt() / most * 0.96;
        let left = bucket as f64 / BUCKET_COUNT as f64;
        let right = (bucket + 1) as f64 / BUCKET_COUNT as f64;
        let _ = write!(path, "L{} {1}H{2}", coordinate(left), coordinate(1.0 - height), coordinate(right));
    }
    let _ = write!(path, "V{SIDE}Z");
    path
}

#[cfg(test)]
mod tests {
    //! The slowest sample must not fall off the edge.
    use super::*;

    #[test]
    fn every_sample_is_in_a_bucket() {
        let all = counts([0.0, 0.004, 0.009, 0.5, 0.999, 1.0, 2.0].into_iter());
        assert_eq!(all.iter().sum::<u32>(), 7);
        assert_eq!((all[0], all[1], all[BUCKET_COUNT / 2], all[BUCKET_COUNT - 1]), (2, 1, 1, 3));
        assert_eq!(counts(std::iter::empty()), [0; BUCKET_COUNT]);
    }
}
