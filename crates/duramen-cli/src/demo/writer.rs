//! Writer.
use crate::{failure::Result, output::Output};
pub(crate) fn run(_: &std::path::Path, _: Output) -> Result<()> {
    Ok(())
}
