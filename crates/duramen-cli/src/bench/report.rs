//! The report of the sync benchmark: the results as one page for a browser and as one object.
//!
//! Owns the order and the texts of the page; its layout is duramen-lab's. Measures nothing.

mod charts;
mod tables;

use std::ffi::OsStr;

use duramen::probe::Trust;
use duramen::{Disk, Document, OsDisk, Time, Value, doc};
use duramen_lab::report::{Page, Section, Tone};

use super::SyncBenchmark;
use crate::args::BenchSyncArgs;
use crate::doctor::facts::trust_name;
use crate::doctor::{Examined, build};
use crate::failure::Result;
use crate::numbers::bytes;

use super::strategies::preferred_of;
use super::table::{ns, unsteady};

/// The contents of a report.
pub(super) struct Found<'a> {
    pub(super) args: &'a BenchSyncArgs,
    pub(super) examined: &'a Examined,
    pub(super) benchmark: &'a SyncBenchmark,
    pub(super) is_interrupted: bool,
}

impl Found<'_> {
    pub(super) fn as_json(&self) -> Document {
        let verdict = &self.examined.verdict;
        let mut out = doc! {
            "directory": self.args.dir.display().to_string(),
            "file_system": self.benchmark.file_system.as_str(),
            "command": command_line(),
            "version": env!("CARGO_PKG_VERSION"),
            "build": build::this().describe(),
            "time": now(),
            "interrupted": self.is_interrupted,
            "verdict": doc! { "trust": trust_name(verdict.trust), "reason": verdict.reason.as_str() },
        };
        for (name, part) in self.benchmark.parts(self.args) {
            out.set(name, Value::Map(part));
        }
        out
    }

    /// The page, with the figures embedded for programs.
    pub(super) fn page(&self, figures: &Document) -> Result<Page> {
        let lab = self.benchmark;
        let lead = format!(
            "What a durable write costs in {} on {}, {}",
            self.args.dir.display(),
            lab.file_system,
            now()
        );
        let mut page = Page::new("Sync benchmark", lead).section(self.disk());
        let sections = [
            lab.strategies.as_ref().map(strategies),
            lab.every.as_ref().map(every),
            lab.parallel.as_ref().map(parallel),
        ];
        for section in sections.into_iter().flatten() {
            page = page.section(section);
        }
        let object = Document::new().with("v", 1).with("kind", "bench-sync-report");
        let object = figures.iter().fold(object, |object, (name, value)| object.with(name, value.clone()));
        Ok(page
            .section(how_made())
            .footer(format!(
                "{}, {}. This page loads nothing and runs nothing; its figures are also in it as JSON, in the element with \
                 the id data.",
                build::this().describe(),
                now()
            ))
            .data(object.to_json()?))
    }

    /// The disk under the directory, and the verdict on it.
    fn disk(&self) -> Section {
        let verdict = &self.examined.verdict;
        let tone = match verdict.trust {
            Trust::Verified => Tone::Good,
            Trust::Plausible => Tone::Plain,
            Trust::Unknown => Tone::Warn,
            Trust::Unsafe => Tone::Bad,
        };
        let mut section = Section::new("The disk");
        if self.is_interrupted {
            let text = "It was interrupted: what follows is what there was by then.";
            section = section.note(Tone::Warn, "Not whole.", text);
        }
        section = section.note(tone, trust_name(verdict.trust).to_uppercase(), verdict.reason.as_str());
        for reason in self.examined.other_weaknesses() {
            section = section.note(Tone::Warn, "Also", reason);
        }
        if let Some(warning) = build::this().warning() {
            section = section.note(Tone::Warn, "Build", warning);
        }
        let mut facts = self.examined.places();
        if let Some((chosen, candidates)) = self
            .benchmark
            .strategies
            .as_ref()
            .and_then(|found| preferred_of(&found.rows, &self.benchmark.file_system))
        {
            let medians: Vec<String> = candidates
                .iter()
                .filter_map(|row| Some(format!("{} {}", row.strategy.name(), ns(row.summary?.p50))))
                .collect();
            let text = format!(
                "a new database would use {}; medians: {}",
                chosen.strategy.name(),
                medians.join(", ")
            );
            facts.push(("sync method", text));
        }
        section
            .facts(facts)
            .text("No test without cutting the power can prove that a disk keeps what it flushed.")
    }
}

fn strategies(found: &super::strategies::Found) -> Section {
    let mut section = Section::new("Ways to make a record durable").text(format!(
        "Each way had {} turns of {} ms, one after the other in changing order; every record of {} was timed by itself, from \
         the write until the call that makes it durable returned.",
        found.plan.rounds,
        found.plan.turn.as_millis(),
        bytes(found.plan.record_bytes as u64)
    ));
    if let Some(warning) = unsteady(found.rows.iter().filter_map(|row| row.spread)) {
        section = section.note(Tone::Warn, "Unsteady:", warning);
    }
    section = section.bars(charts::rates(found)).histograms(charts::histograms(found));
    for row in &found.rows {
        if let Some(warning) = row.strategy.warning() {
            section = section.note(Tone::Bad, format!("Not durable: {}", row.strategy.name()), warning);
        }
    }
    section.table(tables::strategies(found)).text(super::table::counters(&found.source))
}

fn every(found: &super::every::Found) -> Section {
    Section::new("How often to sync")
        .text(format!(
            "The time to write {} in records, with a sync after every so many bytes. The bands are the fastest and the slowest \
             trial.",
            bytes(found.file_bytes)
        ))
        .note(Tone::Plain, "Result:", found.words())
        .lines(charts::intervals(found))
        .folded("All figures", tables::intervals(found))
}

fn parallel(found: &super::parallel::Found) -> Section {
    let mut section = Section::new("How many threads share syncs").text(format!(
        "Each thread overwrites places of its own with records of {} and waits for fdatasync after each, in one file for all \
         and in a file for each. The bands are the slowest and the fastest of {} rounds.",
        bytes(found.plan.record_bytes as u64),
        found.plan.rounds
    ));
    for words in found.words() {
        section = section.note(Tone::Plain, "Result:", words);
    }
    section.lines(charts::parallel(found)).folded("All figures", tables::parallel(found))
}

fn how_made() -> Section {
    Section::new("How this was made").code(command_line()).text(
        "Other programs on the same disk are in the figures: where the rounds differ by more than a few tenths, measure again \
         when it is quiet.",
    )
}

fn now() -> String {
    let seconds = i64::try_from(OsDisk::new().wall_ns() / 1_000_000_000).unwrap_or(i64::MAX);
    Time::new(seconds, 0).map_or_else(|| "unknown".to_owned(), |time| time.to_string())
}

/// The command line, quoted for a shell, with the program by its name.
fn command_line() -> String {
    let words = std::env::args_os().skip(1);
    let quoted = words.map(|word| quoted(&word));
    std::iter::once("duramen".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    //! A command line copied from a report must reproduce it.
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("--html", "--html"),
            ("a b", "'a b'"),
            ("", "''"),
            ("it's", "'it'\\''s'"),
            ("$(rm -rf)", "'$(rm -rf)'"),
            ("/tmp/x.html", "/tmp/x.html"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), expected);
        }
    }
}
