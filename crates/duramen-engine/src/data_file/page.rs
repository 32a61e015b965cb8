//! A page image: header and payload in one buffer, as on disk but without the padding.

use std::fmt;
use std::sync::Arc;

use super::buffers::Buffers;
use super::mark::{MARK_END, TREE_AT};
use super::page_pointer::POINTER_BYTES;
use crate::alarm::invariant;
use crate::limits::{BIG_VALUE_BYTES, BIG_VALUE_EXTENT_BYTES, KEY_BYTES_MAX};

/// The space map's list of pages gets its blocks before its length is known. It may grow by this much.
pub const INDEX_SLACK_BYTES: usize = 8 * POINTER_BYTES;

/// Bytes before the payload of every page.
pub const PAGE_HEADER_BYTES: usize = 48;

/// No node that this build writes has a longer page: at most some 300 leaves below it have a patch of a
/// quarter of a leaf. So a corrupt length costs little memory.
const NODE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where the fields of the header lie; the magic number comes first.
const KIND_AT: usize = 4;
const GENERATION_AT: usize = 8;
const NONCE_AT: usize = 16;
pub(super) const PAYLOAD_BYTES_AT: usize = 32;

/// The codec of the payload: 0 or [`LZ4`].
pub(super) const CODEC_AT: usize = KIND_AT + 1;

/// Bytes of the payload as it is stored, if it is compressed; else zero.
pub(super) const STORED_BYTES_AT: usize = PAYLOAD_BYTES_AT + 4;

/// The codec of an LZ4 block.
pub(super) const LZ4: u8 = 1;

const _: () = assert!(KIND_AT == size_of::<u32>(), "the kind follows the magic number");
const _: () = assert!(GENERATION_AT == KIND_AT + 4, "kind, codec and key id take four bytes");
const _: () = assert!(NONCE_AT == GENERATION_AT + 8 && PAYLOAD_BYTES_AT == NONCE_AT + 16);
const _: () = assert!(TREE_AT == STORED_BYTES_AT + 4 && PAGE_HEADER_BYTES == MARK_END);
const _: () = assert!(INDEX_SLACK_BYTES.is_multiple_of(POINTER_BYTES), "the list grows by whole pointers");
const _: () = assert!(
    PageKind::Leaf.payload_bytes_max() >= BIG_VALUE_BYTES + KEY_BYTES_MAX + 1024,
    "a leaf with the longest entry can be read"
);
const _: () = assert!(PageKind::Leaf.payload_bytes_max() <= 1 << 16, "a leaf's offsets are 16 bits");
const _: () = assert!(
    PageKind::ValueExtent.payload_bytes_max() >= BIG_VALUE_EXTENT_BYTES,
    "the longest piece of a value can be read"
);
const _: () = assert!(
    PageKind::ValueList.payload_bytes_max() <= u32::MAX as usize - PAGE_HEADER_BYTES,
    "a pointer has 32 bits for the length of a page"
);

const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"DPAG");

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Entries of a tree.
    Leaf = 1,
    /// Children of a tree node.
    Inner = 2,
    /// A piece of a big value.
    ValueExtent = 3,
    /// The list of a big value's pieces.
    ValueList = 4,
    /// One page of the space map.
    SpaceMap = 5,
    /// The list of the space map's pages.
    SpaceIndex = 6,
    /// The first keys of the leaves that were warm at a clean shutdown.
    HotPages = 7,
}

impl PageKind {
    /// The most bytes a page of this kind holds. Lists grow with what they list, and earlier releases wrote
    /// inner nodes of hundreds of kilobytes because of long reductions. The file's length bounds these.
    pub(super) const fn payload_bytes_max(self) -> usize {
        match self {
            // The offsets of a leaf's entries have 16 bits.
            PageKind::Leaf | PageKind::SpaceMap => 64 * 1024,
            PageKind::ValueExtent | PageKind::HotPages => BIG_VALUE_EXTENT_BYTES,
            PageKind::Inner | PageKind::ValueList | PageKind::SpaceIndex => {
                u32::MAX as usize - PAGE_HEADER_BYTES
            }
        }
    }

    /// By how many bytes the blocks of such a page may exceed its length.
    pub(super) fn slack_bytes(self) -> usize {
        if self == PageKind::SpaceIndex { INDEX_SLACK_BYTES } else { 0 }
    }
}

/// A page image. Its buffer is returned to its pool.
pub struct Page {
    bytes: Vec<u8>,
    buffers: Option<Arc<Buffers>>,
}

