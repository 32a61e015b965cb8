//! An axis: the position of a value on it, and its tick labels.
//!
//! Owns the ticks. Labels that would touch each other on a phone are marked as being for wide pages only, so
//! that no script has to measure anything.

use crate::report::unit::Unit;

/// The width of a drawing in pixels on a phone, and of one letter of a label: they decide which labels are
/// left out.
const NARROW_PIXELS: f64 = 300.0;
const LETTER_PIXELS: f64 = 7.5;
const GAP_PIXELS: f64 = 10.0;

/// Pixels of a drawing on a wide page.
const WIDE_PIXELS: f64 = 720.0;

/// Part of a logarithmic axis that is added at either end.
const LOG_ROOM: f64 = 0.04;

/// A label this near to an end of its axis begins or ends there, instead of reaching over it.
const EDGE: f64 = 0.03;

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    name: String,
    unit: Unit,
    is_log: bool,
    ticks: Option<Vec<(f64, String)>>,
    from_zero: bool,
}

impl Axis {
    /// Equal steps are equal distances; the axis begins at 0.
    #[must_use]
    pub fn linear(name: impl Into<String>, unit: Unit) -> Axis {
        Axis { name: name.into(), unit, is_log: false, ticks: None, from_zero: true }
    }

    /// Equal ratios are equal distances. Values of 0 and below are drawn at its edge.
    #[must_use]
    pub fn log(name: impl Into<String>, unit: Unit) -> Axis {
        Axis { name: name.into(), unit, is_log: true, ticks: None, from_zero: false }
    }

    /// The same axis with given labels instead of round values.
    #[must_use]
    pub fn ticks<T: Into<String>>(mut self, ticks: impl IntoIterator<Item = (f64, T)>) -> Axis {
        self.ticks = Some(ticks.into_iter().map(|(value, label)| (value, label.into())).collect());
        self
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Fits the axis to values.
    pub(super) fn scale(&self, values: impl IntoIterator<Item = f64>) -> Scale {
        let usable = |value: &f64| value.is_finite() && (!self.is_log || *value > 0.0);
        let of_ticks = self.ticks.iter().flatten().map(|(value, _)| *value);
        let values: Vec<f64> = values.into_iter().chain(of_ticks).filter(usable).collect();
        let mut low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if self.from_zero {
            low = low.min(0.0);
        }
        if low >= high {
            (low, high) = if self.is_log { (low / 2.0, high * 2.0) } else { (low, low + 1.0) };
        } else if self.is_log && self.ticks.is_none() {
            // Nothing is drawn on the edge, where a level would disappear in the frame.
            let room = (high / low).powf(LOG_ROOM);
            (low, high) = (low / room, high * room);
        }
        let ticks = match &self.ticks {
            Some(ticks) => ticks.clone(),
            None if self.is_log => log_ticks(low, high, self.unit),
            None => {
                let step = round_step((high - low) / 4.0);
                high = (high / step - 1e-9).ceil() * step;
                linear_ticks(low, high, step, self.unit)
            }
        };
        let mut scale = Scale { name: self.name.clone(), low, high, is_log: self.is_log, ticks: Vec::new() };
        let placed = |(value, label)| Tick { part: scale.part(value), label, is_for_wide_only: false };
        let ticks = ticks.into_iter().map(placed).collect();
        scale.ticks = ticks;
        scale.choose_labels();
        scale
    }
}

/// An axis fitted to values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    name: String,
    low: f64,
    high: f64,
    is_log: bool,
    ticks: Vec<Tick>,
}

/// A value beside an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Where, between 0 and 1.
    pub(super) part: f64,
    /// Empty if there is no room for it.
    pub(super) label: String,
    pub(super) is_for_wide_only: bool,
}

impl Tick {
    /// The alignment of its label: centred, unless that would reach over an end of the axis.
    pub(super) fn side(&self) -> &'static str {
        match self.part {
            part if part < EDGE => "at-start",
            part if part > 1.0 - EDGE => "at-end",
            _ => "centred",
        }
    }

    /// Pixels from the beginning of the axis to both ends of the label.
    fn extent(&self, pixels: f64) -> (f64, f64) {
        let (place, width) = (self.part * pixels, self.label.chars().count() as f64 * LETTER_PIXELS);
        let start = match self.side() {
            "at-start" => place,
            "at-end" => place - width,
            _ => place - width / 2.0,
        };
        (start, start + width)
    }
}

