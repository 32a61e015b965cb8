//! The progress of an import: after a second a bar on a terminal, with rows per second; and notes.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::numbers::{grouped, rate};
use crate::output::Output;

const PATIENCE: Duration = Duration::from_secs(1);

/// The progress of an import.
pub(crate) struct Progress {
    out: Output,
    begun: Instant,
    bytes_read: Arc<AtomicU64>,
    bytes_total: Option<u64>,
    bar: OnceCell<ProgressBar>,
}

impl Progress {
    pub(super) fn new(out: Output, bytes_read: Arc<AtomicU64>, bytes_total: Option<u64>) -> Progress {
        Progress { out, begun: Instant::now(), bytes_read, bytes_total, bar: OnceCell::new() }
    }

    /// Shows the progress of the type inference.
    pub(super) fn reading(&self) {
        self.show(|| "reading the types of the columns".to_owned());
    }

    /// Shows how many rows are stored.
    pub(super) fn stored(&self, rows: u64, since: Instant) {
        self.show(|| format!("{} rows, {} rows/s", grouped(rows), grouped(rate(rows, since.elapsed()))));
    }

    fn show(&self, message: impl Fn() -> String) {
        if !self.out.shows_progress() || self.begun.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| new_bar(self.bytes_total));
        bar.set_position(self.bytes_read.load(Ordering::Relaxed));
        bar.set_message(message());
    }

    /// Prints a note beside the bar.
    pub(super) fn note(&self, text: &str) {
        match self.bar.get() {
            Some(bar) => bar.suspend(|| self.out.note(text)),
            None => self.out.note(text),
        }
    }

    /// Prints a warning beside the bar. Under `--json` the summary has it.
    pub(super) fn warning(&self, text: &str, hint: &str) {
        let say = || self.out.warning(text, hint);
        match self.bar.get() {
            _ if self.out.is_json() => {}
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(bytes_total: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes_total {
        Some(total) => (ProgressBar::new(total), "{wide_bar} {percent:>3} %  {msg}  {eta} left"),
        None => (ProgressBar::no_length(), "{spinner} {bytes} read  {msg}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
