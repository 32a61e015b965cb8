//! A growing bitmap of blocks, in pages, with first-fit search for runs.

use std::ops::Range;

use crate::alarm::invariant;

/// Words of one page.
pub(crate) const PAGE_WORDS: usize = 504;

/// Blocks covered by one page.
pub(super) const PAGE_BLOCKS: u64 = PAGE_WORDS as u64 * 64;

const _: () = assert!(PAGE_BLOCKS >> u32::BITS == 0, "the length of an extent has 32 bits");

/// The bits of one page.
pub(super) type Bits = Box<[u64; PAGE_WORDS]>;

#[derive(Debug, Clone)]
struct Page {
    bits: Bits,
    /// The longest run of free blocks in this page is at most this long.
    longest_run_at_most: u64,
    /// No block before this word is free.
    first_free_word: usize,
}

impl Page {
    fn empty() -> Page {
        Page { bits: Box::new([0; PAGE_WORDS]), longest_run_at_most: PAGE_BLOCKS, first_free_word: 0 }
    }
}

/// Which blocks are used. A run of blocks never crosses a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Bitmap {
    pages: Vec<Page>,
    used: u64,
    /// One after the last used block.
    end: u64,
}

impl Bitmap {
    /// Makes a map of the bits of its pages.
    pub(super) fn from_pages(pages: impl IntoIterator<Item = Bits>) -> Bitmap {
        let pages: Vec<Page> = pages.into_iter().map(|bits| Page { bits, ..Page::empty() }).collect();
        let used = pages.iter().flat_map(|p| p.bits.iter()).map(|word| u64::from(word.count_ones())).sum();
        let mut map = Bitmap { pages, used, end: 0 };
        map.end = map.end_not_in(&Bitmap::default());
        map
    }

    /// Number of pages.
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The bits of page `index`.
    pub(super) fn bits(&self, index: usize) -> &Bits {
        &self.pages[index].bits
    }

    /// The number of used blocks.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// One after the last used block.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// One after the last block that is used here and free in another map.
    pub(super) fn end_not_in(&self, other: &Bitmap) -> u64 {
        self.end_in(0..self.pages.len(), other)
    }

    /// The number of blocks before this one that are used here and free in another map.
    pub(super) fn used_before(&self, block: u64, other: &Bitmap) -> u64 {
        let in_map = block.min(self.pages.len() as u64 * PAGE_BLOCKS);
        let whole = usize::try_from(in_map / 64).expect("64-bit targets only");
        let ones =
            |word: usize, mask: u64| u64::from((self.word(word) & !other.word(word) & mask).count_ones());
        (0..whole).map(|word| ones(word, u64::MAX)).sum::<u64>() + ones(whole, (1 << (in_map % 64)) - 1)
    }

    fn end_in(&self, pages: Range<usize>, other: &Bitmap) -> u64 {
        for (index, page) in self.pages[pages].iter().enumerate().rev() {
            let theirs = other.pages.get(index);
            let only = |word: usize| page.bits[word] & !theirs.map_or(0, |page| page.bits[word]);
            if let Some(word) = (0..PAGE_WORDS).rfind(|word| only(*word) != 0) {
                let within = word as u64 * 64 + 64 - u64::from(only(word).leading_zeros());
                return index as u64 * PAGE_BLOCKS + within;
            }
        }
        0
    }

    /// Finds the first run of `count` free blocks; extends the map if there is none.
    pub(super) fn find(&mut self, count: u32) -> u64 {
        let count = u64::from(count);
        invariant!(count > 0 && count <= PAGE_BLOCKS, "an extent of {count} blocks is in a page of the map");
        for (index, page) in self.pages.iter_mut().enumerate() {
            if page.longest_run_at_most < count {
                continue;
            }
            match find_in(page, count) {
                Some(within) => return index as u64 * PAGE_BLOCKS + within,
                None => page.longest_run_at_most = count - 1,
            }
        }
        self.pages.push(Page::empty());
        (self.pages.len() as u64 - 1) * PAGE_BLOCKS
    }