impl Scale {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where a value lies, between 0 and 1.
    pub(super) fn part(&self, value: f64) -> f64 {
        let (low, high, value) = if self.is_log {
            (self.low.ln(), self.high.ln(), value.max(self.low).ln())
        } else {
            (self.low, self.high, value)
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = &Tick> {
        self.ticks.iter()
    }

    pub(super) fn labelled(&self) -> impl Iterator<Item = &Tick> {
        self.ticks.iter().filter(|tick| !tick.label.is_empty())
    }

    /// Letters of the longest label.
    pub(super) fn letters_max(&self) -> usize {
        self.ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0)
    }

    /// From left to right, keeps each label that leaves a gap to the previous one, for both widths.
    fn choose_labels(&mut self) {
        let (mut wide_end, mut narrow_end) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for tick in &mut self.ticks {
            let (wide, narrow) = (tick.extent(WIDE_PIXELS), tick.extent(NARROW_PIXELS));
            if wide.0 < wide_end {
                tick.label.clear();
                continue;
            }
            wide_end = wide.1 + GAP_PIXELS;
            tick.is_for_wide_only = narrow.0 < narrow_end;
            if !tick.is_for_wide_only {
                narrow_end = narrow.1 + GAP_PIXELS;
            }
        }
    }
}

/// Powers of ten; where there are few of them also twice and five times each.
fn log_ticks(low: f64, high: f64, unit: Unit) -> Vec<(f64, String)> {
    let decades = (high / low).log10();
    let times: &[f64] = if decades < 3.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    let mut power = 10_f64.powf(low.log10().floor());
    while power <= high {
        ticks.extend(times.iter().map(|times| times * power));
        power *= 10.0;
    }
    ticks.retain(|value| *value >= low * 0.999 && *value <= high * 1.001);
    ticks.into_iter().map(|value| (value, unit.text(value))).collect()
}

fn linear_ticks(low: f64, high: f64, step: f64, unit: Unit) -> Vec<(f64, String)> {
    let first = (low / step).ceil();
    let values = (0..).map(|index| (first + f64::from(index)) * step);
    let values = values.take_while(|value| *value <= high + step * 1e-6);
    values.take(12).map(|value| (value, unit.text(value))).collect()
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    //! A point drawn in the wrong place is a wrong figure.
    use super::*;

    #[test]
    fn values_lie_where_their_ratio_or_difference_puts_them() {
        let log = Axis::log("", Unit::Count).scale([10.0, 1000.0]);
        assert!((log.part(100.0) - 0.5).abs() < 1e-9);
        assert!(log.part(10.0) > 0.0 && log.part(1000.0) < 1.0, "there is room at both ends");
        assert!((log.part(0.0)).abs() < 1e-9, "nothing lies outside of the drawing");
        let linear = Axis::linear("", Unit::Count).scale([30.0, 93.0]);
        assert!((linear.part(50.0) - 0.5).abs() < 1e-9, "from 0 to the round value above: {linear:?}");
        let labels: Vec<&str> = linear.ticks().map(|tick| tick.label.as_str()).collect();
        assert_eq!(labels, ["0", "50", "100"]);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_an_axis() {
        for values in [vec![], vec![0.0], vec![7.0], vec![f64::NAN, f64::INFINITY]] {
            for axis in [Axis::log("", Unit::Nanoseconds), Axis::linear("", Unit::Nanoseconds)] {
                let scale = axis.scale(values.clone());
                assert!((0.0..=1.0).contains(&scale.part(7.0)), "{scale:?}");
                assert!(scale.ticks().all(|tick| tick.part.is_finite()), "{scale:?}");
            }
        }
    }

    #[test]
    fn labels_that_would_touch_on_a_phone_are_for_wide_pages() {
        let powers = (0..11).map(|power| (f64::from(1 << power), format!("{} KiB", 4 << power)));
        let scale = Axis::log("", Unit::Bytes).ticks(powers).scale([]);
        let narrow: Vec<&Tick> = scale.labelled().filter(|tick| !tick.is_for_wide_only).collect();
        assert!(narrow.len() >= 3 && narrow.len() < 11, "{narrow:?}");
        let mut pairs =
            narrow.windows(2).map(|pair| (pair[0].extent(NARROW_PIXELS), pair[1].extent(NARROW_PIXELS)));
        assert!(pairs.all(|(one, next)| one.1 < next.0), "{narrow:?}");
        let ends = scale.labelled().map(|tick| tick.extent(NARROW_PIXELS));
        assert!(ends.into_iter().all(|(start, end)| start >= 0.0 && end <= NARROW_PIXELS), "{narrow:?}");
    }
}
