//! The change feed: changes, consumers, and the observer of another process.

pub(crate) mod changes;
pub(crate) mod consumer;
pub(crate) mod observer;
pub(crate) mod positions;