    /// Marks blocks as used; used ones stay used.
    pub(super) fn set(&mut self, block: u64, count: u32) {
        self.for_words(block, count, |word, mask| {
            let before = *word;
            *word |= mask;
            i64::from((*word ^ before).count_ones())
        });
        if count > 0 {
            self.end = self.end.max(block + u64::from(count));
        }
        self.check_counters();
    }

    /// Marks blocks as free.
    pub(super) fn clear(&mut self, block: u64, count: u32) {
        // Blocks beyond the map are free already.
        let end = block.saturating_add(u64::from(count)).min(self.pages.len() as u64 * PAGE_BLOCKS);
        let Ok(count) = u32::try_from(end.saturating_sub(block)) else { return };
        if count == 0 {
            return;
        }
        self.for_words(block, count, |word, mask| {
            let before = *word;
            *word &= !mask;
            -i64::from((*word ^ before).count_ones())
        });
        let (first, last) = (page_of(block), page_of(end - 1));
        for (index, page) in self.pages.iter_mut().enumerate().take(last + 1).skip(first) {
            page.longest_run_at_most = PAGE_BLOCKS;
            let word = if index == first { word_of(block) } else { 0 };
            page.first_free_word = page.first_free_word.min(word);
        }
        if block < self.end && block + u64::from(count) >= self.end {
            self.end = self.end_in(0..page_of(block) + 1, &Bitmap::default());
        }
        self.check_counters();
    }

    /// What holds of the counters, as far as they alone tell.
    fn check_counters(&self) {
        let Bitmap { used, end, .. } = *self;
        invariant!(used <= end && (used > 0 || end == 0), "{used} used blocks lie before block {end}");
    }

    /// Whether the counters are what the bits say. Reads all of the map: for assertions.
    pub(super) fn adds_up(&self) -> bool {
        let words = self.pages.iter().flat_map(|page| page.bits.iter());
        let used: u64 = words.map(|word| u64::from(word.count_ones())).sum();
        used == self.used && self.end == self.end_not_in(&Bitmap::default())
    }

    /// Marks every block from this one on as free.
    pub(super) fn clear_from(&mut self, block: u64) {
        let mut at = block;
        while at < self.pages.len() as u64 * PAGE_BLOCKS {
            let count = PAGE_BLOCKS - at % PAGE_BLOCKS;
            self.clear(at, u32::try_from(count).expect("a page has few blocks"));
            at += count;
        }
        invariant!(self.end <= block, "no block from {block} on is used, the last is before {}", self.end);
    }

    /// Whether every block is used.
    pub(super) fn all_set(&self, block: u64, count: u32) -> bool {
        let end = block.checked_add(u64::from(count));
        end.is_some_and(|end| (block..end).all(|block| self.is_set(block)))
    }

    /// Whether every block is free.
    pub(super) fn none_set(&self, block: u64, count: u32) -> bool {
        !(block..block.saturating_add(u64::from(count))).any(|block| self.is_set(block))
    }

    fn is_set(&self, block: u64) -> bool {
        self.pages.get(page_of(block)).is_some_and(|p| p.bits[word_of(block)] >> (block % 64) & 1 == 1)
    }

    /// A map with just these extents used.
    pub(super) fn of_extents(extents: &[(u64, u32)]) -> Bitmap {
        let mut map = Bitmap::default();
        extents.iter().for_each(|(block, count)| map.set(*block, *count));
        map
    }

    /// A map with what is used here and free in another one.
    pub(super) fn without(&self, other: &Bitmap) -> Bitmap {
        let mut map = self.clone();
        for (ours, theirs) in map.pages.iter_mut().zip(&other.pages) {
            for (bits, gone) in ours.bits.iter_mut().zip(theirs.bits.iter()) {
                map.used -= u64::from((*bits & gone).count_ones());
                *bits &= !gone;
            }
            (ours.longest_run_at_most, ours.first_free_word) = (PAGE_BLOCKS, 0);
        }
        map.end = self.end_not_in(other);
        debug_assert!(map.adds_up(), "{} used blocks before block {} are counted", map.used, map.end);
        map
    }

