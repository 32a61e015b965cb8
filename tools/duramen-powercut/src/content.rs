//! The bytes of a drive: pages that are shared until they are written, and holes that read as zeroes.
//!
//! Owns copy-on-write pages, so that the current and the durable content share nearly all their memory. A
//! content is not marked as either.

use std::sync::Arc;

/// Bytes in a page, the unit of sharing and of allocation.
pub const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The content of a drive of fixed size.
#[derive(Debug, Clone)]
pub struct Content {
    pages: Vec<Option<Arc<Page>>>,
}

/// One piece of a range, cut at page borders.
struct Piece {
    page: usize,
    /// Its start in the page.
    start: usize,
    bytes: usize,
    /// Its start in the range.
    from: usize,
}

/// Offsets are checked against the size of the drive before they become indices.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("offsets lie inside of the drive, which is in memory")
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
    /// A drive of zeroes; the size is rounded up to whole pages.
    #[must_use]
    pub fn new(size_bytes: u64) -> Content {
        Content { pages: vec![None; index(size_bytes).div_ceil(PAGE_BYTES)] }
    }

    /// The size of the drive.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Whether a range lies inside of the drive.
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: usize) -> bool {
        offset.checked_add(bytes as u64).is_some_and(|end| end <= self.size_bytes())
    }

    /// Copies the bytes of a range into `buffer`.
    ///
    /// # Panics
    /// If the range does not lie inside of the drive.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.from..piece.from + piece.bytes];
            match &self.pages[piece.page] {
                Some(page) => target.copy_from_slice(&page[piece.start..piece.start + piece.bytes]),
                None => target.fill(0),
            }
        }
    }

    /// Writes bytes; zeroes over a hole leave the hole.
    ///
    /// # Panics
    /// If the range does not lie inside of the drive.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.from..piece.from + piece.bytes];
            let slot = &mut self.pages[piece.page];
            if slot.is_none() && source.iter().all(|byte| *byte == 0) {
                continue;
            }
            let page = slot.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[piece.start..piece.start + piece.bytes].copy_from_slice(source);
        }
    }

    /// The pages that are not holes, in order, each with its offset.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let numbered = self.pages.iter().enumerate();
        numbered.filter_map(|(page, bytes)| Some(((page * PAGE_BYTES) as u64, bytes.as_ref()?.as_slice())))
    }
}
