//! Checks a database that a cut has left.
//!
//! It opens. It holds what was acknowledged, and a whole prefix of one order. Its own checks find nothing;
//! backups exist. It then takes new writes of every kind, finishes all pending work, is compacted, closes,
//! opens again, and still holds everything.

use std::path::PathBuf;
use std::sync::Mutex;

use clap::Args;
use duramen::{Code, Db, Durability};

use crate::acknowledged::Acknowledged;
use crate::judge::{self, States};
use crate::load::{self, Open, Said, Work};
use crate::opening::{LIFE, Place, Sizes, terms};
use crate::plan::Terms;
use crate::wrong::{Outcome, Wrong};
use crate::{mirror, views};

/// The number of writers that continue, and of their commits.
const WRITERS: u32 = 2;
const COMMITS: u64 = 8;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    place: Place,
    /// The acknowledgements
    #[arg(long)]
    ack: PathBuf,
}

pub(crate) fn check(args: &CheckArgs) -> Outcome<String> {
    let place = &args.place;
    let mut acknowledged = Acknowledged::of_file(&args.ack)?;
    let said_count = acknowledged.commits.len();
    let (db, states) = look(place, &mut acknowledged)?;
    let backup_count = backups(place, &acknowledged)?;
    let there: u64 = states.values().map(|state| state.count).sum();
    let db = write_on(place, db, &states, &mut acknowledged)?;
    db.close().map_err(|error| Wrong::from(error).while_doing("cannot close"))?;
    drop(db);
    let (db, _) = look(place, &mut acknowledged).map_err(|wrong| wrong.while_doing("opened again"))?;
    views::all_answer(&db)?;
    db.close().map_err(|error| Wrong::from(error).while_doing("cannot close"))?;
    Ok(format!("{said_count} acknowledged, {there} there, all whole; {backup_count} backups"))
}

/// Opens the database, and compares everything in it with what was acknowledged.
fn look(place: &Place, acknowledged: &mut Acknowledged) -> Outcome<(Db, States)> {
    let db = place.open(Durability::Disk, false)?;
    let newest = db.stats().commit.published.0;
    let states = judge::contents(&db)?;
    judge::order(&db, &states, newest, acknowledged)?;
    mirror::equals(&db, &states, acknowledged)?;
    judge::checks_are_clean(&db)?;
    Ok((db, states))
}

/// A backup that had returned exists, whole, with the commits before it. One in progress exists, or does not
/// open.
fn backups(place: &Place, acknowledged: &Acknowledged) -> Outcome<usize> {
    let folder = place.backups();
    let mut found = Vec::new();
    if let Ok(entries) = std::fs::read_dir(&folder) {
        found.extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
    }
    for (name, counts) in &acknowledged.backups {
        if counts.is_some() && !found.contains(name) {
            return Err(format!("the backup {name} is not there").into());
        }
    }
    let mut whole_count = 0;
    for name in found {
        let floor = acknowledged.backups.get(&name);
        if floor == Some(&None) {
            continue;
        }
        let doing = |wrong: Wrong| wrong.while_doing(&format!("the backup {name}"));
        match place.open_backup(&folder.join(&name)) {
            Ok(db) => {
                let states = judge::contents(&db).map_err(doing)?;
                if let Some(Some(counts)) = floor {
                    judge::at_least(&states, counts).map_err(doing)?;
                }
                judge::checks_are_clean(&db).map_err(doing)?;
                whole_count += 1;
            }
            Err(error)
                if floor.is_none()
                    && [Code::UnfinishedCopy, Code::NoSuchDatabase, Code::NotADatabase]
                        .contains(&error.code()) => {}
            Err(error) => return Err(doing(Wrong::from(error))),
        }
    }
    Ok(whole_count)
}

/// New writes of every kind, then all pending work: documents are converted, views built, unreferenced data
/// collected, and the consumer has read everything.
fn write_on(place: &Place, db: Db, states: &States, acknowledged: &mut Acknowledged) -> Outcome<Db> {
    let wanted = Terms { seed: 1, is_heavy: place.sizes == Sizes::Shipped, is_plain: false };
    let is_born = terms(&db)?.is_some();
    let (terms, release) = load::begin(&db, wanted)?;
    if is_born && terms.is_plain {
        return Ok(db);
    }
    let work = Work { terms, writers: WRITERS, count: COMMITS, forced: None };
    let said = Said::Kept(Mutex::new(String::new()));
    let (open, said) = load::run(place, Open { db, release }, said, states, work)?;
    let Open { db, release } = open;
    let Said::Kept(lines) = said else { return Err("what was said went elsewhere".into()) };
    let more = Acknowledged::of_lines(&lines.into_inner().unwrap_or_default())?;
    acknowledged.commits.extend(more.commits);
    acknowledged.backups.extend(more.backups);
    // The feed returns only durable changes; a durable commit makes everything before it durable.
    db.write(|tx| tx.put_bytes(LIFE, b"settled", b""))?;
    while mirror::work(&db, 64, 64)? > 0 {}
    // Also for the first release: a view that was added by name is built by every release.
    release.build(&db, || Ok(()))?;
    views::all_answer(&db)?;
    db.sweep_expired()?;
    db.sweep_blobs()?;
    judge::contents(&db).map_err(|wrong| wrong.while_doing("written on"))?;
    db.compact().map_err(|error| Wrong::from(error).while_doing("compact"))?;
    Ok(db)
}
