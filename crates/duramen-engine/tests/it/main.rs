//! The engine from outside, on the memory disk, against models.
#![allow(clippy::unwrap_used)]

#[cfg(not(feature = "shuttle"))]
mod basics;
#[cfg(not(feature = "shuttle"))]
mod format;
#[cfg(feature = "shuttle")]
mod interleavings;
