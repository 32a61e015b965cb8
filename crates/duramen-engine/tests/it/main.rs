//! The engine from outside, on the memory disk, against models.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

#[cfg(not(feature = "shuttle"))]
mod awkward;
#[cfg(not(feature = "shuttle"))]
mod basics;
#[cfg(not(feature = "shuttle"))]
mod compact;
#[cfg(not(feature = "shuttle"))]
mod compact_crash;
#[cfg(not(feature = "shuttle"))]
mod compacting;
#[cfg(not(feature = "shuttle"))]
mod compressing;
#[cfg(not(feature = "shuttle"))]
mod corrupt;
#[cfg(not(feature = "shuttle"))]
mod cursors;
#[cfg(not(feature = "shuttle"))]
mod feed;
#[cfg(not(feature = "shuttle"))]
mod format;
#[cfg(feature = "shuttle")]
mod interleavings;
#[cfg(not(feature = "shuttle"))]
mod locks;
#[cfg(not(feature = "shuttle"))]
mod memory;
#[cfg(not(feature = "shuttle"))]
mod node;
#[cfg(not(feature = "shuttle"))]
mod node_anew;
#[cfg(not(feature = "shuttle"))]
mod observe;
#[cfg(not(feature = "shuttle"))]
mod panics;
#[cfg(not(feature = "shuttle"))]
mod patches;
#[cfg(not(feature = "shuttle"))]
mod repair;
#[cfg(not(feature = "shuttle"))]
mod rest;
#[cfg(not(feature = "shuttle"))]
mod resting;
#[cfg(all(not(feature = "shuttle"), debug_assertions))]
mod space;
#[cfg(not(feature = "shuttle"))]
mod timings;
