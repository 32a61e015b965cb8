//! What is asked of a database that a cut has left: it opens, holds what was acknowledged and a prefix of one order, whole; its own checks
//! find nothing; backups are there; it takes new writes of every kind, comes to its end, closes, opens again and holds everything still.

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

/// Writers that write on, and commits of each.
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

/// Opens the database, and holds everything in it against what was acknowledged.
fn look(place: &Place, acknowledged: &mut Acknowledged) -> Outcome<(Db, States)> {
    let db = place.open(Durability::Disk, false)?;
    let newest = db.stats().commit.published.0;
    let states = judge::contents(&db)?;
    judge::order(&db, &states, newest, acknowledged)?;
    mirror::equals(&db, &states, acknowledged)?;
    judge::checks_are_clean(&db)?;
    Ok((db, states))
}

/// A backup that had returned is there, whole, with what was committed before it; one under way is, or does not open.
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

/// New writes of every kind, and then everything comes to its end: documents are converted, views built, what nobody can see is swept,
/// the consumer has read all.
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
    // What is not durable is not told: a commit that is makes everything before it so.
    db.write(|tx| tx.put_bytes(LIFE, b"settled", b""))?;
    while mirror::work(&db, 64, 64)? > 0 {}
    // Of the first release, too: a view that was added by name is built with any.
    release.build(&db, || Ok(()))?;
    views::all_answer(&db)?;
    db.sweep_expired()?;
    db.sweep_blobs()?;
    judge::contents(&db).map_err(|wrong| wrong.while_doing("written on"))?;
    Ok(db)
}
