//! A trace as bytes, so that a run that cannot be repeated can be replayed.
//!
//! Owns the format: a line that names it, the disk's seed and clock, then each operation as a letter and its
//! fields. Numbers are varints (seven bits a byte, the low ones first). A path is written once and numbered
//! then. Runs of zeroes are counted instead of written. It does not interpret the operations.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::model::{InodeId, Model, Node, Op, OpSeq, SyncOutcome};
use super::pending::Change;
use super::state::normal;
use super::trace::Trace;

const NAME: &[u8] = b"duramen trace 1\n";

/// Shorter runs of zeroes would take more bytes as two numbers.
const ZEROES_MIN: usize = 16;

impl Trace {
    /// The trace as bytes.
    ///
    /// # Errors
    /// The recording did not begin on an empty disk: what was there before is not in its operations.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        if self.base.seq != OpSeq(0) || self.base.names.len() != 1 {
            return Err("only a recording that began on an empty disk can be kept".to_owned());
        }
        let mut out = Encoder { bytes: NAME.to_vec(), paths: HashMap::new() };
        [self.seed, self.clock_ns, self.ops.len() as u64].into_iter().for_each(|number| out.number(number));
        self.ops.iter().for_each(|op| out.op(op));
        Ok(out.bytes)
    }

    /// Reads [`Trace::encode`].
    ///
    /// # Errors
    /// Where the bytes are no trace.
    pub fn decode(bytes: &[u8]) -> Result<Trace, String> {
        let rest = bytes.strip_prefix(NAME).ok_or("not a trace of this version")?;
        let mut input = Decoder { rest, paths: Vec::new() };
        let at = |input: &Decoder<'_>| format!("no trace: byte {}", bytes.len() - input.rest.len());
        let trace = input.trace().ok_or_else(|| at(&input))?;
        if input.rest.is_empty() { Ok(trace) } else { Err(at(&input)) }
    }
}

struct Encoder {
    bytes: Vec<u8>,
    paths: HashMap<Arc<Path>, u64>,
}

impl Encoder {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// The path's number plus one; 0 precedes a new path.
    fn path(&mut self, path: &Arc<Path>) {
        if let Some(known) = self.paths.get(path) {
            return self.number(known + 1);
        }
        self.paths.insert(Arc::clone(path), self.paths.len() as u64);
        self.number(0);
        self.text(&path.to_string_lossy());
    }

    /// The length; then alternately a count of literal bytes, those bytes, and a count of zeroes.
    fn content(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (literal, zeroes) = next_zeroes(rest);
            self.number(literal as u64);
            self.bytes.extend_from_slice(&rest[..literal]);
            self.number(zeroes as u64);
            rest = &rest[literal + zeroes..];
        }
    }

    fn outcome(&mut self, outcome: SyncOutcome) {
        match outcome {
            SyncOutcome::Done => self.number(0),
            SyncOutcome::Lied => self.number(1),
            SyncOutcome::Failed => self.number(2),
            SyncOutcome::FailedDataGone => self.number(3),
            SyncOutcome::FailedInPart(seed) => {
                self.number(4);
                self.number(seed);
            }
        }
    }

    fn begin(&mut self, letter: u8, path: &Arc<Path>, numbers: &[u64]) {
        self.bytes.push(letter);
        self.path(path);
        numbers.iter().for_each(|number| self.number(*number));
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Create { path, inode } => self.begin(b'c', path, &[inode.0]),
            Op::CreateDir { path } => self.begin(b'd', path, &[]),
            Op::Remove { path, inode } => self.begin(b'r', path, &[inode.0]),
            Op::Rename { from, to, inode } => {
                self.begin(b'n', from, &[inode.0]);
                self.path(to);
            }
            Op::Change { path, inode, change } => match change {
                Change::Write { offset, bytes } => {
                    self.begin(b'w', path, &[inode.0, *offset]);
                    self.content(bytes);
                }
                Change::SetLen { bytes } => self.begin(b'l', path, &[inode.0, *bytes]),
                Change::Reserve { offset, bytes } => self.begin(b'a', path, &[inode.0, *offset, *bytes]),
                Change::Punch { offset, bytes } => self.begin(b'h', path, &[inode.0, *offset, *bytes]),
            },
            Op::Sync { path, inode, before, outcome } => {
                self.begin(b's', path, &[inode.0, before.0]);
                self.outcome(*outcome);
            }
            Op::SyncWrite { path, inode, write, outcome } => {
                self.begin(b'o', path, &[inode.0, write.0]);
                self.outcome(*outcome);
            }
            Op::SyncDir { path, before, outcome } => {
                self.begin(b'D', path, &[before.0]);
                self.outcome(*outcome);
            }
            Op::Flip { path, inode, offset, bit } => {
                self.begin(b'f', path, &[inode.0, *offset, u64::from(*bit)]);
            }
            Op::Put { path, inode, bytes } => {
                self.begin(b'p', path, &[inode.0]);
                self.content(bytes);
            }
            Op::Delete { path } => self.begin(b'x', path, &[]),
            Op::Mark(text) => {
                self.bytes.push(b'm');
                self.text(text);
            }
        }
    }
}

