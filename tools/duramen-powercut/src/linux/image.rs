//! The content of a drive as a sparse file.
//!
//! Owns reading and writing such files. It never syncs: an image matters only as long as the machine stays
//! up.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use duramen_powercut::content::Content;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

const COPY_BYTES: u64 = 1 << 20;

/// Reads a file, without its holes.
pub(crate) fn load(path: &Path) -> io::Result<Content> {
    let file = File::open(path)?;
    let size_bytes = file.metadata()?.len();
    let mut content = Content::new(size_bytes);
    let mut buffer = vec![0; usize::try_from(COPY_BYTES).map_err(io::Error::other)?];
    let mut end = 0;
    while let Some(start) = data_after(&file, end)? {
        end = u64::try_from(lseek(&file, i64::try_from(start).map_err(io::Error::other)?, Whence::SeekHole)?)
            .map_err(io::Error::other)?;
        let mut at = start;
        while at < end {
            let count = usize::try_from((end - at).min(COPY_BYTES)).map_err(io::Error::other)?;
            file.read_exact_at(&mut buffer[..count], at)?;
            content.write(at, &buffer[..count]);
            at += count as u64;
        }
    }
    Ok(content)
}

/// The offset of the next data, if there is any.
fn data_after(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match lseek(file, i64::try_from(offset).map_err(io::Error::other)?, Whence::SeekData) {
        Ok(start) => Ok(Some(u64::try_from(start).map_err(io::Error::other)?)),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a file; holes stay holes.
pub(crate) fn save(content: &Content, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(content.size_bytes())?;
    let mut run: Vec<u8> = Vec::new();
    let mut run_offset = 0;
    for (offset, bytes) in content.pages() {
        let adjacent = run_offset + run.len() as u64 == offset && (run.len() as u64) < COPY_BYTES;
        if !adjacent {
            file.write_all_at(&run, run_offset)?;
            run.clear();
            run_offset = offset;
        }
        run.extend_from_slice(bytes);
    }
    file.write_all_at(&run, run_offset)
}
