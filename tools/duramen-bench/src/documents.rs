//! `documents`: typed documents with three views, beside raw trees and what a Rust program would use instead.
//!
//! Every engine stores the same orders durably, changes some, and answers by key, by view, by a sum and by a
//! filter that no view helps with. A round takes each engine once, in turns, with a fresh database. The
//! answers of all engines are compared.

mod model;
#[cfg(feature = "native_db")]
mod native;
mod raw;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sqlite")]
mod sqlite;
mod typed;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::engine::Result;
use crate::tables::Grid;
use crate::{child, machine, output};
use model::{Answers, CITIES, ORDERS_OF_A_CUSTOMER, Order, order};

/// How to measure documents.
#[derive(Debug, Args)]
pub(crate) struct Documents {
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Orders to store.
    #[arg(long, default_value_t = 300_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub orders: u64,
    /// Rounds, in each of which every engine runs once.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
}

/// Orders in each durable transaction.
const BATCH: u64 = 1_000;

/// What an engine must do. Each write is one durable transaction.
trait Orders {
    /// Stores new orders.
    fn put(&mut self, orders: &[Order]) -> Result<()>;
    /// Adds to the cents of orders, which it reads first.
    fn update(&mut self, ids: &[u64], cents: i64) -> Result<()>;
    fn get(&mut self, id: u64) -> Result<Option<Order>>;
    /// By a view: the orders of a customer.
    fn of_customer(&mut self, customer: u64) -> Result<Vec<Order>>;
    /// How many orders of a city there are, and the sum of their cents.
    fn sum_of_city(&mut self, city: &str) -> Result<(u64, i64)>;
    /// By a filter without a view: the orders above a weight.
    fn heavier(&mut self, weight: f64) -> Result<Vec<Order>>;
    fn close(self: Box<Self>) -> Result<()>;
}

/// An engine, and how it opens a new database.
struct Entry {
    name: &'static str,
    setting: &'static str,
    open: fn(&Path) -> Result<Box<dyn Orders>>,
}

const ENTRIES: &[Entry] = &[
    typed::ENTRY,
    raw::ENTRY,
    #[cfg(feature = "sqlite")]
    sqlite::ENTRY,
    #[cfg(feature = "redb")]
    redb::ENTRY,
    #[cfg(feature = "native_db")]
    native::ENTRY,
];

/// The rows of the tables.
const STEPS: [&str; 7] = [
    "put, 1,000 a transaction",
    "update, 1,000 a transaction",
    "get",
    "by a view: ten orders of a customer",
    "count and sum of a city",
    "filter without a view, of all orders",
    "close",
];

/// What one engine took in one round: microseconds of each step's operations, elapsed and of the processor,
/// and bytes on disk after it was closed.
struct Taken {
    elapsed_us: [f64; STEPS.len()],
    processor_us: [f64; STEPS.len()],
    disk_bytes: u64,
}

/// Measures all engines, and prints tables.
///
/// # Errors
/// Errors of an engine; answers that differ.
pub(crate) fn run(words: &Documents) -> Result<()> {
    let mut taken: Vec<Vec<Taken>> = ENTRIES.iter().map(|_| Vec::new()).collect();
    let mut expected: Option<Answers> = None;
    for round in 0..words.rounds {
        for turn in 0..ENTRIES.len() {
            let at = (turn + usize::try_from(round)?) % ENTRIES.len();
            let entry = &ENTRIES[at];
            output::progress(&format!("round {} of {}: {}", round + 1, words.rounds, entry.name));
            let dir = words.dir.join(format!("duramen-documents-{}", std::process::id()));
            child::fresh(&dir)?;
            machine::settle(&dir);
            let measured = measure(entry, &dir, words.orders);
            child::remove(&dir)?;
            let (answers, figures) = measured?;
            if *expected.get_or_insert_with(|| answers.clone()) != answers {
                return Err(
                    format!("{} answers {answers:?}, and {expected:?} is expected", entry.name).into()
                );
            }
            taken[at].push(figures);
        }
    }
    output::line(&machine::sentence());
    for entry in ENTRIES {
        output::line(&format!("{}: {}", entry.name, entry.setting));
    }
    show("elapsed us each", &taken, |taken, step| taken.elapsed_us[step]);
    show("processor us each", &taken, |taken, step| taken.processor_us[step]);
    Ok(())
}

