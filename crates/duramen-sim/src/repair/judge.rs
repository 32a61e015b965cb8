//! The verdict on one repair.

use std::sync::Arc;

use duramen::{Code, Lost, RepairReport, StoreKind};
use duramen_disk::MemDisk;
use xxhash_rust::xxh3::xxh3_128;

use super::Report;
use super::specimen::{self, DATA, DATABASE, REPAIRED, Rows, Specimen, Stored, options};
use crate::corruption::files_of;

/// Repairs a corrupt disk, and compares the new database with what was stored.
pub(super) fn judge(
    specimen: &Specimen,
    disk: &MemDisk,
    is_one_page: bool,
    report: &mut Report,
) -> Result<(), String> {
    let before = old_files(disk);
    let repaired = options().repair_on(Arc::new(disk.clone()), DATABASE, REPAIRED, |_| Ok(()));
    if old_files(disk) != before {
        return Err("the corrupt database was written to".to_owned());
    }
    let told = match repaired {
        Ok(told) => told,
        // Neither a superblock nor a header of the log tells which database it was.
        Err(error)
            if [Code::CorruptSuperblock, Code::NotADatabase].contains(&error.code())
                && !before.iter().any(|(path, bytes)| names_its_database(path, bytes)) =>
        {
            return Ok(());
        }
        Err(error) => return Err(format!("not repaired: {} {error}", error.code())),
    };
    let new = specimen::open(disk, REPAIRED).map_err(|error| format!("it does not open: {error}"))?;
    let found = Stored::of(&new).map_err(|error| format!("it cannot be read: {error}"))?;
    let states = new.view_states().map_err(|error| format!("its views: {error}"))?;
    drop(new);
    // Zeroes where the log ended look like a log that ended earlier.
    let may_be_shorter = !is_one_page && logs(&before) != logs(&old_files(&specimen.disk));
    if told.seq < specimen.floor && told.lost_commits.is_none() && !may_be_shorter {
        return Err(format!("an older state in silence: commit {}, want {}", told.seq, specimen.floor));
    }
    report.whole_page_count += saved_pages(specimen, disk, &told, &found)?;
    report.found_row_count += told.found_rows;
    report.uncertain_row_count += told.uncertain.iter().map(|uncertain| uncertain.rows).sum::<u64>();
    check_uncertain(specimen, &told, &found)?;
    let compared = specimen.at(told.seq).into_iter().map(|wanted| compare(&told, wanted, &found));
    let missing = compared.reduce(|one, other| one.or(other)).expect("at least one state")?;
    let names_lost = has_lost_names(&told);
    if !names_lost && !states.iter().all(duramen::ViewState::is_ready) {
        return Err(format!("a view is not built: {:?}", told.views_waiting));
    }
    if told.is_whole() && missing > 0 {
        return Err(format!("{missing} rows are missing in silence"));
    }
    report.lost_row_count += missing;
    if names_lost {
        report.names_lost_count += 1;
    } else if told.lost_commits.is_some() {
        report.commits_lost_count += 1;
    } else if missing > 0 {
        if is_one_page && told.lost.len() > 1 {
            return Err(format!("one page is corrupt, and {} stretches are lost", told.lost.len()));
        }
        report.rows_lost_count += 1;
        report.lost_rows_max = report.lost_rows_max.max(missing);
        if missing > told.lost_rows() {
            return Err(format!("{missing} rows are missing, and {} were told of", told.lost_rows()));
        }
    } else {
        report.whole_count += u64::from(told.is_whole());
    }
    Ok(())
}

/// Whether a file says which database it belongs to.
fn names_its_database(path: &str, bytes: &[u8]) -> bool {
    let begins = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|bytes| bytes.starts_with(magic));
    let checked = |at: usize, checksum: usize| {
        let found = bytes.get(at + checksum..at + checksum + 16);
        let covered = bytes.get(at..at + checksum);
        covered.is_some_and(|covered| found == Some(&xxh3_128(covered).to_le_bytes()[..]))
    };
    if path.ends_with(".wal") {
        return begins(0, b"DURAMWAL") && checked(0, 240);
    }
    path == DATA && [0, 16384].iter().any(|at| checked(*at, 496))
}

fn logs(files: &[(String, Vec<u8>)]) -> Vec<&(String, Vec<u8>)> {
    files.iter().filter(|(path, _)| path.ends_with(".wal")).collect()
}

fn old_files(disk: &MemDisk) -> Vec<(String, Vec<u8>)> {
    files_of(disk).into_iter().filter(|(path, _)| path.starts_with(&format!("{DATABASE}/"))).collect()
}

/// Whether anything was lost that identifies trees.
fn has_lost_names(told: &RepairReport) -> bool {
    let is_of_names = |lost: &Lost| lost.store == StoreKind::Own && !lost.name.starts_with("shapes");
    !told.renamed.is_empty() || told.lost.iter().any(is_of_names)
}

