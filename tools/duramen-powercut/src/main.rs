//! The binary `powercut`. On systems other than Linux it only prints that it is not available.

#![allow(
    clippy::disallowed_methods,
    reason = "a program that is no part of the library: it has files, threads, processes and a clock of its own"
)]

#[cfg(target_os = "linux")]
mod linux;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    linux::run_words()
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::print_stderr, reason = "the only thing it can do here")]
fn main() -> ExitCode {
    eprintln!("powercut: it needs Linux, with FUSE and loop devices");
    ExitCode::from(1)
}
