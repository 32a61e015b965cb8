//! What clients asked and were answered, in the order in which that happened, and the judgement of it.
//!
//! The history has the form of Jepsen's: a line when a transaction is begun, and one when it has ended, of
//! reads of lists and of appends to them. A transaction whose end is unknown may have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adya::{History as Parsed, Opts, Valid, Workload, check};
use serde_json::{Value, json};

use crate::failure::{Result, failed};

/// For how long a part of the graph that is tied together is searched for a cycle.
const SEARCH_MAX: Duration = Duration::from_secs(60);

/// The process that reads everything at the end.
const READS_ALL: u64 = 900;

/// A read of a list, or an append to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// What it was, once that is known.
    Read(u64, Option<Vec<u64>>),
    Append(u64, u64),
}

impl Part {
    fn line(&self) -> Value {
        match self {
            Part::Read(list, found) => json!(["r", list, found]),
            Part::Append(list, id) => json!(["append", list, id]),
        }
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Happened,
    Never,
    Unknown,
}

impl End {
    const ALL: [End; 3] = [End::Happened, End::Never, End::Unknown];

    fn name(self) -> &'static str {
        match self {
            End::Happened => "ok",
            End::Never => "fail",
            End::Unknown => "info",
        }
    }

    fn of(name: &str) -> Option<End> {
        End::ALL.into_iter().find(|end| end.name() == name)
    }
}

/// What has become of a transaction that appends.
#[derive(Debug, Clone, Copy)]
struct Told {
    end: End,
    appends: usize,
}

/// All that clients did.
#[derive(Debug, Default)]
pub(crate) struct History {
    shared: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    told: BTreeMap<u64, Told>,
    /// Where each line goes at once, if it must outlive this process.
    kept: Option<File>,
}

impl Lines {
    fn push(&mut self, line: &Value) {
        let line = line.to_string();
        if let Some(kept) = &mut self.kept {
            kept.write_all(format!("{line}\n").as_bytes()).expect("the history can be written");
        }
        self.lines.push(line);
    }

    fn ends(&mut self, process: u64, value: Value, end: End) {
        let appends = |part: &Value| (part[0] == "append").then(|| part[2].as_u64()).flatten();
        let ids: Vec<u64> = value.as_array().into_iter().flatten().filter_map(appends).collect();
        self.push(&json!({"type": end.name(), "process": process, "value": value}));
        if let Some(id) = ids.first() {
            self.told.insert(*id, Told { end, appends: ids.len() });
        }
    }
}

impl History {
    /// One whose lines go to this file at once.
    pub(crate) fn kept_in(file: File) -> History {
        History { shared: Mutex::new(Lines { kept: Some(file), ..Lines::default() }) }
    }

    /// Goes on after one that was kept, whose last transactions may not have ended. Returns also the last id.
    pub(crate) fn after(text: &str) -> Result<(History, u64)> {
        let (mut lines, mut open, mut last) = (Lines::default(), BTreeMap::new(), 0);
        // What comes after the last line's end was cut off.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let wrong = |why: &str| format!("{why}: {line}");
            let line: Value = serde_json::from_str(line).map_err(|_| wrong("no line of a history"))?;
            let process = line["process"].as_u64().ok_or_else(|| wrong("a line without a process"))?;
            let value = line["value"].clone();
            let ids = value.as_array().into_iter().flatten().filter(|part| part[0] == "append");
            last = ids.filter_map(|part| part[2].as_u64()).fold(last, u64::max);
            match line["type"].as_str().and_then(End::of) {
                Some(end) => {
                    open.remove(&process);
                    lines.ends(process, value, end);
                }
                None => {
                    open.insert(process, value);
                    lines.push(&line);
                }
            }
        }
        for (process, value) in open {
            lines.ends(process, value, End::Unknown);
        }
        Ok((History { shared: Mutex::new(lines) }, last))
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process begins a transaction.
    pub(crate) fn begins(&self, process: u64, parts: &[Part]) {
        let asked: Vec<Value> = parts
            .iter()
            .map(|part| match part {
                Part::Read(list, _) => Part::Read(*list, None).line(),
                append @ Part::Append(..) => append.line(),
            })
            .collect();
        self.lock().push(&json!({"type": "invoke", "process": process, "value": asked}));
    }

