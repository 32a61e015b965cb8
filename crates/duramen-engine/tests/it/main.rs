//! The engine from outside, on the memory disk, against models.
#![allow(clippy::unwrap_used)]

#[cfg(not(feature = "shuttle"))]
mod basics;
#[cfg(feature = "shuttle")]
mod interleavings;
