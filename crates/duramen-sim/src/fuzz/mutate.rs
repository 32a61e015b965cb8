//! Inputs made from a corpus: a few edits of one of its files, or two of them joined.

use duramen_disk::memory::Random;

/// Boundary numbers for arithmetic.
const AWKWARD: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// An input of at most so many bytes.
pub(super) fn mutated(corpus: &[Vec<u8>], bytes_max: usize, random: &mut Random) -> Vec<u8> {
    let mut input = if corpus.is_empty() { Vec::new() } else { random.pick(corpus).clone() };
    for _ in 0..random.between(1, 6) {
        edit(&mut input, corpus, random);
    }
    input.truncate(bytes_max);
    input
}

fn edit(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let rest = input.len() - at;
    match random.below(7) {
        0 if rest > 0 => input[at] ^= 1 << random.below(8),
        1 if rest > 0 => input[at] = low_byte(random.bits()),
        2 | 3 => {
            let width = (*random.pick(&[1, 2, 4, 8])).min(rest);
            let number = random.pick(&AWKWARD).to_le_bytes();
            input[at..at + width].copy_from_slice(&number[..width]);
        }
        4 => {
            let added: Vec<u8> = (0..random.between(1, 16)).map(|_| low_byte(random.bits())).collect();
            input.splice(at..at, added);
        }
        5 => drop(input.drain(at..at + random.below(rest + 1).min(64))),
        _ if !corpus.is_empty() => {
            let other = random.pick(corpus);
            let from = random.below(other.len() + 1);
            let piece = &other[from..(from + random.below(256)).min(other.len())];
            input.splice(at..at, piece.iter().copied());
        }
        _ => input.push(low_byte(random.bits())),
    }
}

fn low_byte(bits: u64) -> u8 {
    bits.to_le_bytes()[0]
}
