//! Big values: written once to extents of their own; the tree and the log hold a reference.
//!
//! A reference: value length (u64), kind (u8: 0 one extent, 1 a list of extents), pointer of the extent or
//! list, length of the value's own reduction (u16, 0xFFFF for none), reduction. A list page holds pointers.

use std::io::Read;

use crate::alarm::invariant;
use crate::data_file::{PAGE_HEADER_BYTES, POINTER_BYTES, Page, PageKind, PagePointer};
use crate::error::{Code, Error, Result};
use crate::limits::{BIG_VALUE_BYTES, REDUCTION_BYTES_MAX};
use crate::page_cache::Pages;

const NO_REDUCTION: u16 = u16::MAX;

/// Bytes of a reference without its reduction.
const FIXED_BYTES: usize = 8 + 1 + POINTER_BYTES + 2;

const _: () = assert!(REDUCTION_BYTES_MAX < NO_REDUCTION as usize, "no length of a reduction means 'none'");
const _: () = assert!(
    FIXED_BYTES + REDUCTION_BYTES_MAX <= BIG_VALUE_BYTES,
    "a leaf holds the reference to a value that it does not hold"
);

/// A reference to a big value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BigRef {
    /// Bytes of the value.
    pub len: u64,
    /// Whether `pointer` is a list of extents and not the only extent.
    pub list: bool,
    /// The extent, or the list.
    pub pointer: PagePointer,
    /// The value's own reduction, computed while its bytes were at hand.
    pub one: Option<Vec<u8>>,
}

