//! The bytes of one memory file: sparse pages, shared until written, hashed once.
//!
//! Owns copy-on-write pages and their hashes, so that thousands of crash images of one workload share nearly
//! all their memory. It knows nothing about durability: its owners keep a cached and a durable `Content`. No
//! promise rests here.

use std::sync::{Arc, OnceLock};

/// Bytes in a page, the unit of sharing and of allocation.
pub(super) const PAGE_BYTES: usize = 4096;
/// Pages in a chunk, the unit of the outer table: 256 KiB.
const CHUNK_PAGES: usize = 64;
const CHUNK_BYTES: usize = PAGE_BYTES * CHUNK_PAGES;
/// The longest a memory file can be: 1 TiB.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 40;

/// Turns a byte offset into an index. Callers check offsets against [`FILE_BYTES_MAX`].
pub(super) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("memory file offsets are below FILE_BYTES_MAX")
}

#[derive(Clone)]
struct Page {
    bytes: [u8; PAGE_BYTES],
    hash: OnceLock<u64>,
}

#[derive(Clone)]
struct Chunk {
    pages: [Option<Arc<Page>>; CHUNK_PAGES],
    hash: OnceLock<u64>,
}

/// A sparse file: a length, and pages where something was written.
///
/// Bytes past the length are kept zero, so that growing never shows old bytes.
#[derive(Clone, Default)]
pub(super) struct Content {
    chunks: Vec<Option<Arc<Chunk>>>,
    len: u64,
    allocated_pages: u64,
}

fn zero_page() -> Arc<Page> {
    static ZERO: OnceLock<Arc<Page>> = OnceLock::new();
    Arc::clone(ZERO.get_or_init(|| Arc::new(Page { bytes: [0; PAGE_BYTES], hash: OnceLock::new() })))
}

/// One piece of a range, cut at page borders.
struct Piece {
    page: usize,
    /// Where in the page it starts.
    start: usize,
    bytes: usize,
    /// Where in the range it starts.
    from: usize,
}

fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let (first, mut from) = (index(offset), 0);
    std::iter::from_fn(move || {
        if from == bytes {
            return None;
        }
        let at = first + from;
        let start = at % PAGE_BYTES;
        let piece =
            Piece { page: at / PAGE_BYTES, start, bytes: (PAGE_BYTES - start).min(bytes - from), from };
        from += piece.bytes;
        Some(piece)
    })
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of allocated pages, what a real file system would charge.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_pages * PAGE_BYTES as u64
    }

    fn page(&self, page: usize) -> Option<&Arc<Page>> {
        self.chunks.get(page / CHUNK_PAGES)?.as_ref()?.pages[page % CHUNK_PAGES].as_ref()
    }

    fn slot(&mut self, page: usize) -> &mut Option<Arc<Page>> {
        let chunk = page / CHUNK_PAGES;
        if self.chunks.len() <= chunk {
            self.chunks.resize(chunk + 1, None);
        }
        let chunk = self.chunks[chunk].get_or_insert_with(|| {
            Arc::new(Chunk { pages: [const { None }; CHUNK_PAGES], hash: OnceLock::new() })
        });
        let chunk = Arc::make_mut(chunk);
        chunk.hash.take();
        &mut chunk.pages[page % CHUNK_PAGES]
    }

    fn page_bytes(&mut self, page: usize) -> &mut [u8; PAGE_BYTES] {
        if self.page(page).is_none() {
            self.allocated_pages += 1;
        }
        let page = Arc::make_mut(self.slot(page).get_or_insert_with(zero_page));
        page.hash.take();
        &mut page.bytes
    }

    /// Copies what is there into `buffer`; returns how many bytes lie before the end of the file.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let have = self.len.saturating_sub(offset);
        let bytes = usize::try_from(have).unwrap_or(usize::MAX).min(buffer.len());
        for piece in pieces(offset, bytes) {
            let target = &mut buffer[piece.from..piece.from + piece.bytes];
            match self.page(piece.page) {
                Some(page) => target.copy_from_slice(&page.bytes[piece.start..piece.start + piece.bytes]),
                None => target.fill(0),
            }
        }
        bytes
    }

    /// Takes some of the pages in which another file differs from it; the length stays. Returns how many.
    pub(super) fn take_pages(&mut self, other: &Content, chosen: &mut dyn FnMut() -> bool) -> u64 {
        let mut taken = 0;
        for start in (0..self.len).step_by(PAGE_BYTES) {
            let bytes = index((self.len - start).min(PAGE_BYTES as u64));
            let (mut mine, mut theirs) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
            self.read(start, &mut mine[..bytes]);
            other.read(start, &mut theirs[..bytes]);
            if mine != theirs && chosen() {
                self.write(start, &theirs[..bytes]);
                taken += 1;
            }
        }
        taken
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.len)];
        self.read(0, &mut bytes);
        bytes
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.from..piece.from + piece.bytes];
            self.page_bytes(piece.page)[piece.start..piece.start + piece.bytes].copy_from_slice(source);
        }
        if !bytes.is_empty() {
            self.grow(offset + bytes.len() as u64);
        }
    }

    /// Makes the file at least `len` long.
    pub(super) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let end = self.len.next_multiple_of(PAGE_BYTES as u64);
            self.zero(len, end);
        }
        self.len = len;
    }

    /// Allocates zero pages under a range and grows the file to cover it.
    pub(super) fn reserve(&mut self, offset: u64, bytes: u64) {
        for piece in pieces(offset, index(bytes)) {
            if self.page(piece.page).is_none() {
                self.allocated_pages += 1;
                *self.slot(piece.page) = Some(zero_page());
            }
        }
        if bytes > 0 {
            self.grow(offset + bytes);
        }
    }

    /// Pages that a write or a reservation of this range would have to allocate.
    pub(super) fn missing_pages(&self, offset: u64, bytes: u64) -> u64 {
        pieces(offset, index(bytes)).filter(|piece| self.page(piece.page).is_none()).count() as u64
    }

    /// Zeroes a range without changing the length; whole pages are given back.
    pub(super) fn punch(&mut self, offset: u64, bytes: u64) {
        self.zero(offset, offset.saturating_add(bytes).min(self.len));
    }

    fn zero(&mut self, start: u64, end: u64) {
        let table_end = (self.chunks.len() * CHUNK_BYTES) as u64;
        let end = end.min(table_end);
        if start >= end {
            return;
        }
        // A page that ends at or past the end of the file is whole if the range reaches that end.
        let reaches_end = end >= self.len;
        for piece in pieces(start, index(end - start)) {
            if self.page(piece.page).is_none() {
                continue;
            }
            let whole = piece.start == 0 && (piece.bytes == PAGE_BYTES || reaches_end);
            if whole {
                self.allocated_pages -= 1;
                *self.slot(piece.page) = None;
            } else {
                self.page_bytes(piece.page)[piece.start..piece.start + piece.bytes].fill(0);
            }
        }
    }

    /// Flips one bit if it lies inside the file.
    pub(super) fn flip(&mut self, offset: u64, bit: u8) {
        if offset < self.len {
            let at = index(offset);
            self.page_bytes(at / PAGE_BYTES)[at % PAGE_BYTES] ^= 1 << (bit % 8);
        }
    }

    /// A hash of length and bytes; pages and chunks remember theirs, so shared parts cost nothing.
    ///
    /// Holes and pages of zeroes hash alike: they read alike.
    pub(super) fn hash(&self) -> u64 {
        let chunk_count = index(self.len).div_ceil(CHUNK_BYTES).min(self.chunks.len());
        let mut hash = mix(0x9e37_79b9_7f4a_7c15, self.len);
        for (place, chunk) in self.chunks[..chunk_count].iter().enumerate() {
            let part = chunk.as_ref().map_or_else(zero_chunk_hash, |chunk| chunk.hash());
            if part != zero_chunk_hash() {
                hash = mix(mix(hash, place as u64), part);
            }
        }
        hash
    }
}

impl Chunk {
    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| {
            let zero = zero_page().hash();
            self.pages.iter().fold(1, |hash, page| mix(hash, page.as_ref().map_or(zero, |page| page.hash())))
        })
    }
}

fn zero_chunk_hash() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| Chunk { pages: [const { None }; CHUNK_PAGES], hash: OnceLock::new() }.hash())
}

impl Page {
    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| hash_bytes(&self.bytes))
    }
}

/// One step of the hash: a bijection in each argument, so a single difference is never lost.
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    let x = (hash.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Hashes bytes in four lanes; not for checksums, only to count distinct images.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    let (groups, rest) = bytes.as_chunks::<32>();
    for group in groups {
        for (lane, word) in lanes.iter_mut().zip(group.as_chunks::<8>().0) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let tail = rest.iter().fold(bytes.len() as u64, |hash, byte| mix(hash, u64::from(*byte)));
    lanes.into_iter().fold(tail, mix)
}
