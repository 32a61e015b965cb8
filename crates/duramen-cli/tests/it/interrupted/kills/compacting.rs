//! Compactions killed by `kill -9`, after rows were deleted at random.
//!
//! Owns the deletes and the moments of these kills. A compaction changes no row: after a kill every row that
//! was left is there, and no other (D1, D2). Another run then shortens the file as far as one that nothing
//! stops.

use std::time::{Duration, Instant};

use duramen::LocalReads as _;
use serde_json::Value;

use super::{Draw, Life, open_to_write};
use crate::runner::{json, no_child_starts};

/// Deletes of one transaction.
const DELETES: usize = 2_000;

/// A smaller data file of a closed database is little more than the room that it keeps ahead.
const WORTHWHILE_BYTES: u64 = 4 << 20;

/// Kills of a life: each compaction goes on where the one before was killed. After one that had ended it
/// begins anew.
const KILLS: u64 = 3;

impl Life<'_> {
    /// Deletes most rows, kills some compactions, and runs another one to its end. Returns how many kills
    /// came before the end of theirs.
    pub(super) fn kill_compactions(&mut self, draw: &mut Draw, before: u64, at_most: u64) -> u64 {
        self.told = "deleting most rows: ".to_owned();
        self.delete_most(draw);
        self.copy("db", "before");
        let (whole, mut took) = self.compact_a_copy();
        let mut killed = 0;
        for _ in 0..at_most.min(KILLS) {
            if self.kill_compaction(before + killed + 1, draw.below(took)) {
                killed += 1;
            } else {
                self.copy("before", "db");
                took /= 2;
            }
        }
        self.told = "then a whole compaction: ".to_owned();
        let again = json(&self.scratch().ok(&["compact", "db", "--json"]));
        self.check();
        let [before, wanted, found] = [&whole["before"], &whole["after"], &again["after"]]
            .map(|sizes| sizes["data_bytes"].as_u64().unwrap());
        if before > WORTHWHILE_BYTES {
            assert!(moved(&whole) > 0 && wanted < before, "the compaction had nothing to do: {whole}");
        }
        assert!(wanted <= before.max(WORTHWHILE_BYTES), "the compaction made the file longer: {whole}");
        assert!(found <= wanted + wanted / 4, "{again} after kills, and {whole} without");
        println!("{}moved {}, and left {found} bytes of {before}", self.told, moved(&again));
        killed
    }

    /// Kills one compaction. Returns whether it had not ended.
    fn kill_compaction(&mut self, number: u64, then: Duration) -> bool {
        let (rows, then_ms) = (self.ledger.stored_rows(), then.as_secs_f64() * 1e3);
        self.told = format!("kill {number}: compacting {rows} rows, {then_ms:.1} ms after the start: ");
        let mut child = self.scratch().spawn(&["compact", "db", "--json"]);
        let begun = Instant::now();
        while begun.elapsed() < then && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "the compaction was killed, or ended well");
        let length = self.scratch().path("db/data").metadata().unwrap().len();
        self.check();
        let killed = !ended.status.success();
        let counts = if killed { "" } else { ", but the compaction ended before the kill" };
        println!("{}the data file had {length} bytes, as promised{counts}", self.told);
        killed
    }

    /// Deletes rows at random: all but one in eight.
    fn delete_most(&mut self, draw: &mut Draw) {
        let gone: Vec<usize> = self.ledger.stored().filter(|_| draw.between(0, 8) > 0).collect();
        let _alone = no_child_starts();
        let db = open_to_write(&self.scratch().path("db"));
        for some in gone.chunks(DELETES) {
            let keys = some.iter().map(|index| self.ledger.key(*index));
            db.write(|tx| {
                let flights = tx.documents("flights");
                for key in keys.clone() {
                    assert!(flights.delete(key)?, "{key:?}");
                }
                Ok(())
            })
            .unwrap();
        }
        db.close().unwrap();
        self.ledger.delete(&gone);
    }

    /// Compacts copies of the database. Returns the report, and the time of the whole command: the second
    /// one's, because the first reads a colder disk.
    fn compact_a_copy(&self) -> (Value, Duration) {
        let compact = |name: &str| {
            self.copy("before", name);
            let begun = Instant::now();
            let report = json(&self.scratch().ok(&["compact", name, "--json"]));
            (report, begun.elapsed())
        };
        compact("first copy");
        compact("second copy")
    }

    /// Copies a closed database, in place of what is there.
    fn copy(&self, from: &str, to: &str) {
        let (source, target) = (self.scratch().path(from), self.scratch().path(to));
        let _ = std::fs::remove_dir_all(&target);
        std::fs::create_dir(&target).unwrap();
        for (path, ..) in self.scratch().listing(from) {
            let to = target.join(path.strip_prefix(&source).unwrap());
            if path.is_dir() {
                std::fs::create_dir(to).unwrap();
            } else {
                std::fs::copy(path, to).unwrap();
            }
        }
    }
}

fn moved(report: &Value) -> u64 {
    report["moved_bytes"].as_u64().unwrap()
}