/// The number of bytes before the next long run of zeroes, and the length of that run.
fn next_zeroes(bytes: &[u8]) -> (usize, usize) {
    let mut at = 0;
    while at < bytes.len() {
        let zeroes = bytes[at..].iter().take_while(|byte| **byte == 0).count();
        if zeroes >= ZEROES_MIN {
            return (at, zeroes);
        }
        at += zeroes + 1;
    }
    (bytes.len(), 0)
}

struct Decoder<'a> {
    rest: &'a [u8],
    paths: Vec<Arc<Path>>,
}

impl<'a> Decoder<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let count = self.count()?;
        std::str::from_utf8(self.bytes(count)?).ok()
    }

    fn path(&mut self) -> Option<Arc<Path>> {
        match self.count()? {
            0 => {
                let path = normal(Path::new(self.text()?));
                self.paths.push(Arc::clone(&path));
                Some(path)
            }
            known => self.paths.get(known - 1).cloned(),
        }
    }

    fn content(&mut self) -> Option<Arc<[u8]>> {
        let length = self.count()?;
        let mut content = Vec::new();
        while content.len() < length {
            let literal = self.count()?;
            content.extend_from_slice(self.bytes(literal)?);
            let zeroes = self.count()?;
            if literal + zeroes == 0 || zeroes > length - content.len().min(length) {
                return None;
            }
            content.resize(content.len() + zeroes, 0);
        }
        (content.len() == length).then(|| Arc::from(content))
    }

    fn inode(&mut self) -> Option<InodeId> {
        self.number().map(InodeId)
    }

    fn outcome(&mut self) -> Option<SyncOutcome> {
        Some(match self.number()? {
            0 => SyncOutcome::Done,
            1 => SyncOutcome::Lied,
            2 => SyncOutcome::Failed,
            3 => SyncOutcome::FailedDataGone,
            4 => SyncOutcome::FailedInPart(self.number()?),
            _ => return None,
        })
    }

    fn trace(&mut self) -> Option<Trace> {
        let (seed, clock_ns, count) = (self.number()?, self.number()?, self.count()?);
        let mut base = Model::default();
        base.names.insert(normal(Path::new("/")), Node::Directory);
        let ops = (0..count).map(|_| self.op()).collect::<Option<Vec<Op>>>()?;
        Some(Trace { base, ops, seed, clock_ns })
    }

    fn op(&mut self) -> Option<Op> {
        let letter = self.byte()?;
        if letter == b'm' {
            return Some(Op::Mark(Arc::from(self.text()?)));
        }
        let path = self.path()?;
        Some(match letter {
            b'd' => Op::CreateDir { path },
            b'x' => Op::Delete { path },
            b'D' => Op::SyncDir { path, before: OpSeq(self.number()?), outcome: self.outcome()? },
            letter => {
                let inode = self.inode()?;
                self.op_of_file(letter, path, inode)?
            }
        })
    }

    fn op_of_file(&mut self, letter: u8, path: Arc<Path>, inode: InodeId) -> Option<Op> {
        let change = match letter {
            b'c' => return Some(Op::Create { path, inode }),
            b'r' => return Some(Op::Remove { path, inode }),
            b'n' => return Some(Op::Rename { from: path, to: self.path()?, inode }),
            b'p' => return Some(Op::Put { path, inode, bytes: self.content()? }),
            b's' => {
                let (before, outcome) = (OpSeq(self.number()?), self.outcome()?);
                return Some(Op::Sync { path, inode, before, outcome });
            }
            b'o' => {
                let (write, outcome) = (OpSeq(self.number()?), self.outcome()?);
                return Some(Op::SyncWrite { path, inode, write, outcome });
            }
            b'f' => {
                let (offset, bit) = (self.number()?, u8::try_from(self.number()?).ok()?);
                return Some(Op::Flip { path, inode, offset, bit });
            }
            b'w' => Change::Write { offset: self.number()?, bytes: self.content()? },
            b'l' => Change::SetLen { bytes: self.number()? },
            b'a' => Change::Reserve { offset: self.number()?, bytes: self.number()? },
            b'h' => Change::Punch { offset: self.number()?, bytes: self.number()? },
            _ => return None,
        };
        Some(Op::Change { path, inode, change })
    }
}
