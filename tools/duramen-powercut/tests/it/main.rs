//! The drive's model, without root; and the binary on real kernels, where root, FUSE and loop devices are.
#![allow(clippy::disallowed_methods, reason = "tests run real processes on real files")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may")]

mod database;
#[cfg(target_os = "linux")]
mod leftovers;
mod live;
mod model;
#[cfg(target_os = "linux")]
mod refusals;
mod runner;
mod served;
#[cfg(target_os = "linux")]
mod told;
mod two_drives;