    /// It has ended.
    pub(crate) fn ends(&self, process: u64, parts: &[Part], end: End) {
        let answered: Vec<Value> = parts.iter().map(Part::line).collect();
        self.lock().ends(process, answered.into(), end);
    }

    /// Adds a read of all lists, as they are at the end.
    pub(crate) fn ends_with(&self, lists: &BTreeMap<u64, Vec<u64>>) {
        let parts: Vec<Part> = lists.iter().map(|(list, ids)| Part::Read(*list, Some(ids.clone()))).collect();
        self.begins(READS_ALL, &parts);
        self.ends(READS_ALL, &parts, End::Happened);
    }

    /// Writes it down, for a look at it later.
    pub(crate) fn write(&self, to: &Path) -> Result<()> {
        let failing = |error: std::io::Error| failed("write", &to.display(), &error);
        let mut file = BufWriter::new(File::create(to).map_err(failing)?);
        for line in &self.lock().lines {
            writeln!(file, "{line}").map_err(failing)?;
        }
        file.flush().map_err(failing)
    }

    /// Returns what is wrong: with the lists and documents as they are at the end, and with every answer.
    pub(crate) fn judge(&self, lists: &BTreeMap<u64, Vec<u64>>, documents: &BTreeSet<u64>) -> Vec<String> {
        let mut wrong = self.lost_or_invented(lists, documents);
        let text = self.lock().lines.join("\n");
        match Parsed::from_json(&text) {
            Err(error) => wrong.push(format!("the history cannot be read: {error}")),
            Ok(history) => {
                let report =
                    check(&history, Workload::ListAppend, &Opts { timeout: SEARCH_MAX, ..Opts::default() });
                if report.valid != Valid::True {
                    let first = report.anomalies.values().flatten().next();
                    let first = first.map_or_else(String::new, |anomaly| anomaly.explanation.clone());
                    wrong.push(format!(
                        "not strictly serialisable: {}: {first}",
                        report.anomaly_types.join(", ")
                    ));
                }
            }
        }
        wrong
    }

    /// Compares what was told with what is there: all of a transaction, once, or nothing of it.
    fn lost_or_invented(&self, lists: &BTreeMap<u64, Vec<u64>>, documents: &BTreeSet<u64>) -> Vec<String> {
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        for id in lists.values().flatten() {
            *found.entry(*id).or_default() += 1;
        }
        let mut wrong = Vec::new();
        let lines = self.lock();
        for (id, told) in &lines.told {
            let there = found.remove(id).unwrap_or(0);
            let has_document = documents.contains(id);
            let is_whole = there == told.appends && has_document;
            let is_absent = there == 0 && !has_document;
            let is_right = match told.end {
                End::Happened => is_whole,
                End::Never => is_absent,
                End::Unknown => is_whole || is_absent,
            };
            if !is_right {
                wrong.push(format!(
                    "transaction {id} ended as {:?} with {} appends; {there} of them and {} are there",
                    told.end,
                    told.appends,
                    if has_document { "its document" } else { "no document" },
                ));
            }
        }
        wrong.extend(found.keys().map(|id| format!("no transaction appended {id}, and it is there")));
        let inserted = documents.iter().filter(|id| !lines.told.contains_key(id));
        wrong.extend(inserted.map(|id| format!("no transaction inserted {id}, and it is there")));
        wrong
    }

    /// How many transactions that append were acknowledged, and how many ended unknown.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let lines = self.lock();
        let of = |end: End| lines.told.values().filter(|told| told.end == end).count();
        (of(End::Happened), of(End::Unknown))
    }
}

#[cfg(test)]
mod tests;
