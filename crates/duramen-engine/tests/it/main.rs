//! The engine from outside, on the memory disk, against models.
#![allow(clippy::unwrap_used)]

mod basics;
