//! An inner node: separators in one block, children in chunks of slots. Its page codec is pure.
//!
//! Payload: child count (u16), level (u8), flags (u8), prefix length (u16), two zero bytes, prefix, then for each child:
//! separator suffix length (u16; the first child has none), suffix, location (36 bytes), entries below (u64),
//! reduction length (u16, 0xFFFF for "not known"), reduction.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::heads::Heads;
use super::place::{Place, Reduction};
use super::slot::Slot;
use crate::data_file::{LOCATION_BYTES, Location, PAGE_HEADER_BYTES, Page, PageKind};
use crate::page_cache::Meter;

const FIXED_BYTES: usize = 8;
const UNKNOWN_REDUCTION: u16 = u16::MAX;

/// What a reduction takes where none is known yet, for an estimate: that of a sum.
const USUAL_REDUCTION_BYTES: usize = 16;

/// Slots per chunk: copying a node for one changed child copies one chunk and the pointers to the others.
pub const CHUNK_SLOTS: usize = 16;

/// Sorted separators: child `i` holds keys at or after separator `i - 1` and before separator `i`.
#[derive(Debug, Default)]
pub struct Separators {
    prefix: Box<[u8]>,
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
    heads: Heads,
}

impl Separators {
    /// Packs sorted keys.
    pub fn pack(keys: &[Vec<u8>]) -> Separators {
        let shared = match keys {
            [] => 0,
            [only] => only.len(),
            [first, .., last] => first.iter().zip(last).take_while(|(a, b)| a == b).count(),
        };
        let mut bytes = Vec::with_capacity(keys.iter().map(|k| k.len() - shared).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for key in keys {
            bytes.extend_from_slice(&key[shared..]);
            ends.push(u32::try_from(bytes.len()).expect("an inner node is below 64 KiB (limits.rs)"));
        }
        let prefix = keys.first().map_or(&[][..], |k| &k[..shared]);
        Separators::of(prefix, bytes, ends)
    }

    fn of(prefix: &[u8], bytes: Vec<u8>, ends: Vec<u32>) -> Separators {
        let starts = std::iter::once(&0).chain(&ends);
        let heads = Heads::of(starts.zip(&ends).map(|(from, to)| &bytes[*from as usize..*to as usize]));
        Separators { prefix: prefix.into(), bytes: bytes.into(), ends: ends.into(), heads }
    }

    /// Number of separators.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn suffix(&self, index: usize) -> &[u8] {
        let from = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[from..self.ends[index] as usize]
    }

    /// Separator `index`, whole.
    pub fn get(&self, index: usize) -> Vec<u8> {
        [&self.prefix, self.suffix(index)].concat()
    }

