//! The leaves that the newest checkpoint of a database reaches, read from the bytes of its data file.
//!
//! A second reader of the format, by docs/format.md alone: it shares no code with the engine. It reads sound
//! files only. From its list the sweep knows which rows a repair must find, whatever else is corrupt.

use std::borrow::Cow;
use std::collections::BTreeMap;

use duramen::StoreKind;
use lz4_flex::block::decompress;

/// A page's header.
const HEADER_BYTES: usize = 48;

/// Where the two superblocks lie.
const SUPERBLOCKS: [usize; 2] = [0, 16384];

/// The flag of a page pointer to an inner node.
const INNER_FLAG: u32 = 1;

/// The flag of a page pointer to a page whose payload is an LZ4 block.
const LZ4_FLAG: u32 = 4;

/// The flag of an entry whose value is stored elsewhere.
const BIG_BIT: u16 = 0x8000;

/// A leaf with rows of a program.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Where its page lies in the data file.
    pub offset: usize,
    /// The page, as it is stored.
    pub page: Vec<u8>,
    pub store: StoreKind,
    pub name: String,
    /// The keys of its rows whose values are in it.
    pub keys: Vec<Vec<u8>>,
}

impl Leaf {
    /// Whether its page has a codec.
    pub(super) fn is_compressed(&self) -> bool {
        self.page[5] != 0
    }
}

/// The leaves with documents, key-values and bytes.
pub(crate) fn leaves(data: &[u8]) -> Vec<Leaf> {
    let generation = |at: &usize| u64_at(data, at + 68);
    let newest = SUPERBLOCKS.into_iter().max_by_key(generation).expect("there are two");
    let file = File { data, block_bytes: u32_at(data, newest + 259) as usize };
    let mut roots = BTreeMap::new();
    if data[newest + 132] == 1 {
        for leaf in file.leaves_below(&data[newest + 133..]) {
            for (key, value) in leaf.entries() {
                let id = u64::from_be_bytes(key.as_slice().try_into().expect("the key is an id"));
                roots.insert(id, value.to_vec());
            }
        }
    }
    let mut names = BTreeMap::new();
    for leaf in file.leaves_of(&roots[&0]) {
        for (key, value) in leaf.entries() {
            names.insert(u64_at(value, 2), String::from_utf8(key).expect("names are text"));
        }
    }
    let mut found = Vec::new();
    for (id, root) in roots.iter().filter(|(id, _)| **id != 0) {
        let Some((store, name)) = names.get(id).and_then(|name| store_of(name)) else { continue };
        for leaf in file.leaves_of(root) {
            let small = leaf.entries_with_flags().filter(|(_, _, is_big)| !is_big);
            let keys = small.map(|(key, ..)| key).collect();
            found.push(Leaf {
                offset: leaf.offset,
                page: leaf.stored.to_vec(),
                store,
                name: name.clone(),
                keys,
            });
        }
    }
    found
}

fn store_of(tree: &str) -> Option<(StoreKind, String)> {
    let stripped = |prefix| tree.strip_prefix(prefix).map(str::to_owned);
    stripped("duramen/rows/")
        .map(|name| (StoreKind::Collection, name))
        .or_else(|| stripped("duramen/kv/").map(|name| (StoreKind::KeyValues, name)))
        .or_else(|| (!tree.starts_with("duramen/")).then(|| (StoreKind::Bytes, tree.to_owned())))
}

struct File<'d> {
    data: &'d [u8],
    block_bytes: usize,
}

struct LeafPage<'d> {
    offset: usize,
    stored: &'d [u8],
    /// The bytes after the header, decompressed.
    payload: Cow<'d, [u8]>,
}

impl<'d> File<'d> {
    /// The leaves of a tree, from its row in the tree of roots.
    fn leaves_of(&self, row: &[u8]) -> Vec<LeafPage<'d>> {
        let flags = row[1];
        let mut at = 10;
        if flags & 1 != 0 {
            at += 4;
            at += 4 + u32_at(row, at) as usize;
            at += 4 + u32_at(row, at) as usize;
        }
        if flags & 2 == 0 { Vec::new() } else { self.leaves_below(&row[at..]) }
    }

    /// The leaves below a page pointer.
    fn leaves_below(&self, pointer: &[u8]) -> Vec<LeafPage<'d>> {
        let offset = usize::try_from(u64_at(pointer, 0)).expect("a block of the file") * self.block_bytes;
        let flags = u32_at(pointer, 16);
        let bytes = match flags & LZ4_FLAG {
            0 => u32_at(pointer, 12) as usize,
            _ => HEADER_BYTES + u32_at(self.data, offset + 36) as usize,
        };
        let stored = &self.data[offset..offset + bytes];
        let mut payload = Cow::Borrowed(&stored[HEADER_BYTES..]);
        if flags & LZ4_FLAG != 0 {
            let payload_bytes = u32_at(stored, 32) as usize;
            payload = Cow::Owned(decompress(&payload, payload_bytes).expect("an LZ4 block"));
        }
        if flags & INNER_FLAG == 0 {
            return vec![LeafPage { offset, stored, payload }];
        }
        let mut at = 8 + usize::from(u16_at(&payload, 4));
        let mut leaves = Vec::new();
        for _ in 0..u16_at(&payload, 0) {
            at += 2 + usize::from(u16_at(&payload, at));
            leaves.extend(self.leaves_below(&payload[at..at + 36]));
            at += 36 + 8;
            let reduction = u16_at(&payload, at);
            at += 2 + if reduction == u16::MAX { 0 } else { usize::from(reduction) };
        }
        leaves
    }
}

impl LeafPage<'_> {
    fn entries(&self) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
        self.entries_with_flags().map(|(key, value, _)| (key, value))
    }

    /// Key, value, and whether the value is only a reference.
    fn entries_with_flags(&self) -> impl Iterator<Item = (Vec<u8>, &[u8], bool)> {
        let payload = &*self.payload;
        let (count, prefix) = (usize::from(u16_at(payload, 0)), usize::from(u16_at(payload, 2)));
        let start = move |index: usize| match index < count {
            true => usize::from(u16_at(payload, 8 + prefix + 2 * index)),
            false => payload.len(),
        };
        (0..count).map(move |index| {
            let entry = &payload[start(index)..start(index + 1)];
            let head = u16_at(entry, 0);
            let rest = usize::from(head & !BIG_BIT);
            let key = [&payload[8..8 + prefix], &entry[2..2 + rest]].concat();
            (key, &entry[2 + rest..], head & BIG_BIT != 0)
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
