//! Blobs of a repaired database: each is whole, or removed.
//!
//! Blobs that cannot be kept are listed as orphaned and collected, like deleted blobs. So memory does not
//! grow with their number.

use sha2::{Digest, Sha256};

use super::batch::Batch;
use super::report::StoreKind;
use super::{ALL, Mending};
use crate::access::reads::sealed::Readable;
use crate::blobs::{BlobId, ORPHANED, PIECES, Record, namespaces, pieces_of, records_tree};
use crate::store::error::{Code, Result};
use crate::store::{Direction, KeyRange, Source, TreeId};

impl Mending<'_> {
    /// Checks every blob, removes incomplete ones, and collects pieces that belong to no blob.
    pub(crate) fn blobs(&mut self) -> Result<()> {
        let unlisted = self.orphan_all()?;
        let mut named = 0;
        let state = self.db.snapshot()?;
        for namespace in namespaces(state.source())? {
            named += self.namespace(&namespace)?;
        }
        self.report.unnamed_blobs = unlisted.saturating_sub(named);
        self.db.sweep_blobs()?;
        Ok(())
    }

    /// Lists every id with pieces as orphaned. Returns how many were not listed before.
    fn orphan_all(&mut self) -> Result<u64> {
        let state = self.db.snapshot()?;
        let Some(pieces) = state.source().tree(PIECES)? else { return Ok(0) };
        let (mut from, mut unlisted) = (Vec::new(), 0);
        let was = state.source().tree(ORPHANED)?;
        let orphaned = match was {
            Some(tree) => tree,
            None => self.db.transact(|tx| tx.shared().create_tree(ORPHANED, None))?,
        };
        let mut batch = Batch::new(self.db);
        loop {
            let range = KeyRange { from, to: None };
            let mut rows = state.source().cursor(pieces, range, Direction::Forward)?;
            let Some(key) = rows.next_key()? else { break };
            // A piece's key is its blob's id followed by a number.
            let id = BlobId::decode(key.get(..16).unwrap_or(key))?;
            if was.map_or(Ok(None), |was| state.source().get(was, &id.0))?.is_none() {
                unlisted += 1;
                batch.put(orphaned, id.0.to_vec(), Vec::new())?;
            }
            from = pieces_of(id).to.expect("the pieces of an id have an end");
            self.pass()?;
        }
        batch.commit()?;
        Ok(unlisted)
    }

    /// Checks the blobs of a namespace. Returns how many of them have a piece.
    fn namespace(&mut self, namespace: &str) -> Result<u64> {
        let state = self.db.snapshot()?;
        let source = state.source();
        let Some(records) = source.tree(&records_tree(namespace)?)? else { return Ok(0) };
        let (pieces, orphaned) = (source.tree(PIECES)?, source.tree(ORPHANED)?);
        let mut rows = source.cursor(records, ALL, Direction::Forward)?;
        let mut batch = Batch::new(self.db);
        let mut named = 0;
        while let Some((key, stored)) = rows.next()? {
            let record = match Record::decode(stored) {
                // A record of a later release is intact, but this build cannot judge it.
                Err(error) if error.code() == Code::Unsupported => return Err(error),
                record => record,
            };
            if let (Ok(record), Some(pieces)) = (&record, pieces) {
                named += u64::from(source.count(pieces, &pieces_of(record.id))? > 0);
            }
            let problem = match &record {
                Ok(record) => problem_of(source, pieces, record)?,
                Err(error) => Some(error.message().to_owned()),
            };
            match (problem, record, orphaned) {
                (Some(problem), _, _) => {
                    self.leave_out(StoreKind::Blobs, namespace, key, problem);
                    batch.delete(records, key)?;
                }
                (None, Ok(record), Some(orphaned)) => batch.delete(orphaned, &record.id.0)?,
                (None, _, _) => {}
            }
            self.pass()?;
        }
        batch.commit()?;
        Ok(named)
    }
}

/// Why a blob is incomplete, if it is.
fn problem_of(source: &dyn Source, pieces: Option<TreeId>, record: &Record) -> Result<Option<String>> {
    let (wanted, mut hash) = (record.piece_count(), Sha256::new());
    for index in 0..wanted {
        let piece = pieces.map_or(Ok(None), |pieces| source.get(pieces, &record.id.piece(index)))?;
        let Some(piece) = piece else {
            return Ok(Some(format!("piece {} of {wanted} is lost", index + 1)));
        };
        if piece.len() as u64 != record.piece_len(index) {
            return Ok(Some(format!("piece {} of {wanted} has another length than it should", index + 1)));
        }
        hash.update(&piece);
    }
    if hash.finalize()[..] != record.sha256 {
        return Ok(Some("its content is not what was stored: its SHA-256 does not match".to_owned()));
    }
    // Pieces beyond its length belong to no blob.
    let found = pieces.map_or(Ok(0), |pieces| source.count(pieces, &pieces_of(record.id)))?;
    Ok((found != wanted).then(|| format!("it has {found} pieces, and its length makes {wanted}")))
}