    /// Runs of used blocks, from about this block on.
    pub(super) fn runs_from(&self, block: u64) -> impl Iterator<Item = (u64, u32)> {
        let first = usize::try_from(block / 64).unwrap_or(usize::MAX);
        runs(first..self.pages.len() * PAGE_WORDS, |word| self.word(word))
    }

    /// Runs of blocks used here and free in another map.
    pub(super) fn runs_not_in(&self, other: &Bitmap) -> Vec<(u64, u32)> {
        runs(0..self.pages.len() * PAGE_WORDS, |word| self.word(word) & !other.word(word)).collect()
    }

    /// Runs of at least this many free blocks before the last used one.
    pub(super) fn free_runs(&self, count_min: u32) -> Vec<(u64, u32)> {
        let end = self.end();
        let all = runs(0..self.pages.len() * PAGE_WORDS, |word| !self.word(word));
        all.take_while(|(block, _)| *block < end).filter(|(_, count)| *count >= count_min).collect()
    }

    /// All words of all pages, in order.
    fn word(&self, word: usize) -> u64 {
        self.pages.get(word / PAGE_WORDS).map_or(0, |page| page.bits[word % PAGE_WORDS])
    }

    fn for_words(&mut self, block: u64, count: u32, mut change: impl FnMut(&mut u64, u64) -> i64) {
        let end = block + u64::from(count);
        while self.pages.len() <= page_of(end.saturating_sub(1)) {
            self.pages.push(Page::empty());
        }
        let mut at = block;
        while at < end {
            let in_word = (64 - at % 64).min(end - at);
            let mask = if in_word == 64 { u64::MAX } else { ((1 << in_word) - 1) << (at % 64) };
            let change = change(&mut self.pages[page_of(at)].bits[word_of(at)], mask);
            let used = self.used.checked_add_signed(change);
            invariant!(used.is_some(), "{} blocks are used, {change} more from {at} on", self.used);
            self.used = used.unwrap_or_default();
            at += in_word;
        }
    }
}

pub(super) fn page_of(block: u64) -> usize {
    usize::try_from(block / PAGE_BLOCKS).expect("64-bit targets only")
}

pub(super) fn word_of(block: u64) -> usize {
    usize::try_from(block % PAGE_BLOCKS / 64).expect("a page has few words")
}

/// Runs of set bits in the words of a map; none crosses a page.
fn runs(words: Range<usize>, bits_of: impl Fn(usize) -> u64) -> impl Iterator<Item = (u64, u32)> {
    let Range { start: mut next, end: words } = words;
    let mut bits = 0;
    std::iter::from_fn(move || {
        while bits == 0 {
            if next >= words {
                return None;
            }
            bits = bits_of(next);
            next += 1;
        }
        let start = bits.trailing_zeros();
        let block = (next as u64 - 1) * 64 + u64::from(start);
        let mut count = (bits >> start).trailing_ones();
        let mut goes_on = start + count == 64;
        bits = if goes_on { 0 } else { bits & (u64::MAX << (start + count)) };
        while goes_on && next < words && !next.is_multiple_of(PAGE_WORDS) {
            let more = bits_of(next).trailing_ones();
            goes_on = more == 64;
            bits = if goes_on { 0 } else { bits_of(next) & (u64::MAX << more) };
            count += more;
            next += 1;
        }
        Some((block, count))
    })
}

fn find_in(page: &mut Page, count: u64) -> Option<u64> {
    let words = page.bits.iter().enumerate().skip(page.first_free_word);
    let mut run_start = page.first_free_word as u64 * 64;
    let mut run = 0;
    let mut seen_free = false;
    for (index, word) in words {
        let base = index as u64 * 64;
        if *word == u64::MAX {
            run = 0;
            if !seen_free {
                page.first_free_word = index + 1;
            }
            continue;
        }
        seen_free = true;
        let mut bit = 0;
        while bit < 64 {
            let rest = word >> bit;
            let free = u64::from(rest.trailing_zeros()).min(64 - bit);
            if free > 0 {
                if run == 0 {
                    run_start = base + bit;
                }
                run += free;
                if run >= count {
                    return Some(run_start);
                }
                bit += free;
            }
            if bit < 64 {
                run = 0;
                bit += u64::from((word >> bit).trailing_ones());
            }
        }
    }
    None
}
