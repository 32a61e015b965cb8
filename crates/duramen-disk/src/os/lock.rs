//! Lock files of the operating system.
//!
//! Owns the open file that holds the lock: `flock`, which belongs to the open file and ends with it. A POSIX
//! record lock would be dropped by any close in the process (D8). The text inside names the holder and
//! decides nothing.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::{Lock, LockError};

/// The most bytes of a holder's text that are shown to a refused process.
const HOLDER_BYTES_MAX: u64 = 1024;

/// A lock held by an open file.
#[derive(Debug)]
struct OsLock {
    file: fs::File,
}

/// Opens the file and takes its lock without waiting.
pub(super) fn take(options: &OpenOptions, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
    let file = options.open(path).map_err(LockError::Io)?;
    let taken = if exclusive { file.try_lock() } else { file.try_lock_shared() };
    match taken {
        Ok(()) => Ok(Box::new(OsLock { file })),
        Err(TryLockError::WouldBlock) => {
            let mut text = Vec::new();
            // The holder's name is only informative, so a failure to read it is ignored.
            let _ = (&file).take(HOLDER_BYTES_MAX).read_to_end(&mut text);
            Err(LockError::Held { holder: String::from_utf8_lossy(&text).trim_end().to_owned() })
        }
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

impl Lock for OsLock {
    fn set_holder(&self, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())
    }
}
