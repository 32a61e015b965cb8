//! Imports killed by `kill -9`, one after the other on the same database, at every stage of an import.
//!
//! Owns the moments of the kills and the checks after each. Of the killed import the first lines of its input
//! exist, in whole batches, including all that were acknowledged. After them are the rows from before, and
//! nothing else (D1, D2). The ledger knows which import stored which line.

mod compacting;

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use duramen::{Db, Durability, LocalReads, Span, Value};

use super::ledger::{Ledger, Totals};
use crate::runner::{FLIGHTS, Scratch, gunzip, json, no_child_starts};

/// The input of the imports, with its known figures.
pub(super) struct Input {
    /// A CSV file, gzip.
    pub(super) file: &'static str,
    pub(super) batch: u64,
    pub(super) all: Totals,
    /// Carrier, rows, sum of `dep_delay`.
    pub(super) carriers: &'static [(&'static str, u64, i128)],
}

/// Where an import is killed. A life of a database is one kill of each kind, in this order, then kills of
/// compactions, then a whole import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Creating,
    Loading,
    /// While the log of the previously killed import is replayed.
    Opening,
    ReplacingWhatIsThere,
    AddingToWhatIsThere,
    Closing,
}

const LIFE: [(Stage, &str); 6] = [
    (Stage::Creating, "creating the database"),
    (Stage::Loading, "loading"),
    (Stage::Opening, "opening what was killed"),
    (Stage::ReplacingWhatIsThere, "replacing what is there"),
    (Stage::AddingToWhatIsThere, "adding to what is there"),
    (Stage::Closing, "closing"),
];

/// The event from which the time to the kill is counted.
enum Since {
    Start,
    Directory,
    Acks(u64),
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Since::Start => f.write_str("the start"),
            Since::Directory => f.write_str("the directory"),
            Since::Acks(number) => write!(f, "ack {number}"),
        }
    }
}

/// A small generator of numbers.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % to.saturating_sub(from).max(1)
    }

    fn below(&mut self, bound: Duration) -> Duration {
        Duration::from_micros(self.between(0, u64::try_from(bound.as_micros()).unwrap()))
    }
}

/// How an import ended.
struct Ended {
    acks: u64,
    rows: u64,
    killed: bool,
}

/// A database, the imports into it, and its expected contents.
struct Life<'a> {
    scratch: Option<Scratch>,
    input: &'a Input,
    ledger: &'a mut Ledger,
    mark: i64,
    /// The duration of the last command that opened the database and counted.
    counting: Duration,
    /// The report line of the current import; printed at once, so that other output does not interleave.
    told: String,
}

/// Kills this many imports and compactions, and ends every life with a whole import.
pub(super) fn run(input: &Input, kills: u64, seed: u64) {
    println!("DURAMEN_SEED={seed}");
    let mut ledger = Ledger::new(&gunzip(input.file.as_ref()));
    assert_eq!(ledger.input_rows(), input.all.rows);
    let mut draw = Draw(seed);
    let (mut killed, mut rounds) = (0, 0);
    while killed < kills {
        ledger.forget();
        let scratch = Some(Scratch::new());
        let (ledger, counting) = (&mut ledger, Duration::ZERO);
        let mut life = Life { scratch, input, ledger, mark: 0, counting, told: String::new() };
        for stage in LIFE {
            if killed < kills {
                killed += u64::from(life.kill(stage, &mut draw, killed + 1));
                rounds += 1;
                assert!(rounds < 2 * kills + 12, "imports end before they are killed");
            }
        }
        if killed < kills {
            killed += life.kill_compactions(&mut draw, killed, kills - killed);
        }
        life.complete();
    }
}

