//! Tells a torn tail from corruption: searches outside the chain for a durable watermark after its end.
//!
//! D5 rests here; the argument is in chain.rs.

use std::path::PathBuf;

use super::buffer::SLICE_BYTES_MAX;
use super::chain::Chain;
use super::frame;
use super::layout::to_usize;
use super::survey::{FoundFile, Survey};
use crate::error::{Error, Result};
use crate::ids::{CommitSeq, Epoch};
use crate::threads::side_by_side;

/// What was found off the chain, other than proof of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leftovers {
    /// The highest epoch found.
    pub(super) epoch_max: Epoch,
    /// Pieces of an unfinished write lie after the end.
    pub(super) torn: bool,
}

/// A frame or header whose durable watermark names a lost commit.
struct Proof {
    path: PathBuf,
    offset: u64,
    durable_seq: CommitSeq,
}

/// Reads every block off the chain, several files at a time.
///
/// # Errors
/// `CorruptLog` at the end of the chain, naming the proof; I/O errors.
pub(super) fn search(survey: &Survey, chain: &Chain<'_>, threads: usize) -> Result<Leftovers> {
    let files: Vec<usize> = (0..survey.files.len()).collect();
    let parts: Vec<&[usize]> = files.chunks(files.len().div_ceil(threads.max(1)).max(1)).collect();
    let mut leftovers = Leftovers { epoch_max: chain.epoch, torn: chain.is_mid_record() };
    let mut proof = None;
    for found in side_by_side(&parts, |part| search_part(survey, chain, part)) {
        let (found, its_proof) = found?;
        leftovers.epoch_max = leftovers.epoch_max.max(found.epoch_max);
        leftovers.torn |= found.torn;
        proof = proof.or(its_proof);
    }
    let Some(proof) = proof else { return Ok(leftovers) };
    let what = format!(
        "the chain of frames ends after commit {}, and {} @ {:#x} records that commit {} was durable",
        chain.last.seq,
        proof.path.display(),
        proof.offset,
        proof.durable_seq
    );
    Err(Error::corrupt_log(&chain.file().path, chain.next_offset, what))
}

fn search_part(survey: &Survey, chain: &Chain<'_>, files: &[usize]) -> Result<(Leftovers, Option<Proof>)> {
    let mut search = Search {
        survey,
        chain,
        leftovers: Leftovers { epoch_max: chain.epoch, torn: false },
        block: vec![0; SLICE_BYTES_MAX.next_multiple_of(to_usize(survey.block_bytes))],
    };
    let mut proof = None;
    for index in files {
        let found = search.look_in(*index, &survey.files[*index])?;
        proof = proof.or(found);
    }
    Ok((search.leftovers, proof))
}

struct Search<'a> {
    survey: &'a Survey,
    chain: &'a Chain<'a>,
    leftovers: Leftovers,
    block: Vec<u8>,
}

impl Search<'_> {
    fn look_in(&mut self, index: usize, file: &FoundFile) -> Result<Option<Proof>> {
        let recovered = self.chain.last.seq;
        let mut proof = None;
        if let Some(header) = file.header() {
            self.leftovers.epoch_max = self.leftovers.epoch_max.max(header.epoch);
        }
        if file.durable_seq() > recovered {
            proof = Some(Proof { path: file.path.clone(), offset: 0, durable_seq: file.durable_seq() });
        }
        let block_bytes = self.survey.block_bytes;
        let mut block = std::mem::take(&mut self.block);
        let mut offset = self.chain.ends[index].unwrap_or(block_bytes);
        while proof.is_none() && offset + block_bytes <= file.bytes {
            let left = (file.bytes - offset) / block_bytes * block_bytes;
            let count = to_usize(left.min(block.len() as u64));
            file.read(&mut block[..count], offset)?;
            for bytes in block[..count].chunks_exact(to_usize(block_bytes)) {
                if proof.is_none() && frame::has_magic(bytes) {
                    proof = self.look_at(file, bytes, offset)?;
                }
                offset += block_bytes;
            }
        }
        self.block = block;
        Ok(proof)
    }

    /// Examines a block that may begin a frame. Computes the checksum only where the result matters.
    fn look_at(&mut self, file: &FoundFile, bytes: &[u8], offset: u64) -> Result<Option<Proof>> {
        let Ok(header) = frame::decode_header(bytes, file.bytes - offset) else { return Ok(None) };
        let recovered = self.chain.last.seq;
        let is_newer = header.epoch >= self.chain.epoch;
        if header.durable_seq <= recovered && header.epoch <= self.leftovers.epoch_max && !is_newer {
            return Ok(None);
        }
        // A block of the newest epoch that is no valid frame is typical of a torn write.
        self.leftovers.torn |= is_newer && header.offset == offset;
        let Some(frame) = self.survey.frame_at(file, offset)? else { return Ok(None) };
        self.leftovers.epoch_max = self.leftovers.epoch_max.max(frame.header.epoch);
        let durable_seq = frame.header.durable_seq;
        Ok((durable_seq > recovered).then(|| Proof { path: file.path.clone(), offset, durable_seq }))
    }
}
