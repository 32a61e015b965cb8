//! Checks key-values: each decodes, and the expiry index has a row for each value that expires, and no
//! others.

use super::{DocumentReport, is_of_disk, shown};
use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::kv::{Row, expiries_tree, index_key, namespace_of_expiries, rows_tree};
use crate::store::error::Result;
use crate::store::{Direction, KeyRange};
use crate::value::msgpack::check;
use crate::value::tuple::decode;

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Reads every key-value of every namespace.
pub(crate) fn key_values(snapshot: &Snapshot, report: &mut DocumentReport) -> Result<()> {
    let names = match snapshot.source().tree_names() {
        Err(error) if is_of_disk(&error) => {
            report.problem(format!("the namespaces of key-values cannot be listed: {error}"));
            return Ok(());
        }
        names => names?,
    };
    for namespace in names.iter().filter_map(|name| namespace_of_expiries(name)) {
        if snapshot.source().tree(&rows_tree(namespace))?.is_none() {
            report.problem(format!(
                "key-values {namespace}: there is an expiry index, and there are no values"
            ));
        }
    }
    for namespace in snapshot.kv_namespaces()? {
        report.namespaces += 1;
        match read(snapshot, &namespace, report) {
            Err(error) if is_of_disk(&error) => {
                report.problem(format!("key-values {namespace}: they cannot be read on: {error}"));
            }
            done => done?,
        }
    }
    Ok(())
}

fn read(snapshot: &Snapshot, namespace: &str, report: &mut DocumentReport) -> Result<()> {
    let source = snapshot.source();
    let Some(rows) = source.tree(&rows_tree(namespace))? else { return Ok(()) };
    let expiries = source.tree(&expiries_tree(namespace))?;
    let mut expiring = 0;
    let mut cursor = source.cursor(rows, ALL, Direction::Forward)?;
    while let Some((key, stored)) = cursor.next()? {
        report.key_values += 1;
        let row = match problem_of(key, stored) {
            Ok(row) => row,
            Err(problem) => {
                report.problem(format!("key-values {namespace} {}: {problem}", shown(key)));
                continue;
            }
        };
        let Some(at) = row.expires else { continue };
        expiring += 1;
        let indexed = match expiries {
            Some(expiries) => source.get(expiries, &index_key(at, key))?,
            None => None,
        };
        if indexed != Some(Vec::new()) {
            report.problem(format!("key-values {namespace} {}: the expiry index lacks it", shown(key)));
        }
    }
    let count = expiries.map_or(Ok(0), |expiries| source.count(expiries, &ALL))?;
    if count != expiring {
        report.problem(format!(
            "key-values {namespace}: the expiry index has {count} rows, and {expiring} values expire"
        ));
    }
    Ok(())
}

/// The key-value, or the problem with it.
pub(crate) fn problem_of(key: &[u8], stored: &[u8]) -> std::result::Result<Row, String> {
    let row = Row::decode(stored.to_vec()).map_err(|error| error.message().to_owned())?;
    decode(key).map_err(|error| error.message().to_owned())?;
    check(row.value()).map_err(|error| error.message().to_owned())?;
    Ok(row)
}
