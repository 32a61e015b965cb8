//! Simulated power cuts, models and house rules. Unpublished.
#![allow(clippy::disallowed_methods, reason = "the simulation owns files, the clock and threads")]

pub mod contents;
pub mod damage;
pub mod faults;
pub mod history;
pub mod salvage;
pub mod search;
