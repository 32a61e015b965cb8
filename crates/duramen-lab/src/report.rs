//! Reports as one HTML file: text, tables and charts that any browser opens offline.
//!
//! Owns the page, its layout and the escaping. It measures nothing, touches no file and reads no clock: the
//! caller supplies figures and texts, and writes the result. A page has no script and loads nothing, and its
//! content policy enforces that. Charts are drawn to any width; their labels are text of the page's size.
//!
//! ```
//! use duramen_lab::report::{Axis, Line, Lines, Page, Section, Table, Tone, Unit};
//!
//! let (x, y) = (Axis::log("threads", Unit::Count), Axis::linear("", Unit::PerSecond));
//! let curve = Lines::new("Syncs a second by threads", x, y)
//!     .line(Line::new("one file", [(1.0, 2_100.0), (2.0, 2_900.0), (4.0, 4_400.0)]))
//!     .line(Line::new("a file each", [(1.0, 2_050.0), (2.0, 3_800.0), (4.0, 5_900.0)]).dashed())
//!     .mark(4.0, "more threads stop paying");
//! let page = Page::new("A disk", "what it said")
//!     .section(
//!         Section::new("Syncs")
//!             .note(Tone::Warn, "UNKNOWN", "what decides cannot be seen")
//!             .lines(curve)
//!             .table(Table::new(["threads", "p50"]).row(["1", "0.47 ms"])),
//!     )
//!     .data(r#"{"v":1}"#);
//! let html = page.to_html();
//! assert!(html.starts_with("<!doctype html>") && html.contains("more threads stop paying"));
//! ```

mod chart;
mod escape;
mod page;
mod section;
mod table;
#[cfg(test)]
mod tests;
mod unit;

pub use chart::{Axis, Bar, Bars, Histogram, Histograms, Line, Lines};
pub use page::Page;
pub use section::{Section, Tone};
pub use table::{Cell, Table};
pub use unit::Unit;
