//! Views that are built, beside whoever writes.

pub(crate) mod in_background;
#[cfg(test)]
mod tests;
mod waiting;
