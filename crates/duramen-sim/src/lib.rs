//! Simulated power cuts, models and house rules. Unpublished.
#![allow(clippy::disallowed_methods, reason = "the simulation owns files, the clock and threads")]

pub mod beside;
pub mod boundaries;
pub mod cluster;
pub mod concurrent;
pub mod contents;
pub mod corruption;
pub mod faults;
pub mod faulty;
pub mod features;
pub mod fuzz;
pub mod history;
pub mod kind_counts;
pub mod lives;
pub mod part;
pub mod product;
pub mod repair;
pub mod replica;
pub mod requests;
pub mod search;
pub mod seeds;
