//! `nemesis`: a cluster of real processes, in network namespaces of their own, under faults of all kinds;
//! the check of every answer that its clients were given.

#![allow(
    clippy::disallowed_methods,
    reason = "a program that is no part of the library: it has files, threads, processes and a clock of its own"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

#[cfg(target_os = "linux")]
mod ages;
#[cfg(target_os = "linux")]
mod ballast;
#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod cluster;
#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod frames;
#[cfg(target_os = "linux")]
mod history;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod judgement;
#[cfg(target_os = "linux")]
mod kit;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod power;
#[cfg(target_os = "linux")]
mod room;
#[cfg(target_os = "linux")]
mod run;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    command::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("nemesis needs the namespaces of Linux");
    ExitCode::from(2)
}
