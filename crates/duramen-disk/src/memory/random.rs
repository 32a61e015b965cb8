//! A small seeded generator (SplitMix64): the same seed gives the same run on every machine.
//!
//! Owns the randomness of the memory disk and of all simulations. It never reads the clock or the system. Not
//! for secrets.

/// A seeded stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A stream that depends on the seed only.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Sixty-four bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.bits()) * (bound as u128);
        usize::try_from(wide >> 64).expect("the high half is below the bound, which is a usize")
    }

    /// A number from `from` to before `to`.
    pub fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from)
    }

    /// True `parts` times in `whole`.
    pub fn chance(&mut self, parts: usize, whole: usize) -> bool {
        self.below(whole) < parts
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Puts them in any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Spreads the bits of a number.
#[must_use]
pub fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