impl BigRef {
    /// The encoded form, as leaves and log records hold it.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + self.one.as_ref().map_or(0, Vec::len));
        out.extend_from_slice(&self.len.to_le_bytes());
        out.push(u8::from(self.list));
        self.pointer.encode(&mut out);
        let one = self.one.as_ref().map_or(NO_REDUCTION, |one| {
            u16::try_from(one.len()).expect("a reduction is at most REDUCTION_BYTES_MAX")
        });
        out.extend_from_slice(&one.to_le_bytes());
        out.extend_from_slice(self.one.as_deref().unwrap_or_default());
        debug_assert!(BigRef::decode(&out).is_ok_and(|read| read == *self), "{self:?} can be read again");
        out
    }

    /// Decodes a reference.
    ///
    /// # Errors
    /// `Corrupt` if it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Result<BigRef> {
        let bad = || Error::new(Code::CorruptData, "a reference to a big value cannot be read");
        let (head, rest) = bytes.split_at_checked(FIXED_BYTES).ok_or_else(bad)?;
        let pointer = PagePointer::decode(&head[9..]).ok_or_else(bad)?;
        let one_bytes = u16::from_le_bytes([head[9 + POINTER_BYTES], head[10 + POINTER_BYTES]]);
        let one = match one_bytes {
            NO_REDUCTION if rest.is_empty() => None,
            length if length as usize == rest.len() && rest.len() <= REDUCTION_BYTES_MAX => {
                Some(rest.to_vec())
            }
            _ => return Err(bad()),
        };
        let len = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
        Ok(BigRef { len, list: head[8] != 0, pointer, one })
    }

    /// Writes the bytes of `source` as extents of at most `extent_bytes`. `put` allocates and writes a page,
    /// and returns where it is.
    ///
    /// # Errors
    /// Those of `source` and `put`. What was written until then is not referenced; the caller frees it.
    pub(crate) fn write(
        source: &mut dyn Read,
        extent_bytes: usize,
        put: &mut dyn FnMut(&Page) -> Result<PagePointer>,
    ) -> Result<BigRef> {
        let mut len = 0;
        let mut extents = Vec::new();
        let mut piece = Vec::with_capacity(extent_bytes);
        loop {
            piece.clear();
            source.take(extent_bytes as u64).read_to_end(&mut piece).map_err(|error| {
                Error::new(Code::System, format!("cannot read the value to store: {error}"))
            })?;
            if piece.is_empty() && !extents.is_empty() {
                break;
            }
            len += piece.len() as u64;
            let page =
                Page::build(PageKind::ValueExtent, 0, piece.len(), |out| out.extend_from_slice(&piece));
            extents.push(put(&page)?);
            if piece.len() < extent_bytes {
                break;
            }
        }
        let (count, bytes) =
            (extents.len(), extents.iter().map(|extent| u64::from(extent.raw_bytes)).sum::<u64>());
        let held = bytes - (count * PAGE_HEADER_BYTES) as u64;
        invariant!(held == len, "{count} extents of a value of {len} bytes hold {held}");
        if let [only] = extents[..] {
            return Ok(BigRef { len, list: false, pointer: only, one: None });
        }
        let list = Page::build(PageKind::ValueList, 0, extents.len() * POINTER_BYTES, |out| {
            extents.iter().for_each(|extent| extent.encode(out));
        });
        Ok(BigRef { len, list: true, pointer: put(&list)?, one: None })
    }

    /// The extents of the value, in order.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if the list cannot be read.
    pub(crate) fn extents(&self, pages: &Pages) -> Result<Vec<PagePointer>> {
        let extents = if self.list {
            let page = pages.read(&self.pointer, PageKind::ValueList)?;
            page.payload().chunks_exact(POINTER_BYTES).filter_map(PagePointer::decode).collect()
        } else {
            vec![self.pointer]
        };
        self.check(pages, &extents)?;
        Ok(extents)
    }

    /// Checks that the extents lie in the file, do not overlap, and add up to the value's length.
    ///
    /// So a value takes no more memory, and frees no more blocks, than its length accounts for.
    fn check(&self, pages: &Pages, extents: &[PagePointer]) -> Result<()> {
        let data = pages.data();
        let mut bytes = 0;
        for extent in extents {
            data.check(extent, PageKind::ValueExtent)?;
            bytes += u64::from(extent.raw_bytes) - PAGE_HEADER_BYTES as u64;
        }
        if bytes != self.len {
            return Err(self.wrong_length(pages, bytes));
        }
        let mut runs: Vec<(u64, u32)> = extents.iter().map(PagePointer::extent).collect();
        runs.extend(self.list.then(|| self.pointer.extent()));
        runs.sort_unstable();
        let overlap = runs.windows(2).find(|pair| pair[0].0 + u64::from(pair[0].1) > pair[1].0);
        match overlap {
            None => Ok(()),
            Some(pair) => {
                let what = format!("block {} belongs to a value twice", pair[1].0);
                Err(Error::corrupt_data(data.path(), data.offset(pair[1].0), what))
            }
        }
    }

    /// Every page of the value, the list included.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if the list cannot be read.
    pub(crate) fn pages(&self, pages: &Pages) -> Result<Vec<PagePointer>> {
        let mut all = self.extents(pages)?;
        all.extend(self.list.then_some(self.pointer));
        Ok(all)
    }

    /// The whole value in memory.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if an extent cannot be read.
    pub(crate) fn read(&self, pages: &Pages) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        for extent in self.extents(pages)? {
            value.extend_from_slice(pages.read(&extent, PageKind::ValueExtent)?.payload());
        }
        if value.len() as u64 == self.len {
            Ok(value)
        } else {
            Err(self.wrong_length(pages, value.len() as u64))
        }
    }

    fn wrong_length(&self, pages: &Pages, found: u64) -> Error {
        let data = pages.data();
        let what = format!("a value of {found} bytes, want {}", self.len);
        Error::corrupt_data(data.path(), data.offset(self.pointer.block), what)
    }
}

/// Reads a big value piece by piece, in constant memory.
#[derive(Debug)]
pub(crate) struct BigReader {
    pages: Pages,
    extents: std::vec::IntoIter<PagePointer>,
    piece: Option<Page>,
    at: usize,
}

impl BigReader {
    /// Opens a value for reading.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if its list cannot be read.
    pub(crate) fn open(pages: &Pages, value: &BigRef) -> Result<BigReader> {
        let extents = value.extents(pages)?.into_iter();
        Ok(BigReader { pages: pages.clone(), extents, piece: None, at: 0 })
    }
}

impl Read for BigReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(piece) = &self.piece
                && self.at < piece.payload().len()
            {
                let from = &piece.payload()[self.at..];
                let count = from.len().min(buffer.len());
                buffer[..count].copy_from_slice(&from[..count]);
                self.at += count;
                return Ok(count);
            }
            let Some(extent) = self.extents.next() else { return Ok(0) };
            self.piece =
                Some(self.pages.read(&extent, PageKind::ValueExtent).map_err(std::io::Error::other)?);
            self.at = 0;
        }
    }
}
