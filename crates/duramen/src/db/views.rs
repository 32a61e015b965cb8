//! Views that are built, beside whoever writes.

pub(crate) mod build;
pub(crate) mod in_background;
pub(crate) mod mend;
#[cfg(test)]
mod tests;
mod waiting;
