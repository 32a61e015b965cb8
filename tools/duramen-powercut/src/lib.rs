//! The model of a disk drive whose volatile cache loses power, for the tool `powercut`.
//!
//! Owns what is current, durable and pending on the drive, when the power goes, and what survives. Pure: it
//! touches no file, no clock and no lock, and the same seed gives the same result everywhere. The binary
//! serves it as a disk. That D1 to D3 hold on real kernels relies on this model being at least as bad as a
//! real drive.

pub mod content;
pub mod drive;
pub mod moment;
pub mod random;
pub mod survival;
