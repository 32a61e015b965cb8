//! The one integration-test binary of this crate.
#![allow(
    clippy::disallowed_methods,
    reason = "tests read the sources of this repository and run real processes"
)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may")]

mod asynchronous;
mod backup;
mod blobs;
mod conflicts;
mod damage;
mod documents;
mod faults;
mod feed;
mod history;
mod house;
mod key_values;
mod migrations;
mod overlay;
mod protections;
mod salvage;
mod search;
mod views_in_progress;
