//! A life as bytes: threads are not repeatable, so a failed cut can only be reproduced from a recording.
//!
//! Owns the format of the file: a line that names it, how the database was opened, every commit with its
//! changes, then the trace as the disk writes it. Numbers are eight bytes, little-endian; commits are few
//! compared to the disk's bytes.

use std::path::PathBuf;

use duramen_disk::SyncMethod;
use duramen_disk::memory::Trace;
use duramen_engine::{Background, Geometry, Options, TreeId};

use super::live::Life;
use crate::search::model::{Commit, Effect};

const NAME: &[u8] = b"duramen concurrent life 3\n";

/// In the order of their numbers.
const METHODS: [SyncMethod; 3] = [SyncMethod::Fdatasync, SyncMethod::Dsync, SyncMethod::DirectDsync];

impl Life {
    /// The life as bytes.
    ///
    /// # Errors
    /// As [`Trace::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut out = Encoder(NAME.to_vec());
        out.number(self.seed);
        out.number(self.created_at as u64);
        out.bytes(self.database.as_bytes());
        out.options(&self.options);
        out.number(self.commits.len() as u64);
        for commit in &self.commits {
            out.number(commit.seq);
            out.number(commit.began_at as u64);
            out.number(commit.effects.len() as u64);
            commit.effects.iter().for_each(|effect| out.effect(effect));
        }
        out.bytes(&self.trace.encode()?);
        Ok(out.0)
    }

    /// Reads [`Life::encode`].
    ///
    /// # Errors
    /// The bytes are not a life, or contain no trace.
    pub fn decode(bytes: &[u8]) -> Result<Life, String> {
        let rest = bytes.strip_prefix(NAME).ok_or("not a recorded life of this version")?;
        let mut input = Decoder(rest);
        let (mut life, trace) = input.life().ok_or("the recorded life is cut short or corrupt")?;
        life.trace = Trace::decode(trace)?;
        Ok(life)
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn options(&mut self, options: &Options) {
        let Geometry {
            block_bytes,
            leaf_bytes_max,
            inner_bytes_max,
            big_value_bytes,
            big_value_extent_bytes,
            segment_bytes_min,
            segment_bytes_max,
        } = options.geometry;
        for size in [block_bytes, leaf_bytes_max, inner_bytes_max, big_value_bytes, big_value_extent_bytes] {
            self.number(size as u64);
        }
        self.number(segment_bytes_min);
        self.number(segment_bytes_max);
        self.number(u64::from(options.compress));
        self.number(u64::from(options.patches));
        self.number(options.memory_bytes as u64);
        let method = METHODS.iter().position(|method| Some(*method) == options.sync);
        self.number(method.unwrap_or(0) as u64);
        self.number(options.checkpoint_log_bytes.unwrap_or(0));
        self.number(options.feed_retain_bytes);
        self.number(options.feed_bytes_max);
        let wal_dir = options.wal_dir.as_ref().map(|path| path.to_string_lossy()).unwrap_or_default();
        self.bytes(wal_dir.as_bytes());
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Put { tree, key, value } => {
                self.number(0);
                self.number(tree.0);
                self.bytes(key);
                self.bytes(value);
            }
            Effect::Delete { tree, key } => {
                self.number(1);
                self.number(tree.0);
                self.bytes(key);
            }
            Effect::Create { name, id, sums } => {
                self.number(2);
                self.number(id.0);
                self.bytes(name.as_bytes());
                self.number(u64::from(*sums));
            }
            Effect::Drop { name } => {
                self.number(3);
                self.bytes(name.as_bytes());
            }
        }
    }
}

struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn taken(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.taken(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.size()?;
        self.taken(count)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn life(&mut self) -> Option<(Life, &'a [u8])> {
        let (seed, created_at, database) = (self.number()?, self.size()?, self.text()?);
        let options = self.options()?;
        let count = self.number()?;
        let commits = (0..count).map(|_| self.commit()).collect::<Option<Vec<Commit>>>()?;
        let trace = self.bytes()?;
        // The trace decoded from the bytes replaces this one.
        let empty = duramen_disk::MemDisk::new(seed).trace();
        Some((Life { seed, trace: empty, commits, options, created_at, database }, trace))
    }

    fn options(&mut self) -> Option<Options> {
        let geometry = Geometry {
            block_bytes: self.size()?,
            leaf_bytes_max: self.size()?,
            inner_bytes_max: self.size()?,
            big_value_bytes: self.size()?,
            big_value_extent_bytes: self.size()?,
            segment_bytes_min: self.number()?,
            segment_bytes_max: self.number()?,
        };
        let (compress, patches) = (self.number()? == 1, self.number()? == 1);
        let memory_bytes = self.size()?;
        let sync = Some(*METHODS.get(self.size()?)?);
        let checkpoint_log_bytes = Some(self.number()?);
        let (feed_retain_bytes, feed_bytes_max) = (self.number()?, self.number()?);
        let wal_dir = Some(self.text()?).filter(|path| !path.is_empty()).map(PathBuf::from);
        let background = Background::Stepped;
        Some(Options {
            geometry,
            compress,
            patches,
            memory_bytes,
            sync,
            checkpoint_log_bytes,
            feed_retain_bytes,
            feed_bytes_max,
            wal_dir,
            background,
            ..Options::default()
        })
    }

    fn commit(&mut self) -> Option<Commit> {
        let (seq, began_at, count) = (self.number()?, self.size()?, self.number()?);
        let effects = (0..count).map(|_| self.effect()).collect::<Option<Vec<Effect>>>()?;
        Some(Commit { seq, began_at, effects })
    }

    fn effect(&mut self) -> Option<Effect> {
        Some(match self.number()? {
            0 => {
                let (tree, key) = (TreeId(self.number()?), self.bytes()?.to_vec());
                Effect::Put { tree, key, value: self.bytes()?.into() }
            }
            1 => Effect::Delete { tree: TreeId(self.number()?), key: self.bytes()?.to_vec() },
            2 => {
                let (id, name) = (TreeId(self.number()?), self.text()?);
                Effect::Create { name, id, sums: self.number()? == 1 }
            }
            3 => Effect::Drop { name: self.text()? },
            _ => return None,
        })
    }
}
