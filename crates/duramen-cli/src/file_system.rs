//! Checks that the file system of a database can keep level `disk`, before anything is acknowledged.
//!
//! Refuses where the probe knows that a sync is worthless: memory, an overlay that omits syncs, barriers off,
//! a library that swallows syncs. Unknown cases are accepted; `duramen doctor` reports them.

use std::path::Path;

use duramen::Code;
use duramen::probe::{Effect, Host, probe};

use crate::failure::{CANNOT_KEEP, Failure, Result};

/// Refuses a path, which need not exist yet, on a file system that survives no power cut.
pub(crate) fn check(path: &Path, hint: &str) -> Result<()> {
    let place = path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let report = probe(&Host::this(), place).map_err(|error| Failure::io("look at", place, &error))?;
    // The worst comes first.
    match report.weaknesses.first() {
        Some(weakness) if weakness.effect() == Effect::SyncIsWorthless => {
            let message = format!(
                "{} survives no power cut: {}; `duramen doctor {}` explains it",
                path.display(),
                weakness.reason,
                place.display()
            );
            Err(Failure::said(CANNOT_KEEP, Code::Unsupported, message, hint))
        }
        _ => Ok(()),
    }
}
