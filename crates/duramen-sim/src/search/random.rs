//! The randomness of the simulation: the memory disk's generator, and a function that combines two numbers.

pub use duramen_disk::memory::{Random, mixed};

/// Combines two numbers into one.
#[must_use]
pub fn joined(a: u64, b: u64) -> u64 {
    mixed(a.rotate_left(17) ^ mixed(b.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}
