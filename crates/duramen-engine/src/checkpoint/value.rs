//! Writes big values to fresh extents.

use std::io::Read;

use super::Store;
use crate::allocator::Space;
use crate::data_file::PagePointer;
use crate::error::{Error, Result};
use crate::tree::BigRef;

/// Extents of a value while it is written. If its source fails or panics, they are freed at once. The
/// transaction may go on without the value, and they would leak until the next open.
struct UnnamedValue<'a> {
    space: &'a Space,
    pages: Vec<PagePointer>,
}

impl Drop for UnnamedValue<'_> {
    fn drop(&mut self) {
        self.space.value_aborted(&self.pages);
    }
}

/// Writes a big value to fresh extents. They belong to no commit yet. Returns the pages, too.
///
/// # Errors
/// `Full` or `Io`; those of `source`. Nothing stays allocated then.
pub(crate) fn write_value(store: &Store, source: &mut dyn Read) -> Result<(BigRef, Vec<PagePointer>)> {
    let data = store.pages.data();
    let mut unnamed = UnnamedValue { space: &store.space, pages: Vec::new() };
    let value = BigRef::write(source, store.geometry.big_value_extent_bytes, &mut |page| {
        let block_count = data.blocks_of(page.bytes().len());
        let block = store.space.allocate_value(block_count)?;
        let pointer = data.locate(page, block);
        unnamed.pages.push(pointer);
        let mut bytes = page.bytes().to_vec();
        bytes.resize(block_count as usize * data.block_bytes(), 0);
        let written = data.file().write_at(&bytes, data.offset(block));
        written.map_err(|error| Error::io("write to", data.path(), &error.source))?;
        Ok(pointer)
    })?;
    Ok((value, std::mem::take(&mut unnamed.pages)))
}
