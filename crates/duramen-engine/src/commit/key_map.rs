//! What a transaction read or wrote, by key, in order of key.
//!
//! The keys lie one after the other in one buffer, so a key costs no allocation. Most transactions name their
//! keys in order: such a key is compared with the last one only.

use std::cmp::Ordering;

use crate::limits::TRANSACTION_BYTES_MAX;

/// The most entries of a chunk. An insertion moves half of one; each full chunk moves half of the list of
/// chunks once.
const CHUNK_MAX: usize = 128;

const _: () = assert!(TRANSACTION_BYTES_MAX < u32::MAX as usize, "a place in the buffer has 32 bits");

/// A buffer of this size and more grows by an eighth instead of doubling: the memory counted for a
/// transaction does not include what the buffer does not use.
const DOUBLED_BYTES_MAX: usize = 1024 * 1024;

/// The keys of a commit are kept for a while, and more unused memory than this is given back first.
const KEPT_SLACK_BYTES: usize = 256;

/// A map in order of key. Entries are added and replaced, never removed one by one.
#[derive(Debug)]
pub(super) struct KeyMap<V> {
    bytes: Vec<u8>,
    /// None is empty; each is sorted, and its keys are smaller than those of the next.
    chunks: Vec<Vec<Held<V>>>,
    len: usize,
}

#[derive(Debug)]
struct Held<V> {
    key: Place,
    value: V,
}

/// Where a key lies in the buffer.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u32,
    length: u16,
}

impl Place {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..usize::from(self.length)]
    }
}

impl<V> Default for KeyMap<V> {
    fn default() -> Self {
        KeyMap { bytes: Vec::new(), chunks: Vec::new(), len: 0 }
    }
}

impl<V> KeyMap<V> {
    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        let (chunk, index) = self.find(key).ok()?;
        Some(&self.chunks[chunk][index].value)
    }

    /// Sets the value of a key. Returns the value before.
    pub(super) fn set(&mut self, key: &[u8], value: V) -> Option<V> {
        let (chunk, index) = match self.find(key) {
            Ok((chunk, index)) => {
                return Some(std::mem::replace(&mut self.chunks[chunk][index].value, value));
            }
            Err(place) => place,
        };
        let at = u32::try_from(self.bytes.len()).expect("the size of a transaction is checked first");
        let length = u16::try_from(key.len()).expect("keys are at most KEY_BYTES_MAX");
        if self.bytes.capacity() >= DOUBLED_BYTES_MAX && self.bytes.capacity() - self.bytes.len() < key.len()
        {
            self.bytes.reserve_exact(self.bytes.capacity() / 8);
        }
        self.bytes.extend_from_slice(key);
        self.insert(chunk, index, Held { key: Place { at, length }, value });
        self.len += 1;
        None
    }

    fn insert(&mut self, chunk: usize, index: usize, held: Held<V>) {
        match self.chunks.get_mut(chunk) {
            None => return self.chunks.push(vec![held]),
            Some(free) if free.len() < CHUNK_MAX => return free.insert(index, held),
            Some(_) => {}
        }
        // Keys in order fill their chunks. Elsewhere a chunk of one key could come before many more of them.
        let is_end = index == CHUNK_MAX && chunk + 1 == self.chunks.len();
        let full = &mut self.chunks[chunk];
        let kept = if is_end { CHUNK_MAX } else { CHUNK_MAX / 2 };
        let mut upper = Vec::with_capacity(CHUNK_MAX);
        upper.extend(full.drain(kept..));
        match index.checked_sub(kept) {
            Some(index) => upper.insert(index, held),
            None => full.insert(index, held),
        }
        self.chunks.insert(chunk + 1, upper);
    }

    /// Where a key is, or where it is to be inserted: the chunk, and the index in it.
    fn find(&self, key: &[u8]) -> Result<(usize, usize), (usize, usize)> {
        let Some(last) = self.chunks.last() else { return Err((0, 0)) };
        let at_end = (self.chunks.len() - 1, last.len());
        match last.last().map(|held| held.key.of(&self.bytes).cmp(key)) {
            None | Some(Ordering::Less) => return Err(at_end),
            Some(Ordering::Equal) => return Ok((at_end.0, at_end.1 - 1)),
            Some(Ordering::Greater) => {}
        }
        let is_up_to_key = |chunk: &Vec<Held<V>>| chunk[0].key.of(&self.bytes) <= key;
        let chunk = self.chunks.partition_point(is_up_to_key).saturating_sub(1);
        let found = self.chunks[chunk].binary_search_by(|held| held.key.of(&self.bytes).cmp(key));
        found.map(|index| (chunk, index)).map_err(|index| (chunk, index))
    }

    /// The first key that is this one or larger.
    pub(super) fn first_from(&self, key: &[u8]) -> Option<&[u8]> {
        let (chunk, index) = self.find(key).unwrap_or_else(|place| place);
        let held = match self.chunks.get(chunk)?.get(index) {
            Some(held) => held,
            None => self.chunks.get(chunk + 1)?.first()?,
        };
        Some(held.key.of(&self.bytes))
    }

    /// The entries, in order of key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.chunks.iter().flatten().map(|held| (held.key.of(&self.bytes), &held.value))
    }

    /// The values, in order of key.
    pub(super) fn into_values(self) -> impl Iterator<Item = V> {
        self.chunks.into_iter().flatten().map(|held| held.value)
    }

    /// The keys without their values.
    pub(super) fn into_keys(self) -> SortedKeys {
        let mut places = Vec::with_capacity(self.len);
        self.chunks.into_iter().for_each(|chunk| places.extend(chunk.iter().map(|held| held.key)));
        let mut bytes = self.bytes;
        bytes.shrink_to(bytes.len() + KEPT_SLACK_BYTES);
        SortedKeys { bytes, places }
    }
}