    /// The child that holds `key`: how many separators are at or before it.
    pub fn child_of(&self, key: &[u8]) -> usize {
        let shared = key.len().min(self.prefix.len());
        match key[..shared].cmp(&self.prefix[..shared]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.len(),
            std::cmp::Ordering::Equal if key.len() < self.prefix.len() => return 0,
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[self.prefix.len()..];
        let Range { start: mut low, end: mut high } = self.heads.candidates(rest);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.suffix(middle) <= rest { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn heap_bytes(&self) -> usize {
        self.prefix.len() + self.bytes.len() + 4 * self.ends.len() + self.heads.heap_bytes()
    }
}

/// An inner node in memory.
#[derive(Debug)]
pub struct Inner {
    /// One above the leaves is 1.
    pub level: u8,
    separators: Arc<Separators>,
    chunks: Box<[Arc<[Slot]>]>,
    child_count: usize,
    /// Reductions of whole chunks, once somebody asked for them.
    reductions: OnceLock<Box<[OnceLock<Reduction>]>>,
}

impl Inner {
    /// Builds a node from its separators and slots, one more slot than separators.
    pub fn build(level: u8, separators: Separators, slots: Vec<Slot>) -> Inner {
        assert_eq!(separators.len() + 1, slots.len(), "one more child than separators");
        let child_count = slots.len();
        let mut chunks = Vec::with_capacity(child_count.div_ceil(CHUNK_SLOTS));
        let mut slots = slots.into_iter().peekable();
        while slots.peek().is_some() {
            chunks.push(slots.by_ref().take(CHUNK_SLOTS).collect());
        }
        Inner {
            level,
            separators: Arc::new(separators),
            chunks: chunks.into(),
            child_count,
            reductions: OnceLock::new(),
        }
    }

    /// The same node with some children replaced, separators unchanged. `changed` is sorted by index.
    pub fn with_children(&self, changed: Vec<(usize, Slot)>) -> Inner {
        let mut chunks = self.chunks.clone();
        let mut changed = changed.into_iter().peekable();
        while let Some((index, _)) = changed.peek() {
            let chunk = index / CHUNK_SLOTS;
            let slots = Arc::make_mut(&mut chunks[chunk]);
            while let Some((index, slot)) = changed.next_if(|(i, _)| i / CHUNK_SLOTS == chunk) {
                slots[index % CHUNK_SLOTS] = slot;
            }
        }
        let separators = Arc::clone(&self.separators);
        Inner {
            level: self.level,
            separators,
            chunks,
            child_count: self.child_count,
            reductions: OnceLock::new(),
        }
    }

    /// Number of children.
    pub fn len(&self) -> usize {
        self.child_count
    }

    /// Child `index`.
    pub fn slot(&self, index: usize) -> &Slot {
        &self.chunks[index / CHUNK_SLOTS][index % CHUNK_SLOTS]
    }

    /// The children of chunk `chunk`, and the cell that keeps what they reduce to.
    pub fn chunk(&self, chunk: usize) -> (&[Slot], &OnceLock<Reduction>) {
        let cells = || self.chunks.iter().map(|_| OnceLock::new()).collect();
        (&self.chunks[chunk], &self.reductions.get_or_init(cells)[chunk])
    }

    /// All children in order.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The separators between the children.
    pub fn separators(&self) -> &Separators {
        &self.separators
    }

    /// Bytes in memory, about: those it shares with other versions counted, what its slots hold charged by itself.
    pub fn heap_bytes(&self) -> usize {
        let chunk = size_of::<Arc<[Slot]>>() + size_of::<OnceLock<Reduction>>();
        let chunks = self.chunks.len() * chunk + self.child_count * size_of::<Slot>();
        self.separators.heap_bytes() + chunks
    }

    /// Bytes its page will take, about: reductions may not be known yet.
    pub fn page_bytes_about(&self) -> usize {
        let reduction = self.slot(0).reduction_bytes().unwrap_or(USUAL_REDUCTION_BYTES);
        let separators = self.separators.prefix.len() + self.separators.bytes.len();
        PAGE_HEADER_BYTES + FIXED_BYTES + separators + self.child_count * (child_cost(None) + reduction)
    }

    /// The page image; every child must have a place.
    pub fn to_page(&self, generation: u64, places: &[Place]) -> Page {
        assert_eq!(places.len(), self.child_count, "every child has a place before its parent is written");
        let prefix = &self.separators.prefix;
        let payload = FIXED_BYTES
            + prefix.len()
            + self.separators.bytes.len()
            + places.iter().map(|p| child_cost(p.reduction.bytes())).sum::<usize>();
        let short =
            |n: usize| u16::try_from(n).expect("an inner node is below 64 KiB (limits.rs)").to_le_bytes();
        Page::build(PageKind::Inner, generation, payload, |out| {
            out.extend_from_slice(&short(self.child_count));
            out.extend_from_slice(&[self.level, 0]);
            out.extend_from_slice(&short(prefix.len()));
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(prefix);
            for (index, (slot, place)) in self.slots().zip(places).enumerate() {
                let suffix = if index == 0 { &[][..] } else { self.separators.suffix(index - 1) };
                out.extend_from_slice(&short(suffix.len()));
                out.extend_from_slice(suffix);
                place.location.encode(out);
                out.extend_from_slice(&slot.count.to_le_bytes());
                match place.reduction.bytes() {
                    Some(reduction) => {
                        out.extend_from_slice(&short(reduction.len()));
                        out.extend_from_slice(reduction);
                    }
                    None => out.extend_from_slice(&UNKNOWN_REDUCTION.to_le_bytes()),
                }
            }
        })
    }

    /// Reads a page image; says what is wrong with its structure otherwise.
    pub fn from_page(meter: &Arc<Meter>, page: &Page) -> Result<Inner, &'static str> {
        let mut rest = Bytes(page.payload());
        let count = rest.short()? as usize;
        let level = rest.take(1)?[0];
        if rest.take(1)? != [0] {
            return Err("inner node of a kind that this build does not know");
        }
        let prefix_bytes = rest.short()? as usize;
        rest.take(2)?;
        let prefix = rest.take(prefix_bytes)?;
        if count == 0 || level == 0 {
            return Err("inner node without children");
        }
        let mut separators = Vec::new();
        let mut ends = Vec::new();
        let mut slots = Vec::with_capacity(count.min(4096));
        for index in 0..count {
            let suffix_bytes = rest.short()? as usize;
            let suffix = rest.take(suffix_bytes)?;
            if index > 0 {
                separators.extend_from_slice(suffix);
                ends.push(u32::try_from(separators.len()).map_err(|_| "inner node too long")?);
            }
            slots.push(read_child(meter, &mut rest)?);
        }
        Ok(Inner::build(level, Separators::of(prefix, separators, ends), slots))
    }
}

/// Bytes a child takes in a page, without its separator.
pub fn child_cost(reduction: Option<&[u8]>) -> usize {
    2 + LOCATION_BYTES + 8 + 2 + reduction.map_or(0, <[u8]>::len)
}

fn read_child(meter: &Arc<Meter>, rest: &mut Bytes<'_>) -> Result<Slot, &'static str> {
    let location = Location::decode(rest.take(LOCATION_BYTES)?).ok_or("inner node cut short")?;
    let count = u64::from_le_bytes(rest.take(8)?.try_into().map_err(|_| "inner node cut short")?);
    let reduction_bytes = rest.short()?;
    let reduction = match reduction_bytes {
        UNKNOWN_REDUCTION => Reduction::UNKNOWN,
        bytes => Reduction::of(rest.take(bytes as usize)?),
    };
    Ok(Slot::on_disk(meter, count, Place { location, reduction }))
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("inner node cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}
