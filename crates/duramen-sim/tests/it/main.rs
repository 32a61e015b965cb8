//! The one integration-test binary of this crate.
#![allow(
    clippy::disallowed_methods,
    reason = "tests read the sources of this repository and run real processes"
)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may")]

mod asynchronous;
mod backup;
mod blobs;
mod cluster;
mod command_line;
mod concurrent;
mod conflicts;
mod corruption;
mod documents;
mod faults;
mod faulty;
mod feed;
mod fuzz;
mod generated;
mod history;
mod house;
mod overlay;
mod product;
mod protections;
mod repair;
mod replica;
mod requests;
mod search;
