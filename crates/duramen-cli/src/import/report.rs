//! What an import tells at its end: what is stored now, and how the rest is completed.

use std::time::Instant;

use duramen::{Code, Document, ErrorKind, doc};

use super::documents;
use super::findings::Findings;
use super::flags::drop_command;
use super::pipeline::{Loaded, Terms};
use crate::args::ImportArgs;
use crate::backend::Writing;
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped, rate, time};
use crate::output::Output;
use crate::signals::Signals;

/// What the rows did to the collection.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Effect {
    /// Rows that added a document.
    new: u64,
    /// Rows that replaced one.
    replaced: u64,
    /// Those of them that replaced a row of the same input.
    repeated: u64,
    /// Whether there may be more of the latter.
    is_at_least: bool,
    /// Lines with the same key.
    example: Option<(u64, u64)>,
}

impl Effect {
    /// The effect of a finished import; `None` if a server that was to count documents gave no answer. Other
    /// writers of a served database are counted, too.
    pub(super) fn of(target: &Writing, terms: &Terms, loaded: &Loaded) -> Option<Effect> {
        if !terms.replace || loaded.failure.is_some() || loaded.rows == 0 {
            return Some(Effect { new: loaded.rows, ..Effect::default() });
        }
        let before = terms.documents_before.unwrap_or(0);
        let new = documents(target, &terms.schema).ok()?.saturating_sub(before).min(loaded.rows);
        let replaced = loaded.rows.saturating_sub(new);
        let example = loaded.first_repeat.map(|repeat| (repeat.earlier, repeat.line));
        let is_known = before == 0 && target.local().is_some();
        Some(Effect {
            new,
            replaced,
            repeated: if is_known { replaced } else { loaded.repeats },
            is_at_least: !is_known && loaded.has_forgotten_keys,
            example,
        })
    }

    /// Warns of rows that are lost because a row of the same input replaced them.
    fn warn(self, out: Output) {
        if self.repeated == 0 || out.is_json() {
            return;
        }
        let least = if self.is_at_least { "at least " } else { "" };
        let rows = counted(self.repeated, "row");
        let example = match self.example {
            Some((earlier, line)) => format!(", such as lines {earlier} and {line}"),
            None => String::new(),
        };
        out.warning(
            &format!("{least}{rows} of the input replaced others of it with the same key{example}"),
            "to keep them all, import into a new collection with a column more in --key, or with --assign-id",
        );
    }
}

/// What is told at the end, and when the import began.
pub(super) struct Report<'a> {
    pub(super) args: &'a ImportArgs,
    pub(super) first_id: Option<u64>,
    /// Whether other writers may have the database open, by a server.
    pub(super) has_others: bool,
    /// Whether the import creates its collection.
    pub(super) is_new: bool,
    pub(super) begun: Instant,
    pub(super) out: Output,
}

