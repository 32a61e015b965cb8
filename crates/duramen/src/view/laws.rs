//! The laws of every reduction in code, tested on samples.
//!
//! Owns the laws. Any grouping gives the same bits; a stored state is read back unchanged; no state is longer
//! than its limit; and order makes no difference if the code claims that. Pure: the pseudo-random choices
//! follow from a seed, which the failure report names.

use crate::view::monoid::{Monoid, state, stored};

/// With at most this many samples, all triples are tested.
const ALL_TRIPLES_SAMPLES_MAX: usize = 16;

/// Rounds with random rows, grouped at random.
const ROUNDS: u64 = 64;

const ROWS_MAX: u64 = 48;

/// Tests the laws of a reduction in code on samples. For tests.
///
/// `join` must be associative bit for bit, for any rows and page splits, and commutative if it claims so.
/// States must survive storing unchanged, within their maximum length.
///
/// # Panics
/// If a law is broken, with the law and the seed of the rows that broke it.
pub fn assert_monoid<M: Monoid>(samples: impl IntoIterator<Item = M::Value>) {
    let samples: Vec<M::Value> = samples.into_iter().collect();
    assert!(!samples.is_empty(), "{}: no samples to try it with", M::NAME);
    if let Some(broken) = broken_law::<M>(samples) {
        panic!("{}: {broken}", M::NAME);
    }
}

/// The law that is broken on these samples, as text.
pub(crate) fn broken_law<M: Monoid>(samples: Vec<M::Value>) -> Option<String> {
    if samples.is_empty() {
        return None;
    }
    broken::<M>(samples).err()
}

fn broken<M: Monoid>(samples: Vec<M::Value>) -> Result<(), String> {
    let mut ones = Vec::with_capacity(samples.len());
    for sample in samples {
        let one = stored::<M>(&M::one(through(&sample)?))?;
        comes_back::<M>(&one)?;
        ones.push(one);
    }
    // A range without rows needs an answer too.
    drop(M::answer(None));
    let some = &ones[..ones.len().min(ALL_TRIPLES_SAMPLES_MAX)];
    for a in some {
        for b in some {
            pairs::<M>(a, b)?;
            for c in some {
                let left = join::<M>(&join::<M>(a, b)?, c)?;
                let right = join::<M>(a, &join::<M>(b, c)?)?;
                same(&left, &right, || "three samples".to_owned())?;
            }
        }
    }
    (1..=ROUNDS).try_for_each(|seed| random_rows::<M>(&ones, seed))
}

/// A sample as a view passes it: decoded from a document.
fn through<V: serde::Serialize + serde::de::DeserializeOwned>(sample: &V) -> Result<V, String> {
    let bytes =
        rmp_serde::to_vec_named(sample).map_err(|error| format!("a sample cannot be stored: {error}"))?;
    rmp_serde::from_slice(&bytes).map_err(|error| format!("a sample cannot be read again: {error}"))
}

fn comes_back<M: Monoid>(bytes: &[u8]) -> Result<(), String> {
    let again = state::<M>(bytes).ok_or("a state that was stored cannot be read")?;
    if stored::<M>(&again)? == bytes {
        return Ok(());
    }
    Err("a state that was stored and read is another one when it is stored again".to_owned())
}

/// Joins stored states, as the nodes of a tree do.
fn join<M: Monoid>(left: &[u8], right: &[u8]) -> Result<Vec<u8>, String> {
    let read = |bytes: &[u8]| state::<M>(bytes).ok_or("a state that was stored cannot be read");
    let joined = stored::<M>(&M::join(read(left)?, read(right)?))?;
    comes_back::<M>(&joined)?;
    Ok(joined)
}

fn pairs<M: Monoid>(a: &[u8], b: &[u8]) -> Result<(), String> {
    if M::IS_COMMUTATIVE && join::<M>(a, b)? != join::<M>(b, a)? {
        return Err("`join` of two samples depends on their order, although IS_COMMUTATIVE is set".to_owned());
    }
    Ok(())
}

fn same(left: &[u8], right: &[u8], of: impl FnOnce() -> String) -> Result<(), String> {
    if left == right {
        return Ok(());
    }
    Err(format!(
        "`join` is not associative: {} come to other bytes when they are grouped otherwise ({left:02x?}, {right:02x?}). A \
         sum of floats does so: store an integer of a smaller unit",
        of()
    ))
}

/// Some rows, joined one by one and in groups of groups.
fn random_rows<M: Monoid>(ones: &[Vec<u8>], seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let mut rows: Vec<&[u8]> =
        (0..random.below(ROWS_MAX) + 1).map(|_| &ones[random.index(ones.len())][..]).collect();
    let of = || format!("the rows of seed {seed}");
    let one_by_one = fold::<M>(&rows)?;
    same(&one_by_one, &grouped::<M>(&rows, &mut random)?, of)?;
    // A state kept in memory from row to row, as in a leaf.
    let mut running = state::<M>(rows[0]).ok_or("a state that was stored cannot be read")?;
    for row in &rows[1..] {
        running = M::join(running, state::<M>(row).ok_or("a state that was stored cannot be read")?);
    }
    same(&one_by_one, &stored::<M>(&running)?, of)?;
    if M::IS_COMMUTATIVE {
        (1..rows.len()).rev().for_each(|last| rows.swap(last, random.index(last + 1)));
        if fold::<M>(&rows)? != one_by_one {
            return Err(format!("`join` depends on the order of {}, although IS_COMMUTATIVE is set", of()));
        }
    }
    Ok(())
}

fn fold<M: Monoid>(rows: &[&[u8]]) -> Result<Vec<u8>, String> {
    rows[1..].iter().try_fold(rows[0].to_vec(), |left, right| join::<M>(&left, right))
}

fn grouped<M: Monoid>(rows: &[&[u8]], random: &mut Random) -> Result<Vec<u8>, String> {
    if let [only] = rows {
        return Ok(only.to_vec());
    }
    let (left, right) = rows.split_at(1 + random.index(rows.len() - 1));
    join::<M>(&grouped::<M>(left, random)?, &grouped::<M>(right, random)?)
}

/// xorshift: the same numbers from the same nonzero seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("less than a usize")
    }
}
