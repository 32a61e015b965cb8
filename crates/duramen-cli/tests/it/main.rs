//! The command line, driven as a user drives it: the built binary, real files, exit codes.
#![allow(clippy::disallowed_methods, reason = "tests run real processes on real files")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may")]

mod asking;
mod backing_up;
mod benchmark;
mod column_names;
mod corpus;
mod corrupt;
mod deleting;
mod demo;
mod doctor;
mod failed_views;
mod finding;
mod first_import;
mod first_queries;
mod flights;
mod formats;
mod golden;
mod handed_over;
mod hostile;
mod inferring;
mod interrupted;
mod levels;
mod line_numbers;
mod lookalikes;
mod loop_device;
mod parquet;
mod printed;
mod python;
mod ranges;
mod references;
mod repairing;
mod repeated_keys;
mod round_trip;
mod runner;
mod secure;
mod serving;
mod shell;
mod shell_blocks;
mod slips;
mod threads;
mod three_nodes;
mod typing;
mod users;
mod views;
mod watching;
