//! Nodes as a program starts them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod databases;
mod full;
mod members;
mod openings;
mod reads;
mod retain;
mod start;
