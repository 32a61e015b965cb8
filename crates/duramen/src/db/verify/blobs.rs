//! Checks that blobs are whole: each has as many pieces as its length requires, and every piece belongs to a
//! blob, or is listed as orphaned. The engine verifies contents, by the checksum of every page.

use super::{DocumentReport, is_of_disk, shown};
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::blobs::{BlobId, ORPHANED, PIECES, Record, namespaces, pieces_of, records_tree};
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source, TreeId};

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Checks every blob of every namespace.
pub(crate) fn blobs(snapshot: &Snapshot, report: &mut DocumentReport) -> Result<()> {
    match read(snapshot.source(), report) {
        Err(error) if is_of_disk(&error) => {
            report.problem(format!("the blobs cannot be read on: {error}"));
            Ok(())
        }
        done => done,
    }
}

fn read(source: &dyn Source, report: &mut DocumentReport) -> Result<()> {
    let pieces = source.tree(PIECES)?;
    let orphaned = source.tree(ORPHANED)?;
    let mut accounted = 0;
    for namespace in namespaces(source)? {
        let Some(records) = source.tree(&records_tree(&namespace)?)? else { continue };
        let mut cursor = source.cursor(records, ALL, Direction::Forward)?;
        while let Some((key, stored)) = cursor.next()? {
            report.blobs += 1;
            let record = match Record::decode(stored) {
                Ok(record) => record,
                Err(error) => {
                    report.problem(format!("blobs {namespace} {}: {}", shown(key), error.message()));
                    continue;
                }
            };
            let found = count(source, pieces, record.id)?;
            accounted += found;
            let wanted = record.piece_count();
            if found != wanted {
                report.problem(format!(
                    "blobs {namespace} {}: it has {found} pieces, and its length makes {wanted}",
                    shown(key)
                ));
            }
            if orphaned.map_or(Ok(None), |orphaned| source.get(orphaned, &record.id.0))?.is_some() {
                report.problem(format!("blobs {namespace} {}: it is also listed for collection", shown(key)));
            }
        }
    }
    if let Some(orphaned) = orphaned {
        let mut cursor = source.cursor(orphaned, ALL, Direction::Forward)?;
        while let Some(row) = cursor.next_key()? {
            accounted += count(source, pieces, BlobId::decode(row)?)?;
        }
    }
    let stored = pieces.map_or(Ok(0), |pieces| source.count(pieces, &ALL))?;
    if stored != accounted {
        report.problem(format!("there are {stored} pieces of blobs, and {accounted} belong to one"));
    }
    Ok(())
}

fn count(source: &dyn Source, pieces: Option<TreeId>, id: BlobId) -> Result<u64> {
    pieces.map_or(Ok(0), |pieces| source.count(pieces, &pieces_of(id)))
}