fn measure(entry: &Entry, dir: &Path, count: u64) -> Result<(Answers, Taken)> {
    let mut answers = Answers::default();
    let (mut elapsed_us, mut processor_us) = ([0.0; STEPS.len()], [0.0; STEPS.len()]);
    let mut open = Some((entry.open)(dir)?);
    let customers = count / ORDERS_OF_A_CUSTOMER;
    for step in 0..STEPS.len() {
        let operations = [count, count / 5, count, count / 15, 2_000, 5, 1][step];
        let (begun, processor) = (Instant::now(), machine::cpu_seconds());
        let Some(orders) = &mut open else { break };
        match step {
            0 => {
                for first in (0..count).step_by(usize::try_from(BATCH)?) {
                    let batch: Vec<Order> = (first..(first + BATCH).min(count)).map(order).collect();
                    orders.put(&batch)?;
                }
            }
            1 => {
                for first in (0..operations).step_by(usize::try_from(BATCH)?) {
                    let ids: Vec<u64> =
                        (first..(first + BATCH).min(operations)).map(|at| model::drawn(at, count)).collect();
                    orders.update(&ids, 25)?;
                }
            }
            2 => (0..operations).try_for_each(|at| {
                answers.add(orders.get(model::drawn(at + 7, count))?.as_slice());
                Result::Ok(())
            })?,
            3 => (0..operations).try_for_each(|at| {
                answers.add(&orders.of_customer(model::drawn(at, customers))?);
                Result::Ok(())
            })?,
            4 => (0..operations).try_for_each(|at| {
                answers.add_sum(orders.sum_of_city(&model::city(at % CITIES))?);
                Result::Ok(())
            })?,
            5 => (0..operations).try_for_each(|_| {
                answers.add(&orders.heavier(model::HEAVY)?);
                Result::Ok(())
            })?,
            // What was put off until now belongs to the writes.
            _ => open.take().map_or(Ok(()), |orders| orders.close())?,
        }
        elapsed_us[step] = begun.elapsed().as_secs_f64() * 1e6 / operations as f64;
        processor_us[step] = (machine::cpu_seconds() - processor) * 1e6 / operations as f64;
    }
    Ok((answers, Taken { elapsed_us, processor_us, disk_bytes: machine::space_bytes(dir) }))
}

/// Prints the medians of one figure, with the smallest and the largest.
fn show(what: &str, taken: &[Vec<Taken>], figure: impl Fn(&Taken, usize) -> f64) {
    let mut head = vec![what.to_owned()];
    head.extend(ENTRIES.iter().map(|entry| entry.name.to_owned()));
    let row = |name: &str, figure: &dyn Fn(&Taken) -> f64| {
        let mut row = vec![name.to_owned()];
        row.extend(taken.iter().map(|rounds| spread(rounds.iter().map(figure).collect())));
        row
    };
    let mut rows: Vec<Vec<String>> =
        STEPS.iter().enumerate().map(|(step, name)| row(name, &|taken| figure(taken, step))).collect();
    rows.push(row("MB on disk after close", &|taken| taken.disk_bytes as f64 / 1e6));
    output::table(&Grid { head, rows }.table());
}

fn spread(mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    let shown = |figure: f64| match figure {
        small if small < 100.0 => format!("{small:.2}"),
        large => format!("{large:.0}"),
    };
    let (first, last) = (figures[0], figures[figures.len() - 1]);
    format!("{} [{} .. {}]", shown(figures[figures.len() / 2]), shown(first), shown(last))
}