impl Report<'_> {
    /// The flags with which the same command completes the rows.
    pub(super) fn again(&self) -> String {
        match self.first_id {
            Some(first) if self.has_others => {
                format!("--replace --first-id {first}, unless another import ran since,")
            }
            Some(first) => format!("--replace --first-id {first}"),
            None => "--replace".to_owned(),
        }
    }

    /// Prints what is stored now, unless the failure will.
    pub(super) fn say(
        &self,
        loaded: &Loaded,
        effect: Option<Effect>,
        findings: &Findings,
        syncs: Option<u64>,
    ) -> Result<()> {
        let took = self.begun.elapsed();
        let level = self.args.durability.name();
        if loaded.failure.is_some() {
            return Ok(());
        }
        if self.out.is_json() {
            let mut fields: Document = doc! {
                "collection": self.args.collection.as_str(), "rows": loaded.rows, "batches": loaded.batches,
                "seq": loaded.seq, "syncs": syncs, "durability": level, "complete": loaded.complete,
            };
            fields.set("seconds", took.as_secs_f64());
            fields.set("new", effect.map(|effect| effect.new));
            fields.set("replaced", effect.map(|effect| effect.replaced));
            fields.set("repeated", effect.map(|effect| effect.repeated));
            findings.write(&mut fields);
            if let Some(first) = self.first_id {
                fields.set("first_id", first);
            }
            return self.out.object("import", fields);
        }
        if loaded.rows == 0 && !loaded.complete {
            return Ok(());
        }
        if let Some(effect) = effect {
            effect.warn(self.out);
        }
        let changed = match effect.filter(|_| self.args.replace) {
            Some(effect) => {
                format!("; {} new, {} replaced", counted(effect.new, "row"), grouped(effect.replaced))
            }
            None => String::new(),
        };
        let synced = syncs.map_or_else(String::new, |syncs| format!(", {}", counted(syncs, "sync")));
        self.out.note(&format!(
            "{} in {} into {} in {} ({} rows/s), seq {}{synced}, durability {level}{changed}",
            counted(loaded.rows, "row"),
            counted(loaded.batches, "batch"),
            self.args.collection,
            time(took),
            grouped(rate(loaded.rows, took)),
            loaded.seq,
        ));
        if let Some(how) = findings.how_again(&drop_command(self.args)).filter(|_| self.is_new) {
            self.out.note(&how);
        }
        Ok(())
    }

    /// The result of the command: its failure, the signal that came, or success.
    pub(super) fn finish(&self, loaded: Loaded, again: &str, signals: &Signals) -> Result<()> {
        let left = left(&loaded, self.args.threads, again);
        if let Some(failure) = loaded.failure {
            let hint = match loaded.rows {
                0 => "make room on the disk, and repeat".to_owned(),
                _ => format!("make room on the disk: then the same command with {again} completes the rows"),
            };
            let is_of_server = matches!(
                failure.code().map(Code::kind),
                Some(ErrorKind::InDoubt | ErrorKind::Unavailable | ErrorKind::Conflict)
            );
            let failure = match (is_of_server, loaded.rows > 0 || loaded.in_doubt) {
                // What is stored, or may be, is in the way of a second attempt without it.
                (true, true) => failure.hinted(format!("the same command with {again} completes the rows")),
                (true, false) if failure.code() != Some(Code::WriteConflict) => {
                    failure.hinted("repeat the command once the server takes calls")
                }
                _ => failure,
            };
            let failure = failure.when_full(hint).when_batched().when_vague("correct the input, and repeat");
            return Err(self.with_way_back(failure, loaded.rows).and(&format!("; {left}")));
        }
        let rows = counted(loaded.rows, "row");
        match signals.received() {
            Some(number) if !loaded.complete => {
                self.out.note(&match loaded.rows {
                    0 => format!("stopped by signal {number}: nothing of this import is stored"),
                    _ => format!(
                        "stopped by signal {number}: {rows} stored; the same command with {again} completes them"
                    ),
                });
                Err(Failure::signal(number))
            }
            _ => Ok(()),
        }
    }

    /// A failure of the input after some rows of a new collection were stored, with how they are removed.
    fn with_way_back(&self, failure: Failure, rows: u64) -> Failure {
        let drop = drop_command(self.args);
        match &failure {
            Failure::Said(said)
                if self.is_new
                    && !self.has_others
                    && rows > 0
                    && matches!(said.code, Code::InvalidArgument | Code::KeyTooLong)
                    && !said.hint.contains(&drop) =>
            {
                let hint = format!("{}; {drop} removes what is stored, before another attempt", said.hint);
                failure.hinted(hint)
            }
            _ => failure,
        }
    }
}

/// What a failed import has stored, as text.
fn left(loaded: &Loaded, threads: u16, again: &str) -> String {
    let (rows, batches) = (counted(loaded.rows, "row"), counted(loaded.batches, "batch"));
    let doubt = if loaded.in_doubt { ", and what was being committed may be too" } else { "" };
    match loaded.rows {
        0 if loaded.in_doubt => "nothing of this import is known to be stored".to_owned(),
        0 => "nothing of this import is stored".to_owned(),
        _ if threads == 1 => format!("what came before is stored: {rows} in {batches}{doubt}"),
        _ => format!(
            "stored are {rows} in {batches}, with {threads} threads perhaps of later lines too{doubt}: once the cause is fixed, the same command with {again} completes them"
        ),
    }
}
