//! The progress of an import or an export: after a second a bar on a terminal, with rows per second and the
//! time that is left; and notes.

use std::cell::{Cell, OnceCell};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::numbers::{grouped, rate};
use crate::output::Output;

const PATIENCE: Duration = Duration::from_secs(1);

/// The progress of an import or an export.
pub(crate) struct Progress {
    out: Output,
    begun: Instant,
    position: Arc<AtomicU64>,
    total: Option<u64>,
    /// Whether rows are stored by now.
    is_storing: Cell<bool>,
    bar: OnceCell<ProgressBar>,
}

impl Progress {
    /// Of an import: bytes of its input that are read, of all.
    pub(crate) fn new(out: Output, position: Arc<AtomicU64>, total: Option<u64>) -> Progress {
        let (begun, is_storing) = (Instant::now(), Cell::default());
        Progress { out, begun, position, total, is_storing, bar: OnceCell::new() }
    }

    /// Of an export: rows that are written, of all.
    pub(crate) fn of_rows(out: Output, total: u64) -> Progress {
        Progress::new(out, Arc::default(), Some(total))
    }

    /// Shows the progress of the type inference.
    pub(crate) fn reading(&self) {
        self.show(|| "reading the types of the columns".to_owned());
    }

    /// Shows how many rows are stored.
    pub(crate) fn stored(&self, rows: u64, since: Instant) {
        if !self.is_storing.replace(true)
            && let Some(bar) = self.bar.get()
        {
            // The file is read again from its start: the time that was left until its end does not count.
            bar.reset();
        }
        self.show(|| rows_shown(rows, since.elapsed()));
    }

    /// Shows how many rows are written to standard output, unless that is the terminal itself.
    pub(crate) fn written(&self, rows: u64) {
        self.position.store(rows, Ordering::Relaxed);
        if !std::io::stdout().is_terminal() {
            self.show(|| rows_shown(rows, self.begun.elapsed()));
        }
    }

    fn show(&self, message: impl Fn() -> String) {
        if !self.out.shows_progress() || self.begun.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| new_bar(self.total));
        bar.set_position(self.position.load(Ordering::Relaxed));
        bar.set_message(message());
    }

    /// Prints a note beside the bar.
    pub(crate) fn note(&self, text: &str) {
        match self.bar.get() {
            Some(bar) => bar.suspend(|| self.out.note(text)),
            None => self.out.note(text),
        }
    }

    /// Prints a warning beside the bar. Under `--json` the summary has it.
    pub(crate) fn warning(&self, text: &str, hint: &str) {
        let say = || self.out.warning(text, hint);
        match self.bar.get() {
            _ if self.out.is_json() => {}
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Rows and their rate.
fn rows_shown(rows: u64, took: Duration) -> String {
    format!("{} rows, {} rows/s", grouped(rows), grouped(rate(rows, took)))
}

fn new_bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{wide_bar} {percent:>3} %  {msg}  {eta} left"),
        None => (ProgressBar::no_length(), "{spinner} {bytes} read  {msg}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    //! The words of the bar; whether there is one needs a terminal.
    use super::*;

    #[test]
    fn rows_have_a_rate() {
        assert_eq!(rows_shown(336_776, Duration::from_secs(2)), "336,776 rows, 168,388 rows/s");
        assert_eq!(rows_shown(0, Duration::ZERO), "0 rows, 0 rows/s");
    }

    #[test]
    fn the_bar_begins_anew_when_rows_are_stored_and_shows_how_far_it_is() {
        let progress = Progress::of_rows(Output::new(false, false), 10);
        let bar = progress.bar.get_or_init(|| new_bar(Some(10)));
        bar.set_position(10);
        progress.stored(1, Instant::now());
        assert_eq!((bar.position(), bar.length()), (0, Some(10)));
        bar.set_position(4);
        progress.stored(2, Instant::now());
        assert_eq!(bar.position(), 4, "only once");
        progress.written(7);
        assert_eq!(progress.position.load(Ordering::Relaxed), 7);
    }
}
