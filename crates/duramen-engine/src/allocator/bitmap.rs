//! A growing bitmap of blocks, in pages, with first-fit search for runs.

/// Words of one page.
pub const PAGE_WORDS: usize = 504;

/// Blocks one page covers.
pub const PAGE_BLOCKS: u64 = PAGE_WORDS as u64 * 64;

/// The bits of one page.
pub type Bits = Box<[u64; PAGE_WORDS]>;

#[derive(Debug, Clone)]
struct Page {
    bits: Bits,
    /// No run of free blocks in this page is longer.
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
pub struct Bitmap {
    pages: Vec<Page>,
    used: u64,
}

impl Bitmap {
    /// From the bits of its pages.
    pub fn from_pages(pages: impl IntoIterator<Item = Bits>) -> Bitmap {
        let pages: Vec<Page> = pages.into_iter().map(|bits| Page { bits, ..Page::empty() }).collect();
        let used = pages.iter().flat_map(|p| p.bits.iter()).map(|word| u64::from(word.count_ones())).sum();
        Bitmap { pages, used }
    }

    /// Number of pages.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The bits of page `index`.
    pub fn bits(&self, index: usize) -> &Bits {
        &self.pages[index].bits
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// One after the last block in use.
    pub fn end(&self) -> u64 {
        for (index, page) in self.pages.iter().enumerate().rev() {
            if let Some(word) = page.bits.iter().rposition(|bits| *bits != 0) {
                let within = word as u64 * 64 + 64 - u64::from(page.bits[word].leading_zeros());
                return index as u64 * PAGE_BLOCKS + within;
            }
        }
        0
    }

    /// The first run of `count` free blocks, growing the map if there is none.
    pub fn find(&mut self, count: u32) -> u64 {
        let count = u64::from(count);
        assert!(count > 0 && count <= PAGE_BLOCKS, "an extent is between one block and a page of the map");
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

    /// Marks blocks as used; those that are stay so.
    pub fn set(&mut self, block: u64, count: u32) {
        self.for_words(block, count, |word, mask| {
            let before = *word;
            *word |= mask;
            i64::from((*word ^ before).count_ones())
        });
    }

    /// Marks blocks as free.
    pub fn clear(&mut self, block: u64, count: u32) {
        self.for_words(block, count, |word, mask| {
            let before = *word;
            *word &= !mask;
            -i64::from((*word ^ before).count_ones())
        });
        if let Some(page) = self.pages.get_mut(page_of(block)) {
            page.longest_run_at_most = PAGE_BLOCKS;
            page.first_free_word = page.first_free_word.min(word_of(block));
        }
    }

    /// Whether every block is used.
    pub fn all_set(&self, block: u64, count: u32) -> bool {
        (block..block + u64::from(count)).all(|block| {
            self.pages.get(page_of(block)).is_some_and(|p| p.bits[word_of(block)] >> (block % 64) & 1 == 1)
        })
    }

    /// A map with just these extents used.
    pub fn of_extents(extents: &[(u64, u32)]) -> Bitmap {
        let mut map = Bitmap::default();
        extents.iter().for_each(|(block, count)| map.set(*block, *count));
        map
    }

    /// Runs of blocks used here and free in another map.
    pub fn runs_not_in(&self, other: &Bitmap) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for (index, page) in self.pages.iter().enumerate() {
            for (word, bits) in page.bits.iter().enumerate() {
                let theirs = other.pages.get(index).map_or(0, |page| page.bits[word]);
                let mut only = bits & !theirs;
                while only != 0 {
                    let start = only.trailing_zeros();
                    let length = (only >> start).trailing_ones();
                    let block = index as u64 * PAGE_BLOCKS + word as u64 * 64 + u64::from(start);
                    match runs.last_mut() {
                        Some((from, count)) if *from + u64::from(*count) == block && word > 0 => {
                            *count += length
                        }
                        _ => runs.push((block, length)),
                    }
                    only &= if start + length == 64 { 0 } else { u64::MAX << (start + length) };
                }
            }
        }
        runs
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
            self.used = self.used.saturating_add_signed(change);
            at += in_word;
        }
    }
}

fn page_of(block: u64) -> usize {
    usize::try_from(block / PAGE_BLOCKS).expect("64-bit targets only")
}

fn word_of(block: u64) -> usize {
    usize::try_from(block % PAGE_BLOCKS / 64).expect("a page has few words")
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