impl Page {
    /// Makes a page image of `payload_bytes`; `fill` must append exactly that many.
    pub fn build(
        kind: PageKind,
        generation: u64,
        payload_bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Page {
        let bytes = Vec::with_capacity(PAGE_HEADER_BYTES + payload_bytes);
        Page { bytes: image(bytes, kind, generation, payload_bytes, fill), buffers: None }
    }

    /// The same in a pooled buffer, for pages that stay in memory.
    pub fn build_in(
        buffers: &Arc<Buffers>,
        kind: PageKind,
        generation: u64,
        payload_bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Page {
        let bytes = buffers.take(PAGE_HEADER_BYTES + payload_bytes);
        let bytes = image(bytes, kind, generation, payload_bytes, fill);
        Page { bytes, buffers: Some(Arc::clone(buffers)) }
    }

    /// A buffer of `bytes` with arbitrary contents, to be read into and then [checked](Page::check).
    pub(super) fn unread(buffers: &Arc<Buffers>, bytes: usize) -> Page {
        let mut buffer = buffers.take(bytes);
        buffer.resize(bytes, 0);
        Page { bytes: buffer, buffers: Some(Arc::clone(buffers)) }
    }

    pub(super) fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Header and payload.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[PAGE_HEADER_BYTES..]
    }

    /// The generation in the header: for nodes, the commit that made them. 0 if there are too few bytes.
    #[must_use]
    pub fn generation(&self) -> u64 {
        generation_of(&self.bytes)
    }

    /// Checks the header of bytes that match their checksum. Returns what is wrong with it.
    pub(super) fn check(&self, want: PageKind) -> Result<(), String> {
        let bytes = &self.bytes;
        if bytes.len() < PAGE_HEADER_BYTES {
            return Err(format!("page of {} bytes, want at least {PAGE_HEADER_BYTES}", bytes.len()));
        }
        if bytes[..KIND_AT] != PAGE_MAGIC.to_le_bytes() {
            return Err("no page starts here".to_owned());
        }
        if bytes[KIND_AT] != want as u8 {
            return Err(format!("page kind {}, want {}", bytes[KIND_AT], want as u8));
        }
        if bytes[CODEC_AT..GENERATION_AT] != [0; 3] {
            return Err("page is compressed or encrypted in a way that this build cannot read".to_owned());
        }
        let payload = u64::from_le_bytes(bytes[PAYLOAD_BYTES_AT..TREE_AT].try_into().expect("eight bytes"));
        if payload != (bytes.len() - PAGE_HEADER_BYTES) as u64 {
            return Err(format!("page payload of {payload} bytes, want {}", bytes.len() - PAGE_HEADER_BYTES));
        }
        Ok(())
    }
}

/// The generation in a page's header; 0 if there are too few bytes.
pub(super) fn generation_of(page: &[u8]) -> u64 {
    page.get(GENERATION_AT..NONCE_AT)
        .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// How many bytes a page has as it is stored, header included, if these begin one of a node.
pub fn node_bytes(page: &[u8]) -> Option<usize> {
    let header = page.get(..PAGE_HEADER_BYTES)?;
    let kind = match header[KIND_AT] {
        kind if kind == PageKind::Leaf as u8 => PageKind::Leaf,
        kind if kind == PageKind::Inner as u8 => PageKind::Inner,
        _ => return None,
    };
    if header[..KIND_AT] != PAGE_MAGIC.to_le_bytes() || header[CODEC_AT + 1..GENERATION_AT] != [0; 2] {
        return None;
    }
    let payload_bytes_max = kind.payload_bytes_max().min(NODE_BYTES_MAX);
    let payload = payload_bytes_of(header).filter(|bytes| *bytes <= payload_bytes_max)?;
    let stored = stored_bytes_of(header)?;
    (stored <= payload).then_some(PAGE_HEADER_BYTES + stored)
}

/// The bytes of a page's payload, by its header.
pub(super) fn payload_bytes_of(header: &[u8]) -> Option<usize> {
    let bytes = header.get(PAYLOAD_BYTES_AT..STORED_BYTES_AT)?.try_into().expect("four bytes");
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// The bytes of a page's payload as it is stored, by its header; `None` for another codec.
pub(super) fn stored_bytes_of(header: &[u8]) -> Option<usize> {
    let bytes = header.get(STORED_BYTES_AT..TREE_AT)?.try_into().expect("four bytes");
    let stored = usize::try_from(u32::from_le_bytes(bytes)).ok()?;
    match header[CODEC_AT] {
        0 if stored == 0 => payload_bytes_of(header),
        LZ4 if stored > 0 => Some(stored),
        _ => None,
    }
}

/// Whether a page is compressed.
pub(super) fn is_compressed(page: &[u8]) -> bool {
    page[CODEC_AT] != 0
}

/// Whether a page is an inner node's.
pub(super) fn is_inner(page: &[u8]) -> bool {
    page[KIND_AT] == PageKind::Inner as u8
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(buffers) = &self.buffers {
            buffers.give(std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("generation", &self.generation())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

fn image(
    mut bytes: Vec<u8>,
    kind: PageKind,
    generation: u64,
    payload_bytes: usize,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    bytes.clear();
    bytes.extend_from_slice(&PAGE_MAGIC.to_le_bytes());
    bytes.push(kind as u8);
    // The codec is set when the page is compressed. The key id is reserved for encryption.
    bytes.extend_from_slice(&[0; 3]);
    bytes.extend_from_slice(&generation.to_le_bytes());
    // Nonce: reserved for (incarnation, counter) of an encrypted page.
    bytes.extend_from_slice(&[0; 16]);
    bytes.extend_from_slice(&(payload_bytes as u64).to_le_bytes());
    // The mark: only a node has one, once its block is known.
    bytes.extend_from_slice(&[0; 8]);
    debug_assert_eq!(bytes.len(), PAGE_HEADER_BYTES);
    fill(&mut bytes);
    let filled = bytes.len() - PAGE_HEADER_BYTES;
    invariant!(filled == payload_bytes, "a page announced with {payload_bytes} bytes has {filled}");
    bytes
}