impl Life<'_> {
    fn scratch(&self) -> &Scratch {
        self.scratch.as_ref().unwrap()
    }

    fn batches(&self) -> u64 {
        self.input.all.rows.div_ceil(self.input.batch)
    }

    /// One import and its kill. Returns whether the kill came before the end of the import.
    fn kill(&mut self, (stage, words): (Stage, &str), draw: &mut Draw, number: u64) -> bool {
        let (there, all) = (self.ledger.stored_rows() / self.input.batch, self.batches());
        let few_batches = Duration::from_millis(10);
        let (since, within) = match stage {
            Stage::Creating => (Since::Directory, few_batches * 2),
            Stage::Opening => (Since::Start, self.counting.mul_f64(1.25)),
            Stage::Loading => (Since::Acks(draw.between(1, all)), few_batches),
            Stage::ReplacingWhatIsThere => (Since::Acks(draw.between(1, there)), few_batches),
            Stage::AddingToWhatIsThere => (Since::Acks(draw.between(there.min(all - 1), all)), few_batches),
            Stage::Closing => (Since::Acks(all), few_batches),
        };
        let then = draw.below(within);
        let then_ms = then.as_secs_f64() * 1e3;
        self.told = format!("kill {number}: {words}, {then_ms:.1} ms after {since}: ");
        let file = if self.mark == 0 { self.input.file } else { "marked.csv" };
        if self.mark != 0 {
            self.scratch().write(file, self.ledger.marked_input(self.mark));
        }
        let ended = self.import(file, Some((since, then)));
        self.told += &format!("acknowledged {} batches, {} rows; ", ended.acks, ended.rows);
        self.look(&ended);
        if stage == Stage::ReplacingWhatIsThere {
            self.repair_in_this_process();
        }
        let counts = if ended.killed { "" } else { ", but the import ended before the kill" };
        println!("{}as promised{counts}", self.told);
        self.mark += 1;
        ended.killed
    }

    /// Imports the original flights completely: earlier kills leave no trace.
    fn complete(&mut self) {
        self.told = "then a whole import: ".to_owned();
        let ended = self.import(self.input.file, None);
        assert_eq!((ended.acks, ended.rows), (self.batches(), self.input.all.rows));
        self.ledger.take(0, ended.rows);
        self.check();
        assert_eq!(self.ledger.totals().into_values().sum::<Totals>(), self.input.all);
        for (carrier, rows, dep_delay) in self.input.carriers {
            let found = self.reduce(&["--prefix", carrier]);
            assert_eq!((found.rows, found.dep_delay), (*rows, *dep_delay), "{carrier}");
        }
        println!("{}{:?}, as known", self.told, self.input.all);
    }

    /// Runs an import, replacing existing rows, if there are any.
    fn import(&self, file: &str, kill: Option<(Since, Duration)>) -> Ended {
        let batch = self.input.batch.to_string();
        let mut args =
            vec!["import", "db", file, "--ack", "--durability", "disk", "--quiet", "--batch", &batch];
        if self.ledger.stored_rows() > 0 {
            args.push("--replace");
        }
        let mut child = self.scratch().spawn(&[&args, FLIGHTS].concat());
        let output = BufReader::new(child.stdout.take().unwrap());
        let (tell, acks) = mpsc::channel();
        let reader = std::thread::spawn(move || read_acks(output, &tell));
        let mut seen = Seen { acks, last: (0, 0), ended: false };
        if let Some((since, then)) = kill {
            match since {
                Since::Start => {}
                Since::Directory => {
                    let db = self.scratch().path("db");
                    while !seen.ended && !db.exists() {
                        seen.wait(Duration::from_micros(200));
                    }
                }
                Since::Acks(wanted) => {
                    while !seen.ended && seen.last.0 < wanted {
                        seen.wait(Duration::from_secs(60));
                    }
                }
            }
            let until = Instant::now() + then;
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|_| !seen.ended) {
                seen.wait(left);
            }
            child.kill().unwrap();
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(said, "", "the import was killed, or ended well");
        reader.join().unwrap();
        let (acks, rows) = seen.acks.try_iter().last().unwrap_or(seen.last);
        Ended { acks, rows, killed: !status.success() }
    }

    /// Checks the contents after a kill.
    fn look(&mut self, ended: &Ended) {
        let begun = Instant::now();
        let counted = self.scratch().run(&["count", "db", "-c", "flights"]);
        self.counting = begun.elapsed();
        if counted.code != Some(0) && ended.rows == 0 && self.ledger.stored_rows() == 0 {
            let unborn = ["E0209", "E0901", "E0902"].into_iter().find(|code| counted.stderr.contains(code));
            assert!(unborn.is_some(), "{}", counted.stderr);
            self.told += &format!("nothing found, {}; ", unborn.unwrap());
            return;
        }
        assert_eq!(counted.code, Some(0), "{}", counted.stderr);
        let found: u64 = counted.stdout.trim().parse().unwrap();
        let exported = self.scratch().ok(&["export", "db", "-c", "flights", "--format", "csv"]);
        let own = self.ledger.rows_of(self.mark, &exported);
        let count_ms = self.counting.as_millis();
        self.told +=
            &format!("found {own} rows of it, {found} in all, opened and counted in {count_ms} ms; ");
        let input_rows = self.input.all.rows;
        assert!(own >= ended.rows, "acknowledged rows are lost");
        assert!(ended.killed || own == input_rows, "the import ended, and rows are missing");
        assert!(own.is_multiple_of(self.input.batch) || own == input_rows, "a batch is there in part");
        self.ledger.take(self.mark, own);
        assert_eq!(found, self.ledger.stored_rows());
        self.check();
    }

    fn reduce(&self, range: &[&str]) -> Totals {
        let args = [&["reduce", "db", "-c", "flights", "--json"], range].concat();
        let found = json(&self.scratch().ok(&args));
        Totals {
            rows: found["count"].as_u64().unwrap(),
            dep_delay: found["sum"]["dep_delay"].as_i64().unwrap().into(),
            nulls: found["nulls"]["dep_delay"].as_u64().unwrap(),
            distance: found["sum"]["distance"].as_i64().unwrap().into(),
        }
    }

    /// Compares the database with the ledger, by every kind of query; none of them writes.
    fn check(&self) {
        let exported = self.scratch().ok(&["export", "db", "-c", "flights", "--format", "csv"]);
        self.ledger.check_export(&exported);
        assert_eq!(self.reduce(&[]), self.ledger.totals().into_values().sum());
        let checked = json(&self.scratch().ok(&["check", "db", "--json", "--deep"]));
        assert_eq!(checked["ok"], true, "{checked}");
        assert_eq!(checked["documents"], self.ledger.stored_rows());
        let path = self.scratch().path("db");
        let _alone = no_child_starts();
        check_by_library(&Db::options().create(false).read_only(true).open(path).unwrap(), self.ledger);
    }

    /// Opens for writing, which ends recovery, and closes: the next import begins on a clean database.
    fn repair_in_this_process(&self) {
        let _alone = no_child_starts();
        let db = open_to_write(&self.scratch().path("db"));
        check_by_library(&db, self.ledger);
        assert!(db.check().unwrap().is_clean());
        db.close().unwrap();
    }
}

