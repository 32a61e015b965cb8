//! A page pointer: block, length and checksum of a page. A pure codec.

/// Encoded length of a [`PagePointer`].
pub const POINTER_BYTES: usize = 36;

const BLOCK_COUNT_AT: usize = 8;
const RAW_BYTES_AT: usize = 12;
const FLAGS_AT: usize = 16;
const TAG_AT: usize = 20;

const _: () = assert!(BLOCK_COUNT_AT == size_of::<u64>(), "the count follows the block");
const _: () = assert!(
    RAW_BYTES_AT == BLOCK_COUNT_AT + 4 && FLAGS_AT == RAW_BYTES_AT + 4 && TAG_AT == FLAGS_AT + 4,
    "the three words follow each other"
);
const _: () = assert!(TAG_AT + 16 == POINTER_BYTES, "the checksum ends a pointer");

/// Set on a pointer to an inner node; clear on one to a leaf.
pub const INNER_FLAG: u32 = 1;

/// Set on a pointer to a page whose payload is an LZ4 block.
pub const LZ4_FLAG: u32 = 4;

/// A page pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PagePointer {
    /// First block, counted from the start of the file.
    pub block: u64,
    /// Blocks taken.
    pub block_count: u32,
    /// Bytes of the page in memory. The rest of the last block is padding; a compressed page takes fewer
    /// blocks.
    pub raw_bytes: u32,
    /// [`INNER_FLAG`] and [`LZ4_FLAG`]. The bits for key id and "base plus delta extent" are zero in this
    /// format.
    pub flags: u32,
    /// Checksum of the page as it is stored, seeded with database, address and generation.
    pub tag: [u8; 16],
}

impl PagePointer {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block.to_le_bytes());
        out.extend_from_slice(&self.block_count.to_le_bytes());
        out.extend_from_slice(&self.raw_bytes.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.tag);
    }

    /// Reads the encoded form; `None` if there are too few bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<PagePointer> {
        let bytes: &[u8; POINTER_BYTES] = bytes.get(..POINTER_BYTES)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Some(PagePointer {
            block: u64::from_le_bytes(bytes[..BLOCK_COUNT_AT].try_into().expect("eight bytes")),
            block_count: word(BLOCK_COUNT_AT),
            raw_bytes: word(RAW_BYTES_AT),
            flags: word(FLAGS_AT),
            tag: bytes[TAG_AT..].try_into().expect("sixteen bytes"),
        })
    }

    /// Whether its page is compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.flags & LZ4_FLAG != 0
    }

    /// Whether an inner node lies there.
    #[must_use]
    pub fn is_inner(&self) -> bool {
        self.flags & INNER_FLAG != 0
    }

    /// The blocks it takes.
    #[must_use]
    pub fn extent(&self) -> (u64, u32) {
        (self.block, self.block_count)
    }
}
