//! A leaf: sorted entries behind a common prefix, in memory exactly as on disk. Pure functions on bytes.
//!
//! Payload: entry count (u16), prefix length (u16), four zero bytes, prefix, start of each entry (u16, from the
//! payload's start), entries. An entry: key suffix length (15 bits) and the big-value bit, suffix, value.

use std::ops::Range;
use std::sync::Arc;

use super::heads::Heads;
use crate::data_file::{Buffers, Page, PageKind};

const FIXED_BYTES: usize = 8;
const ENTRY_FIXED_BYTES: usize = 4;
const BIG_BIT: usize = 0x8000;

/// A value as a tree stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredValue<'a> {
    /// Whether `bytes` are a reference to extents (see `tree::big`) and not the value itself.
    pub big: bool,
    /// The value, or the reference.
    pub bytes: &'a [u8],
}

/// One entry on its way into a leaf; its key comes in two parts so that nothing is copied before the leaf is built.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// First part of the key.
    pub head: &'a [u8],
    /// Second part of the key.
    pub tail: &'a [u8],
    /// Its value.
    pub value: StoredValue<'a>,
}

impl Entry<'_> {
    fn key_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Bytes this entry takes in a leaf without prefix compression.
    pub fn cost(&self) -> usize {
        ENTRY_FIXED_BYTES + self.key_bytes() + self.value.bytes.len()
    }

    fn key_iter(&self) -> impl Iterator<Item = u8> {
        self.head.iter().chain(self.tail).copied()
    }

    /// The whole key.
    pub fn key(&self) -> Vec<u8> {
        [self.head, self.tail].concat()
    }
}

/// A leaf in memory.
#[derive(Debug)]
pub struct Leaf {
    page: Page,
    /// Of the keys behind the prefix.
    heads: Heads,
    prefix_bytes: usize,
}

impl Leaf {
    /// Builds a leaf of sorted entries; `generation` is the commit that makes it.
    pub fn build(buffers: &Arc<Buffers>, entries: &[Entry<'_>], generation: u64) -> Leaf {
        let prefix = common_prefix(entries);
        let payload: usize = FIXED_BYTES + prefix + entries.iter().map(|e| e.cost() - prefix).sum::<usize>();
        let short = |n: usize| u16::try_from(n).expect("a leaf is below 64 KiB (limits.rs)");
        let page = Page::build_in(buffers, PageKind::Leaf, generation, payload, |out| {
            out.extend_from_slice(&short(entries.len()).to_le_bytes());
            out.extend_from_slice(&short(prefix).to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            if let Some(first) = entries.first() {
                out.extend(first.key_iter().take(prefix));
            }
            let mut start = FIXED_BYTES + prefix + 2 * entries.len();
            for entry in entries {
                out.extend_from_slice(&short(start).to_le_bytes());
                start += entry.cost() - prefix - 2;
            }
            for entry in entries {
                let flag = if entry.value.big { BIG_BIT } else { 0 };
                out.extend_from_slice(&short((entry.key_bytes() - prefix) | flag).to_le_bytes());
                if prefix <= entry.head.len() {
                    out.extend_from_slice(&entry.head[prefix..]);
                    out.extend_from_slice(entry.tail);
                } else {
                    out.extend_from_slice(&entry.tail[prefix - entry.head.len()..]);
                }
                out.extend_from_slice(entry.value.bytes);
            }
        });
        Leaf::over(page)
    }

    /// Takes a page from disk; says what is wrong with its structure otherwise.
    pub fn from_page(page: Page) -> Result<Leaf, &'static str> {
        let payload = page.payload();
        if payload.len() < FIXED_BYTES {
            return Err("leaf without a header");
        }
        let count = short_at(payload, 0);
        let table = FIXED_BYTES + short_at(payload, 2);
        let mut least = table + 2 * count;
        if least > payload.len() {
            return Err("leaf with more entries than bytes");
        }
        for index in 0..count {
            let start = short_at(payload, table + 2 * index);
            if start < least || start + 2 > payload.len() {
                return Err("leaf entry outside its leaf");
            }
            least = start + 2 + (short_at(payload, start) & !BIG_BIT);
        }
        if least > payload.len() { Err("leaf entry outside its leaf") } else { Ok(Leaf::over(page)) }
    }

    /// Over a page whose structure is right.
    fn over(page: Page) -> Leaf {
        let payload = page.payload();
        let (count, prefix_bytes) = (short_at(payload, 0), short_at(payload, 2));
        let heads = Heads::of((0..count).map(|index| {
            let start = short_at(payload, FIXED_BYTES + prefix_bytes + 2 * index);
            &payload[start + 2..start + 2 + (short_at(payload, start) & !BIG_BIT)]
        }));
        Leaf { page, heads, prefix_bytes }
    }

    /// Bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.page.memory_bytes() + self.heads.heap_bytes()
    }

    /// The page image.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// What every key starts with.
    pub fn prefix(&self) -> &[u8] {
        &self.page.payload()[FIXED_BYTES..FIXED_BYTES + self.prefix_bytes]
    }

    /// The rest of the key of entry `index`.
    pub fn suffix(&self, index: usize) -> &[u8] {
        self.suffix_and_value(index).0
    }

    /// The value of entry `index`.
    pub fn value(&self, index: usize) -> StoredValue<'_> {
        self.suffix_and_value(index).1
    }

    /// The rest of the key of entry `index`, and its value.
    pub fn suffix_and_value(&self, index: usize) -> (&[u8], StoredValue<'_>) {
        let payload = self.page.payload();
        let at = FIXED_BYTES + self.prefix_bytes + 2 * index;
        let start = short_at(payload, at);
        let end = if index + 1 < self.len() { short_at(payload, at + 2) } else { payload.len() };
        let entry = &payload[start..end];
        let word = short_at(entry, 0);
        let (suffix, bytes) = entry[2..].split_at(word & !BIG_BIT);
        (suffix, StoredValue { big: word & BIG_BIT != 0, bytes })
    }

    /// Entry `index`, to be built into another leaf.
    pub fn entry(&self, index: usize) -> Entry<'_> {
        let (tail, value) = self.suffix_and_value(index);
        Entry { head: self.prefix(), tail, value }
    }

    /// Writes the whole key of entry `index` into `key`.
    pub fn key_into(&self, index: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.suffix(index));
    }

    /// Where `key` is (`Ok`), or where it would be (`Err`).
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let shared = key.len().min(prefix.len());
        match key[..shared].cmp(&prefix[..shared]) {
            std::cmp::Ordering::Less => return Err(0),
            std::cmp::Ordering::Greater => return Err(self.len()),
            std::cmp::Ordering::Equal if key.len() < prefix.len() => return Err(0),
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[prefix.len()..];
        let Range { start: mut low, end: mut high } = self.heads.candidates(rest);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.suffix(middle).cmp(rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The first entry at or after `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(index) | Err(index) => index,
        }
    }
}

fn short_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn common_prefix(entries: &[Entry<'_>]) -> usize {
    match entries {
        [] => 0,
        [only] => only.key_bytes(),
        [first, .., last] => first.key_iter().zip(last.key_iter()).take_while(|(a, b)| a == b).count(),
    }
}
