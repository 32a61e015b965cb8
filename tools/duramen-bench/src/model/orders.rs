//! Orders of keys: random ones, and those in which the flights, as they come, are put by one of their fields.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::engine::Result;

/// Keys of flights: a name, and the columns of the key.
pub(crate) const FLIGHTS: [(&str, &[usize]); 6] = [
    ("time", &[18]),
    ("carrier and time", &[9, 18]),
    ("origin and destination", &[12, 13]),
    ("plane", &[11]),
    ("delay", &[5]),
    ("distance and carrier", &[15, 9]),
];

/// For each of so many rows the rank of its random key.
pub(crate) fn random(rows: u64) -> Vec<u32> {
    ranks(&(0..rows).map(mixed).collect::<Vec<u64>>())
}

/// For each flight of the file, in its order, the rank of its key of these columns.
///
/// # Errors
/// A file that is missing, or is no gzip of text.
pub(crate) fn flights(file: &Path, columns: &[usize]) -> Result<Vec<u32>> {
    let mut text = String::new();
    GzDecoder::new(File::open(file)?).read_to_string(&mut text)?;
    let key = |line: &str| -> Vec<String> {
        let fields: Vec<&str> = line.split(',').collect();
        columns.iter().map(|column| sortable(fields.get(*column).copied().unwrap_or_default())).collect()
    };
    Ok(ranks(&text.lines().skip(1).map(key).collect::<Vec<_>>()))
}

/// A text that is in the order of the numbers, if it is one.
fn sortable(text: &str) -> String {
    text.parse::<i64>()
        .map_or_else(|_| text.to_owned(), |number| format!("{:020}", i128::from(number) + (1 << 63)))
}

/// The rank of each key; of equal ones the first comes first.
fn ranks<K: Ord>(keys: &[K]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|one, other| keys[*one].cmp(&keys[*other]));
    let mut ranks = vec![0; keys.len()];
    for (rank, at) in order.into_iter().enumerate() {
        ranks[at] = u32::try_from(rank).expect("fewer rows than 2^32");
    }
    ranks
}

/// A number that looks random.
pub(crate) fn mixed(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
