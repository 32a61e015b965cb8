//! A Bloom filter of the keys on a page: it rules out most other keys without reading the page.
//!
//! It is made while the page is in memory, and kept in memory with the patch of the leaf.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// With this and [`PROBES`], fewer than 1 % of the keys that are not on the page may be there.
const BITS_A_KEY: usize = 10;

const PROBES: u32 = 7;

const WORD_BITS: usize = u64::BITS as usize;

/// Which keys a page may have. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct PageFilter(Arc<[u64]>);

impl PageFilter {
    /// Of the keys on a page, each after the page's prefix.
    pub(super) fn of<'a>(suffixes: impl ExactSizeIterator<Item = &'a [u8]>) -> PageFilter {
        let words = (suffixes.len() * BITS_A_KEY).div_ceil(WORD_BITS).max(1);
        let mut words = vec![0; words];
        let bits = words.len() * WORD_BITS;
        for suffix in suffixes {
            places(suffix, bits).for_each(|bit| words[bit / WORD_BITS] |= 1 << (bit % WORD_BITS));
        }
        PageFilter(words.into())
    }

    /// The same filter in memory of its own.
    pub(super) fn copied(&self) -> PageFilter {
        PageFilter(Arc::from(&*self.0))
    }

    /// Whether others share it.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0) + 2 * size_of::<usize>()
    }

    /// Whether the page may have a key, given after the page's prefix. If not, it is not there.
    pub(super) fn may_have(&self, suffix: &[u8]) -> bool {
        let words = &*self.0;
        let is_set = |bit: usize| words[bit / WORD_BITS] & 1 << (bit % WORD_BITS) != 0;
        places(suffix, words.len() * WORD_BITS).all(is_set)
    }
}

/// The bits of a key, of so many.
fn places(suffix: &[u8], bits: usize) -> impl Iterator<Item = usize> {
    let [high, low] = halves(xxh3_64(suffix));
    // An even step would reach half of the bits only.
    (0..PROBES)
        .map(move |probe| low.wrapping_add(probe.wrapping_mul(high | 1)))
        .map(move |hash| scaled(hash, bits))
}

fn halves(hash: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// A hash as a number below `bits`.
fn scaled(hash: u32, bits: usize) -> usize {
    usize::try_from((u64::from(hash) * bits as u64) >> 32).expect("below the number of bits")
}

#[cfg(test)]
mod tests {
    //! A filter may have every key that it is of, and few others.
    use super::*;

    #[test]
    fn a_filter_has_its_keys_and_few_others() {
        for count in [0_u64, 1, 7, 100, 1_000] {
            let keys: Vec<[u8; 8]> = (0..count).map(u64::to_be_bytes).collect();
            let filter = PageFilter::of(keys.iter().map(|key| &key[..]));
            assert!(keys.iter().all(|key| filter.may_have(key)), "{count} keys");
            let others = (count..count + 20_000).map(u64::to_be_bytes);
            let passed = others.filter(|key| filter.may_have(key)).count();
            assert!(passed < 300, "{passed} of 20,000 others pass with {count} keys");
        }
    }
}
