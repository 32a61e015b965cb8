//! Demo.
pub(crate) mod writer;
use crate::{args::DemoArgs, failure::Result, output::Output};
pub(crate) fn run(_: &DemoArgs, _: Output) -> Result<()> {
    Ok(())
}