/// A database that failed is kept.
impl Drop for Life<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = self.scratch.take().map(Scratch::keep).unwrap_or_default();
            println!("{}not as promised; the database is kept in {}", self.told, kept.display());
        }
    }
}

fn open_to_write(path: &Path) -> Db {
    Db::options().create(false).durability(Durability::Disk).open(path).unwrap()
}

/// The rows and sums of every carrier, and some positions and ranks.
fn check_by_library(db: &Db, ledger: &Ledger) {
    let snapshot = db.snapshot().unwrap();
    let flights = snapshot.documents("flights");
    let mut before = 0;
    for (carrier, wanted) in ledger.totals() {
        let found = flights.reduce(Span::prefix(carrier).unwrap()).unwrap();
        assert_eq!((found.count(), found.nulls("dep_delay")), (wanted.rows, Some(wanted.nulls)), "{carrier}");
        assert_eq!(found.sum("dep_delay"), Some(wanted.dep_delay), "{carrier}");
        assert_eq!(found.sum("distance"), Some(wanted.distance), "{carrier}");
        assert_eq!(flights.rank(carrier).unwrap(), before, "{carrier}");
        before += wanted.rows;
    }
    for (rank, index) in ledger.stored().enumerate().step_by(997) {
        let document = flights.nth(rank as u64).unwrap().unwrap();
        assert_eq!(document.get("distance"), Some(&Value::from(ledger.distance(index))), "row {rank}");
        assert_eq!(flights.rank(ledger.key(index)).unwrap(), rank as u64);
    }
    assert_eq!(flights.nth(before).unwrap(), None);
}

/// The acknowledgements read so far: batches and rows of the last.
struct Seen {
    acks: Receiver<(u64, u64)>,
    last: (u64, u64),
    ended: bool,
}

impl Seen {
    /// Waits for an acknowledgement, the end of the output, or this time.
    fn wait(&mut self, at_most: Duration) {
        match self.acks.recv_timeout(at_most) {
            Ok(ack) => self.last = ack,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.ended = true,
        }
    }
}

/// Sends every complete acknowledgement. With one thread, batches come in their order.
fn read_acks(mut output: impl BufRead, tell: &mpsc::Sender<(u64, u64)>) {
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words.len(), words[0]), (4, "ack"), "{line:?}");
        // The receiver may have stopped listening.
        let _ = tell.send((words[1].parse().unwrap(), words[2].parse().unwrap()));
        line.clear();
    }
}
