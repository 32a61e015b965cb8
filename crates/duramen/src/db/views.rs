//! Building views, concurrently with writers.

pub(crate) mod in_background;
#[cfg(test)]
mod tests;
mod waiting;
