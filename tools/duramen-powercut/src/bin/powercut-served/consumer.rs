//! `kill -9` of a consumer of changes, again and again: each change takes effect once, and in order.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen::{AnyChanged, Origin};
use duramen_client::Remote;
use duramen_disk::memory::Random;

use crate::kill_clients::connect;
use crate::killed::end;
use crate::{Wrong, wrong};

/// What is changed, and what follows from each change.
const NUMBERS: &str = "numbers";
const HANDLED: &str = "handled";

const STEPS: &str = "steps";

const CONSUMER: &str = "follower";

/// Documents of a transaction.
const TOGETHER: u64 = 50;

/// A consumer that dies early lives at most this long, in milliseconds.
const EARLY_MS_MAX: usize = 40;

/// Without anything handled for so long it is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers of such a run.
#[derive(Debug, clap::Args)]
pub(crate) struct KillConsumer {
    #[command(flatten)]
    of: crate::Of,
    /// Changes to handle
    #[arg(long, default_value_t = 336_776)]
    changes: u64,
    #[arg(long, default_value_t = 50)]
    kills: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The consumer, a process of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct OneConsumer {
    #[command(flatten)]
    of: crate::Of,
}

/// Handles changes for ever: notes each number, the commit that put it, and the step that handled it.
pub(crate) fn run_one(args: &OneConsumer) -> Result<(), Wrong> {
    let remote = Remote::from(connect(&args.of.db)?);
    let mut consumer = remote.consumer(CONSUMER, true)?;
    loop {
        consumer.step(PATIENCE, |tx, changes| {
            let step = tx.kv(STEPS).increment("count", 1)?;
            for change in changes {
                let is_number = matches!(&change.origin, Origin::Collection(name) if name == NUMBERS);
                let is_put = matches!(change.what, AnyChanged::Put { .. });
                if let (true, true, Some(document)) = (is_number, is_put, change.document()?) {
                    let number = document.get("number").cloned();
                    // Refused if it is there: what is handled twice ends this process.
                    tx.documents(HANDLED)
                        .insert(&doc! { "number": number, "seq": change.seq.0, "step": step })?;
                }
            }
            Ok(())
        })?;
    }
}

/// Kills consumers while documents are written, and checks what they have done.
pub(crate) fn run(args: &KillConsumer) -> Result<(), Wrong> {
    let db = Db::open(&args.of.db)?;
    for collection in [NUMBERS, HANDLED] {
        db.ensure(&Schema::new(collection).key(["number"]))?;
    }
    db.consumer(CONSUMER).from_beginning().register()?;
    let server = duramen_server::local(&db)?;
    let begun = Instant::now();
    let killed = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(&db, args.changes));
        let killed = kill(args, &db);
        writing.join().map_err(|_| wrong("the writer panicked"))?.and(killed)
    })?;
    let (took, amid) = (begun.elapsed(), killed);
    if amid < args.kills / 2 {
        return Err(wrong(format!(
            "only {amid} kills came before everything was handled: take more changes"
        )));
    }
    server.stop();
    let in_order = check(&db, args.changes)?;
    println!(
        "seed {}: {} kills of a consumer, {amid} of them before the end: {} changes of {in_order} commits handled once each, in {:.1} s",
        args.seed,
        args.kills,
        args.changes,
        took.as_secs_f64()
    );
    Ok(())
}

fn write(db: &Db, changes: u64) -> Result<(), Wrong> {
    for first in (0..changes).step_by(usize::try_from(TOGETHER).unwrap_or(1)) {
        db.transact(|tx| {
            (first..changes.min(first + TOGETHER))
                .try_for_each(|number| tx.documents(NUMBERS).put(doc! { "number": number }))
        })?;
    }
    Ok(())
}

/// Returns how many kills came before everything was handled.
fn kill(args: &KillConsumer, db: &Db) -> Result<u64, Wrong> {
    let (mut random, mut amid) = (Random::new(args.seed), 0);
    for _ in 0..args.kills {
        let mut consumer = begin(&args.of.db)?;
        let before = handled(db)?;
        if random.below(4) > 0 {
            // So that all kills together come before the end.
            let some = random.below(usize::try_from(args.changes / (args.kills + 1)).unwrap_or(0).max(1));
            wait(db, &mut consumer, before + some as u64, args.changes)?;
        } else {
            // Now and then it dies before it has handled anything, or just begun.
            std::thread::sleep(Duration::from_millis(random.below(EARLY_MS_MAX) as u64));
        }
        amid += u64::from(handled(db)? < args.changes);
        end(&mut consumer)?;
    }
    let mut last = begin(&args.of.db)?;
    loop {
        let before = handled(db)?;
        if before >= args.changes {
            // Those that it made itself are still to be passed over.
            return end(&mut last).map(|()| amid);
        }
        wait(db, &mut last, before, args.changes)?;
    }
}

/// Waits until more is handled than so much, or all is.
fn wait(db: &Db, consumer: &mut Child, before: u64, all: u64) -> Result<(), Wrong> {
    let begun = Instant::now();
    while handled(db)? <= before && before < all {
        if consumer.try_wait().map_err(|error| wrong(error.to_string()))?.is_some() {
            return Err(wrong("the consumer ended by itself"));
        }
        if begun.elapsed() > PATIENCE {
            return Err(wrong(format!("nothing was handled for {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn handled(db: &Db) -> Result<u64, Wrong> {
    Ok(db.documents(HANDLED).count(Span::all())?)
}

/// Every number was handled, with the commit that its neighbours have, and in order. Returns how many commits
/// there were.
fn check(db: &Db, changes: u64) -> Result<u64, Wrong> {
    let (mut wanted, mut seqs, mut steps) = (0, Vec::new(), Vec::new());
    for document in db.documents(HANDLED).scan(Span::all())? {
        let document = document?;
        if document.get("number") != Some(&Value::from(wanted)) {
            return Err(wrong(format!("number {wanted} was not handled")));
        }
        let Some(Value::Int(seq)) = document.get("seq") else {
            return Err(wrong("a change without a commit"));
        };
        if wanted % TOGETHER == 0 {
            seqs.push(*seq);
        } else if seqs.last() != Some(seq) {
            return Err(wrong(format!("number {wanted} was handled with another commit than its own")));
        }
        let Some(Value::Int(step)) = document.get("step") else {
            return Err(wrong("a change without a step"));
        };
        steps.push(*step);
        wanted += 1;
    }
    if wanted != changes || !seqs.is_sorted_by(|one, next| one < next) || !steps.is_sorted() {
        return Err(wrong(format!("{wanted} of {changes} numbers were handled, or not in order")));
    }
    Ok(seqs.len() as u64)
}

fn begin(db: &Path) -> Result<Child, Wrong> {
    let me = std::env::current_exe().map_err(|error| wrong(error.to_string()))?;
    let started = Command::new(me).arg("consumer").arg("--db").arg(db).spawn();
    started.map_err(|error| wrong(format!("the consumer does not start: {error}")))
}
