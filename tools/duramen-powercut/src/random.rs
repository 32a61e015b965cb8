//! Seeded streams, one for each purpose: the same seed gives the same cut and the same survivors everywhere.
//!
//! Owns all randomness of the tool; the generator is the memory disk's. It never reads the clock or the
//! system.

use duramen_disk::memory;

/// A seeded stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(memory::Random);

impl Random {
    /// Starts the stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(memory::Random::new(seed))
    }

    /// The stream of a purpose: the same seed serves several purposes, which do not affect each other.
    #[must_use]
    pub fn for_purpose(seed: u64, purpose: u64) -> Random {
        let mut random = Random::new(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let _ = random.draw();
        random
    }

    /// The next number.
    #[must_use = "a number that is drawn and not used shifts the stream"]
    pub fn draw(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound` (which is at least 1).
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the high half is below the bound, which is a u64")
    }

    /// An index below `bound` (which is at least 1).
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("it is below the bound, which is a usize")
    }

    /// True `parts` times in `whole`.
    pub fn chance(&mut self, parts: u64, whole: u64) -> bool {
        self.below(whole) < parts
    }
}