/// Keys in order, each once.
#[derive(Debug)]
pub(super) struct SortedKeys {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl SortedKeys {
    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<Place>()
    }

    /// The key among them that equals this one.
    pub(super) fn find(&self, key: &[u8]) -> Option<&[u8]> {
        let place = self.places.binary_search_by(|place| place.of(&self.bytes).cmp(key)).ok()?;
        Some(self.places[place].of(&self.bytes))
    }

    /// The first key that is this one or larger.
    pub(super) fn first_from(&self, key: &[u8]) -> Option<&[u8]> {
        let index = self.places.partition_point(|place| place.of(&self.bytes) < key);
        self.places.get(index).map(|place| place.of(&self.bytes))
    }

    /// The keys, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| place.of(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    //! Beside the map of the standard library: in order, against it and at random.
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::iter::once;

    use super::*;

    fn check(map: KeyMap<usize>, model: &BTreeMap<Vec<u8>, usize>) {
        let entries = model.iter().map(|(key, value)| (key.as_slice(), value));
        assert!(map.iter().eq(entries), "the entries, in order");
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        let sizes: Vec<usize> = map.chunks.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| (1..=CHUNK_MAX).contains(size)), "{sizes:?}");
        assert!(
            sizes.len() <= 2 * model.len() / CHUNK_MAX + 2,
            "{} keys in chunks of {sizes:?}",
            model.len()
        );
        for key in model.keys().flat_map(|key| [key.clone(), [key, &[0][..]].concat()]).chain(once(vec![])) {
            let next = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
            assert_eq!((map.get(&key), map.first_from(&key)), (model.get(&key), next), "{key:?}");
        }
        let keys = map.into_keys();
        assert!(keys.iter().eq(model.keys().map(Vec::as_slice)) && keys.len() == model.len());
        for key in model.keys().flat_map(|key| [key.clone(), [key, &[0][..]].concat()]) {
            let next = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
            assert_eq!((keys.find(&key).is_some(), keys.first_from(&key)), (model.contains_key(&key), next));
        }
    }

    #[test]
    fn it_is_the_map_of_the_standard_library() {
        let chunk = u32::try_from(CHUNK_MAX).unwrap();
        let count = 5 * chunk;
        let scattered = |at: u32| at.wrapping_mul(2_654_435_761) % count;
        let orders: [&dyn Fn(u32) -> u32; 7] = [
            &|at| at,
            &|at| count - at,
            &scattered,
            &|at| scattered(at) / 3,
            &|at| at / 2 + at % 2 * count,
            &|at| if at < chunk { at } else { count + chunk - at },
            &|at| if at < 2 * chunk { 1_000 * at } else { 1_000 * chunk - at },
        ];
        for (order, is_short) in orders.iter().flat_map(|order| [(order, false), (order, true)]) {
            for count in [0, 1, chunk, count] {
                let (mut map, mut model) = (KeyMap::default(), BTreeMap::new());
                for (value, at) in (0..count).enumerate() {
                    let key = order(at).to_be_bytes();
                    // Keys of one length are in the order of their numbers.
                    let zeroes = key.iter().take_while(|byte| **byte == 0).count();
                    let key = key[if is_short { zeroes } else { 0 }..].to_vec();
                    assert_eq!(map.set(&key, value), model.insert(key, value));
                }
                check(map, &model);
            }
        }
    }

    #[test]
    fn keys_in_order_fill_their_chunks() {
        let mut map = KeyMap::default();
        for at in 0..10 * CHUNK_MAX as u64 {
            map.set(&at.to_be_bytes(), ());
        }
        assert_eq!(map.chunks.len(), 10);
    }
}
