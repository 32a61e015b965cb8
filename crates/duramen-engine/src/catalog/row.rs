//! The rows of the catalogue and of the tree of roots. Pure codecs.

use crate::alarm::invariant;
use crate::data_file::{POINTER_BYTES, PagePointer};
use crate::error::{Code, Error};
use crate::features::Features;
use crate::ids::{CommitSeq, TreeId};
use crate::limits::{KEY_BYTES_MAX, REDUCTION_BYTES_MAX};
use crate::tree::{NodePointer, ReducerSpec, Reduction};

const ROW_VERSION: u8 = 1;
const HAS_SPEC: u8 = 1;
const HAS_POINTER: u8 = 2;
const HAS_REDUCTION: u8 = 4;
const HAS_BIG_VALUES: u8 = 8;
const DROPPED: u8 = 16;
const HAS_FEATURES: u8 = 32;
const ALL_FLAGS: u8 = 63;

const _: () = assert!(
    HAS_SPEC | HAS_POINTER | HAS_REDUCTION | HAS_BIG_VALUES | DROPPED | HAS_FEATURES == ALL_FLAGS,
    "every flag is known, and no other"
);
const _: () = assert!(
    HAS_SPEC + HAS_POINTER + HAS_REDUCTION + HAS_BIG_VALUES + DROPPED + HAS_FEATURES == ALL_FLAGS,
    "no two flags share a bit"
);

/// What the catalogue says about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatalogRow {
    /// The tree.
    pub id: TreeId,
    /// Its reducer.
    pub spec: Option<ReducerSpec>,
    /// What a build must know to read it.
    pub features: Features,
}

/// What the tree of roots says about a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootEntry {
    /// Its reducer.
    pub spec: Option<ReducerSpec>,
    /// What a build must know to read it.
    pub features: Features,
    /// Where its root node lies, and the reduction of all of it.
    pub pointer: Option<NodePointer>,
    /// Number of entries.
    pub count: u64,
    /// Whether a big value was ever put into it.
    pub has_big_values: bool,
    /// The commit that dropped it, if it was.
    pub dropped_at: Option<CommitSeq>,
    /// Pages before this key have been given back already.
    pub reclaimed_to: Vec<u8>,
}

impl CatalogRow {
    /// The encoded form.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = flag(self.spec.is_some(), HAS_SPEC) | flag(!self.features.is_empty(), HAS_FEATURES);
        let mut out = vec![ROW_VERSION, flags];
        out.extend_from_slice(&self.id.0.to_le_bytes());
        encode_spec(self.spec.as_ref(), &mut out);
        encode_features(self.features, &mut out);
        out
    }

    /// Whether only a later build can read this row, or the tree that it names.
    #[must_use]
    pub(crate) fn is_of_later_build(bytes: &[u8]) -> bool {
        let [ROW_VERSION, flags, rest @ ..] = bytes else { return false };
        let has_unknown_features = || {
            let features = rest.last_chunk().map(|bits| Features::of_tree(u64::from_le_bytes(*bits)));
            features == Some(None)
        };
        flags & !(HAS_SPEC | HAS_FEATURES) != 0 || flags & HAS_FEATURES != 0 && has_unknown_features()
    }

    /// Reads the encoded form; `None` if it is not one.
    #[must_use]
    pub(crate) fn decode(bytes: &[u8]) -> Option<CatalogRow> {
        let mut rest = Rest(bytes);
        let [ROW_VERSION, flags] = rest.array()? else { return None };
        if flags & !(HAS_SPEC | HAS_FEATURES) != 0 {
            return None;
        }
        let id = TreeId(u64::from_le_bytes(rest.array()?));
        let spec = if flags & HAS_SPEC != 0 { Some(rest.spec()?) } else { None };
        let features = rest.features(flags)?;
        // Tree 0 is the catalogue, and no name stands for it.
        let is_tree = id > TreeId(0) && id.is_plausible();
        (rest.0.is_empty() && is_tree).then_some(CatalogRow { id, spec, features })
    }
}

