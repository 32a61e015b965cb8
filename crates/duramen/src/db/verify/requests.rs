//! Checks the answers of requests: each decodes and lies in the tree of its minute, and no minute that was
//! forgotten has a tree.

use super::{DocumentReport, is_of_disk};
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::requests::{FLOOR_TREE, floor, minute_of, problem_of, problem_of_floor};
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, TreeId};

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Reads every answer.
pub(crate) fn requests(snapshot: &Snapshot, report: &mut DocumentReport) -> Result<()> {
    let trees = match snapshot.trees_from(FLOOR_TREE) {
        Err(error) if is_of_disk(&error) => {
            report.problem(format!("the answers of requests cannot be listed: {error}"));
            return Ok(());
        }
        trees => trees?,
    };
    let first = match floor(snapshot.source()) {
        Err(error) if is_of_disk(&error) => 0,
        first => first?,
    };
    for (name, tree) in trees {
        let minute = minute_of(&name);
        if minute.is_some_and(|minute| minute < first) {
            report.problem(format!("requests: {name} is below the floor {first}"));
        }
        match read(snapshot, &name, minute, tree, report) {
            Err(error) if is_of_disk(&error) => {
                report.problem(format!("requests: {name} cannot be read on: {error}"));
            }
            done => done?,
        }
    }
    Ok(())
}

fn read(
    snapshot: &Snapshot,
    name: &str,
    minute: Option<u64>,
    tree: TreeId,
    report: &mut DocumentReport,
) -> Result<()> {
    let mut rows = snapshot.source().cursor(tree, ALL, Direction::Forward)?;
    while let Some((key, stored)) = rows.next()? {
        let problem = match minute {
            Some(minute) => problem_of(minute, key, stored),
            None if name == FLOOR_TREE => problem_of_floor(key, stored),
            None => None,
        };
        if let Some(problem) = problem {
            report.problem(format!("requests: {name}: {problem}"));
        }
    }
    Ok(())
}
