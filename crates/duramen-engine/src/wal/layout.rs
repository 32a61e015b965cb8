//! Fixed-offset integers inside headers, little-endian.
//!
//! Pure. The caller of every reader here has checked the slice's length against the header's size.

use std::fmt;

/// The smallest block of a log.
pub(super) const BLOCK_BYTES_MIN: usize = 512;

/// The largest block of a log.
pub(super) const BLOCK_BYTES_MAX: usize = 65536;

/// What is wrong with bytes that should be a header or a frame. The caller adds file and offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw(pub(super) String);

impl Flaw {
    pub(super) fn new(what: impl Into<String>) -> Flaw {
        Flaw(what.into())
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Copies `value` to `bytes[offset..]`.
pub(super) fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

/// The `N` bytes at `offset`; zeroes if the slice is too short, which callers rule out.
fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..offset + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(take(bytes, offset))
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(take(bytes, offset))
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(take(bytes, offset))
}

pub(super) fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(take(bytes, offset))
}

/// Refuses bytes that must be zero in this version: room kept for encryption and compression.
pub(super) fn expect_zero(bytes: &[u8], from: usize, to: usize, what: &str) -> Result<(), Flaw> {
    match bytes.get(from..to) {
        Some(part) if part.iter().all(|&byte| byte == 0) => Ok(()),
        _ => Err(Flaw(format!("{what} is set, which this release cannot read"))),
    }
}

/// Converts a length read from disk that the caller has bounded.
pub(super) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("targets are 64-bit")
}