impl RootEntry {
    /// The encoded form.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (count, has_pointer) = (self.count, self.pointer.is_some());
        invariant!(has_pointer || count == 0, "a tree with {count} entries has a page");
        let is_dropped = self.dropped_at.is_some();
        invariant!(is_dropped || self.reclaimed_to.is_empty(), "only a dropped tree is reclaimed");
        let reduction = self.pointer.as_ref().and_then(|pointer| pointer.reduction.bytes());
        let flags = flag(self.spec.is_some(), HAS_SPEC)
            | flag(has_pointer, HAS_POINTER)
            | flag(reduction.is_some(), HAS_REDUCTION)
            | flag(self.has_big_values, HAS_BIG_VALUES)
            | flag(is_dropped, DROPPED)
            | flag(!self.features.is_empty(), HAS_FEATURES);
        let mut out = vec![ROW_VERSION, flags];
        out.extend_from_slice(&self.count.to_le_bytes());
        encode_spec(self.spec.as_ref(), &mut out);
        if let Some(pointer) = &self.pointer {
            pointer.page.encode(&mut out);
        }
        if let Some(reduction) = reduction {
            encode_bytes(reduction, &mut out);
        }
        if let Some(seq) = self.dropped_at {
            out.extend_from_slice(&seq.0.to_le_bytes());
            encode_bytes(&self.reclaimed_to, &mut out);
        }
        encode_features(self.features, &mut out);
        out
    }

    /// Reads the encoded form; `None` if it is not one.
    #[must_use]
    pub(crate) fn decode(bytes: &[u8]) -> Option<RootEntry> {
        let mut rest = Rest(bytes);
        let [ROW_VERSION, flags @ 0..=ALL_FLAGS] = rest.array()? else { return None };
        let count = u64::from_le_bytes(rest.array()?);
        let spec = if flags & HAS_SPEC != 0 { Some(rest.spec()?) } else { None };
        let pointer = if flags & HAS_POINTER != 0 {
            Some(PagePointer::decode(&rest.array::<POINTER_BYTES>()?)?)
        } else {
            None
        };
        let reduction = match flags & HAS_REDUCTION {
            0 => Reduction::UNKNOWN,
            _ => Reduction::of(rest.bytes()?),
        };
        let (dropped_at, reclaimed_to) = if flags & DROPPED != 0 {
            (Some(CommitSeq(u64::from_le_bytes(rest.array()?))), rest.bytes()?.to_vec())
        } else {
            (None, Vec::new())
        };
        let features = rest.features(flags)?;
        let is_bounded = reclaimed_to.len() <= KEY_BYTES_MAX
            && reduction.bytes().is_none_or(|bytes| bytes.len() <= REDUCTION_BYTES_MAX)
            && dropped_at.is_none_or(CommitSeq::is_plausible);
        let pointer = pointer.map(|pointer| NodePointer::whole(pointer, reduction));
        let has_big_values = flags & HAS_BIG_VALUES != 0;
        (rest.0.is_empty() && is_bounded).then_some(RootEntry {
            spec,
            features,
            pointer,
            count,
            has_big_values,
            dropped_at,
            reclaimed_to,
        })
    }
}

/// A commit in the log creates a tree that this build cannot read.
pub(crate) fn of_later_build(seq: CommitSeq) -> Error {
    let message = format!("commit {seq} in the log needs features that this build does not have");
    Error::new(Code::Unsupported, message)
        .with_hint("use the release that wrote it to export, and import here")
}

fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

fn encode_features(features: Features, out: &mut Vec<u8>) {
    if !features.is_empty() {
        out.extend_from_slice(&features.bits().to_le_bytes());
    }
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("names, parameters and reductions are short");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode_spec(spec: Option<&ReducerSpec>, out: &mut Vec<u8>) {
    if let Some(spec) = spec {
        out.extend_from_slice(&spec.version.to_le_bytes());
        encode_bytes(spec.name.as_bytes(), out);
        encode_bytes(&spec.params, out);
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).ok()?)
    }

    /// The features after the other fields; `None` if this build does not know one.
    fn features(&mut self, flags: u8) -> Option<Features> {
        if flags & HAS_FEATURES == 0 {
            return Some(Features::NONE);
        }
        Features::of_tree(u64::from_le_bytes(self.array()?)).filter(|features| !features.is_empty())
    }

    fn spec(&mut self) -> Option<ReducerSpec> {
        let version = u32::from_le_bytes(self.array()?);
        let name = String::from_utf8(self.bytes()?.to_vec()).ok()?;
        Some(ReducerSpec { name, version, params: self.bytes()?.to_vec() })
    }
}