/// Compares each row with what was stored; returns how many are missing. Each missing row must be explained.
fn compare(told: &RepairReport, wanted: &Stored, found: &Stored) -> Result<u64, String> {
    for ((store, name), rows) in &found.rows {
        if told.uncertain.iter().any(|uncertain| (uncertain.store, &uncertain.name) == (*store, name)) {
            continue;
        }
        // These hold rows of another tree, and it is unknown which one.
        if told.renamed.contains(name) {
            let doomed = |value: &Vec<u8>| value.ends_with(specimen::DOOMED.as_bytes());
            if !wanted.rows.contains_key(&(StoreKind::KeyValues, "doomed".to_owned()))
                && rows.values().any(doomed)
            {
                return Err(format!("{name}: what was dropped is back"));
            }
            continue;
        }
        let known = wanted.rows.get(&(*store, name.clone()));
        for (key, value) in rows {
            match known.and_then(|known| known.get(key)) {
                None => return Err(format!("{store:?} {name}: a row that was not there: {key:02x?}")),
                Some(known) if known != value => {
                    return Err(format!("{store:?} {name}: another value than was stored: {key:02x?}"));
                }
                Some(_) => {}
            }
        }
    }
    let nothing = Rows::new();
    let mut missing = 0;
    for ((store, name), rows) in &wanted.rows {
        let there = found.rows.get(&(*store, name.clone())).unwrap_or(&nothing);
        for key in rows.keys().filter(|key| !there.contains_key(*key)) {
            missing += 1;
            if !is_explained(told, *store, name, key) {
                return Err(format!("{store:?} {name}: the row {key:02x?} is missing in silence: {told:?}"));
            }
        }
    }
    Ok(missing)
}

/// Checks that the rows of every page are there that is whole and that the checkpoint reached. Returns
/// how many pages these are.
fn saved_pages(
    specimen: &Specimen,
    disk: &MemDisk,
    told: &RepairReport,
    found: &Stored,
) -> Result<u64, String> {
    let data = disk.read_file(DATA).map_err(|error| error.to_string())?;
    // What the log deleted after the checkpoint may be missing, if the log was applied.
    let wanted = specimen.at(told.seq.max(specimen.checkpoint));
    let names_lost = has_lost_names(told);
    let mut count = 0;
    for leaf in specimen.leaves() {
        if data.get(leaf.offset..leaf.offset + leaf.page.len()) != Some(&leaf.page[..]) {
            continue;
        }
        count += 1;
        let of = (leaf.store, leaf.name.clone());
        let beside = told.uncertain.iter().find(|one| (one.store, &one.of) == (leaf.store, &leaf.name));
        let beside = beside.map(|one| (one.store, one.name.clone()));
        let has = |place: &(StoreKind, String), key: &Vec<u8>| {
            found.rows.get(place).is_some_and(|rows| rows.contains_key(key))
        };
        for key in &leaf.keys {
            let is_deleted = wanted.iter().any(|wanted| !wanted.has(&of, key));
            let is_there = has(&of, key) || beside.as_ref().is_some_and(|beside| has(beside, key));
            // Without names the rows lie under others. Each store has keys of its own.
            let is_renamed = |(_, name): &&(StoreKind, String)| name.starts_with("recovered/");
            let is_somewhere =
                || names_lost && found.rows.keys().filter(is_renamed).any(|place| has(place, key));
            if !is_deleted && !is_there && !is_somewhere() {
                return Err(format!(
                    "{:?} {}: the page at {:#x} is whole, and its row {key:02x?} is missing: {told:?}",
                    leaf.store, leaf.name, leaf.offset
                ));
            }
        }
    }
    Ok(count)
}

/// Checks that every uncertain row was a row at some time.
fn check_uncertain(specimen: &Specimen, told: &RepairReport, found: &Stored) -> Result<(), String> {
    for uncertain in &told.uncertain {
        let of = (uncertain.store, uncertain.of.clone());
        // It is unknown what the rows of an internal tree are, and where names are lost those of any tree of
        // bytes.
        let is_internal = uncertain.name.contains("/duramen/");
        if is_internal || !specimen.had(&of) && has_lost_names(told) {
            continue;
        }
        let Some(rows) = found.rows.get(&(uncertain.store, uncertain.name.clone())) else { continue };
        for (key, value) in rows {
            if !specimen.was_ever(&of, key, value) {
                return Err(format!("{}: a row that never was: {key:02x?}", uncertain.name));
            }
        }
    }
    Ok(())
}

fn is_explained(told: &RepairReport, store: StoreKind, name: &str, key: &[u8]) -> bool {
    let left_out =
        || told.left_out.iter().any(|one| (one.store, one.name.as_str(), &one.key[..]) == (store, name, key));
    let lost = told.lost.iter().filter(|lost| lost.store == store && lost.name == name).any(|lost| {
        let is_it = lost.after.as_deref() == Some(key) && lost.before.as_deref() == Some(key);
        let after = lost.after.as_deref().is_none_or(|after| after < key);
        let before = lost.before.as_deref().is_none_or(|before| key < before);
        is_it || (after && before)
    });
    lost || left_out() || has_lost_names(told)
}
