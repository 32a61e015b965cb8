//! The contents of each commit of each writer, drawn from the seed of a life, and the result of all commits.
//!
//! Owns no database. A commit depends only on its writer, its number and the writer's earlier commits. So the
//! number of commits of each writer determines every byte that must exist, without a record of it. Writers
//! share trees, and use keys of their own. Some facts are known only to the commit itself, and stored in its
//! [row](Row): its time, the release that wrote it, its ticket.

use std::collections::BTreeMap;

use duramen::Durability;
use duramen_disk::memory::{Random, mixed};

use crate::releases::{Order, Release};
use crate::row::Row;

/// The numbers of documents of a writer, and of keys of other kinds.
const ORDER_COUNT: usize = 16;
const KEY_COUNT: usize = 6;

/// The keys of a writer's parcels: from this one on, so that no order has the same.
const PARCELS_FROM: u64 = 100;
const PARCEL_COUNT: usize = 24;

/// The key of a blob that is larger than the space that a checkpoint keeps free.
const HUGE: u64 = 9;
const HUGE_BYTES: usize = 30 * 1024 * 1024;

const HOUR_MS: u64 = 3_600_000;

/// The parameters of a life, stored when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) seed: u64,
    /// Whether sizes reach the shipped limits.
    pub(crate) is_heavy: bool,
    /// Whether operations that sync on their own are left out: for levels that promise nothing about a power
    /// cut.
    pub(crate) is_plain: bool,
}

/// An operation on a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Put(i64),
    Increment(i64),
    Delete,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    Put(Order),
    Delete(u64),
    /// A parcel of this order, which exists when the commit ends; `None` deletes the parcel.
    Parcel(u64, Option<u64>),
    Log(u64, Option<i64>),
    /// This many documents of the writer's own collection, from this key on.
    Fill(u64, u64),
    /// Drops that collection.
    Drop,
    Count(u64, Count),
    /// A value with a lifetime in milliseconds; `None` for ever.
    Session(u64, Option<u64>),
    /// Sets the lifetime to this many milliseconds.
    Touch(u64, u64),
    EndSession(u64),
    Scratch(u64, i64),
    /// Clears the writer's own namespace.
    Clear,
    Bytes(u64, Option<usize>),
    /// A blob: its length, and the size of its pieces.
    Blob(u64, usize, usize),
    DeleteBlob(u64),
    RenameBlob(u64, u64),
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    pub(crate) level: Durability,
    /// Whether it takes the next of the tickets that all writers share.
    pub(crate) takes_ticket: bool,
    /// Whether it is done, rolled back, and done again.
    pub(crate) is_given_up_first: bool,
    /// Bytes of a blob that are uploaded before and never attached.
    pub(crate) abandoned_bytes: usize,
}

/// The result of a writer's commits.
#[derive(Debug, Clone)]
pub(crate) struct State {
    terms: Terms,
    writer: u32,
    /// The number of commits.
    pub(crate) count: u64,
    /// The time of the last commit.
    now_ms: u64,
    /// Documents, and the release that stored each.
    pub(crate) orders: BTreeMap<u64, (Order, Release)>,
    /// The order of each, and the commit that stored it.
    pub(crate) parcels: BTreeMap<u64, (u64, u64)>,
    pub(crate) log: BTreeMap<u64, i64>,
    pub(crate) temporary: Option<BTreeMap<u64, i64>>,
    pub(crate) counters: BTreeMap<u64, i64>,
    /// The commit that stored each, and its expiry.
    pub(crate) sessions: BTreeMap<u64, (u64, Option<u64>)>,
    pub(crate) scratch: BTreeMap<u64, i64>,
    /// The commit that stored each, and the number of bytes.
    pub(crate) bytes: BTreeMap<u64, (u64, usize)>,
    pub(crate) blobs: BTreeMap<u64, (u64, usize)>,
    /// The changes of orders and parcels of each commit in the feed: documents, and whether they were put or
    /// deleted. In key order.
    pub(crate) told: Vec<Vec<(u64, bool)>>,
}

impl Terms {
    pub(crate) fn encode(self) -> Vec<u8> {
        [&self.seed.to_le_bytes()[..], &[u8::from(self.is_heavy), u8::from(self.is_plain)]].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Terms> {
        let (seed, [is_heavy, is_plain]) = bytes.split_first_chunk::<8>()? else { return None };
        Some(Terms { seed: u64::from_le_bytes(*seed), is_heavy: *is_heavy == 1, is_plain: *is_plain == 1 })
    }
}

/// Bytes that are unique to this commit and key.
pub(crate) fn content(writer: u32, number: u64, key: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(mixed(u64::from(writer) << 48 ^ key << 40 ^ number));
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A writer's key among those of all writers.
pub(crate) fn own_key(writer: u32, key: u64) -> u64 {
    u64::from(writer) * 1000 + key
}

impl State {
    pub(crate) fn new(terms: Terms, writer: u32) -> State {
        State {
            terms,
            writer,
            count: 0,
            now_ms: 0,
            orders: BTreeMap::new(),
            parcels: BTreeMap::new(),
            log: BTreeMap::new(),
            temporary: None,
            counters: BTreeMap::new(),
            sessions: BTreeMap::new(),
            scratch: BTreeMap::new(),
            bytes: BTreeMap::new(),
            blobs: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    /// The next commit.
    pub(crate) fn plan(&self) -> Plan {
        let mut random = Random::new(mixed(self.terms.seed ^ u64::from(self.writer) << 32) ^ self.count);
        let level = match random.below(8) {
            0 => Durability::Memory,
            1 => Durability::Process,
            _ => Durability::Disk,
        };
        let takes_ticket = random.chance(1, 3);
        let mut writes: Vec<Write> = self.huge().into_iter().collect();
        for _ in 0..random.between(1, 6) {
            let write = self.write(writes.is_empty(), &mut random);
            if writes.iter().all(|other| !write.meets(other)) {
                writes.push(write);
            }
        }
        if random.chance(1, 3)
            && let Some(parcel) = first_of_new_order(&writes, &mut random)
        {
            writes.insert(0, parcel);
        }
        let is_given_up_first = random.chance(1, 12);
        let abandons = !self.terms.is_plain && random.chance(1, 20);
        let abandoned_bytes = if abandons { random.between(1, 12 * 1024) } else { 0 };
        Plan { writes, level, takes_ticket, is_given_up_first, abandoned_bytes }
    }

    /// More than checkpoints keep free is written and deleted, so that holes are punched. One writer only, in
    /// heavy lives.
    fn huge(&self) -> Option<Write> {
        let turn = self.count % 48;
        match (self.terms.is_heavy && !self.terms.is_plain && self.writer == 0, turn) {
            (true, 20) => Some(Write::Blob(HUGE, HUGE_BYTES, 1024 * 1024)),
            (true, 24) => Some(Write::DeleteBlob(HUGE)),
            _ => None,
        }
    }

    fn write(&self, is_first: bool, random: &mut Random) -> Write {
        let key = random.below(KEY_COUNT) as u64;
        let number = i64::try_from(random.below(1000)).expect("less than a thousand") - 500;
        let Terms { is_heavy, is_plain, .. } = self.terms;
        match random.below(if is_plain { 19 } else { 29 }) {
            0..=6 => Write::Put(self.order(is_first, random)),
            7..=8 => Write::Delete(random.below(ORDER_COUNT) as u64),
            9..=11 => self.parcel(random),
            12..=13 => Write::Log(random.below(20) as u64, (!random.chance(1, 4)).then_some(number)),
            14 => Write::Count(key, Count::Put(number)),
            15 => Write::Count(key, Count::Increment(number)),
            16 => Write::Count(key, Count::Delete),
            17 => Write::Session(key, *random.pick(&[None, Some(60), Some(400), Some(HOUR_MS)])),
            18 => Write::EndSession(key),
            // Only long-lived values: whether others still exist depends on the clock.
            19 if self.outlives_everything(key) => Write::Touch(key, 2 * HOUR_MS),
            19..=20 => Write::Scratch(key, number),
            21 if random.chance(1, 3) => Write::Clear,
            21 if random.chance(1, 2) => Write::Drop,
            21 => Write::Fill(random.below(400) as u64, random.between(20, 200) as u64),
            22..=24 => {
                let long = if is_heavy { (40_000, 300_000) } else { (300, 20_000) };
                let (from, to) = if random.chance(1, 5) { long } else { (0, 200) };
                Write::Bytes(key, (!random.chance(1, 5)).then(|| random.between(from, to)))
            }
            25 => Write::DeleteBlob(random.below(3) as u64),
            26 => Write::RenameBlob(random.below(3) as u64, 3 + random.below(2) as u64),
            _ => {
                let (bytes, piece_bytes) = match (is_heavy, random.chance(1, 6)) {
                    (true, true) => (random.between(1_200_000, 3_500_000), 1024 * 1024),
                    (true, false) => (random.below(400_000), 64 * 1024),
                    (false, _) => (random.below(30_000), 1024),
                };
                Write::Blob(random.below(3) as u64, bytes, piece_bytes)
            }
        }
    }

    /// Whether a session expires, but after every run.
    fn outlives_everything(&self, key: u64) -> bool {
        let expires = self.sessions.get(&key).and_then(|(_, expires)| *expires);
        expires.is_some_and(|at| at > self.now_ms + HOUR_MS / 2)
    }

    /// A parcel of an order that existed before the commit, or a delete.
    fn parcel(&self, random: &mut Random) -> Write {
        let orders: Vec<u64> = self.orders.keys().map(|id| id % 1000).collect();
        let is_put = !orders.is_empty() && !random.chance(1, 6);
        Write::Parcel(parcel_key(random), is_put.then(|| *random.pick(&orders)))
    }

    fn order(&self, is_first: bool, random: &mut Random) -> Order {
        let tags = (0..random.below(3)).map(|_| format!("t{}", random.below(4))).collect();
        let words =
            (0..random.below(4)).map(|_| format!("w{}", random.below(4))).collect::<Vec<_>>().join(" ");
        let cents = i64::try_from(random.below(1000)).expect("less than a thousand") - 500;
        let id = own_key(self.writer, random.below(ORDER_COUNT) as u64);
        let email = (is_first && random.chance(1, 2)).then(|| format!("{}@{}", random.below(8), self.writer));
        let is_taken = self.orders.values().any(|(other, _)| other.id != id && other.email == email);
        let note_bytes = match (self.terms.is_plain, random.below(8)) {
            (false, 0) if self.terms.is_heavy => random.between(33_000, 60_000),
            (false, 0) => random.between(300, 3000),
            _ => random.below(40),
        };
        Order {
            id,
            number: self.count,
            owner: format!("o{}", random.below(5)),
            cents,
            tags,
            email: email.filter(|_| !is_taken),
            words,
            note: "n".repeat(note_bytes),
            converted: false,
        }
    }

    /// Applies the next commit.
    pub(crate) fn apply(&mut self, plan: &Plan, row: &Row) {
        let mut told = BTreeMap::new();
        plan.writes.iter().for_each(|write| self.apply_write(write, row, &mut told));
        self.told.push(told.into_iter().collect());
        self.count += 1;
        self.now_ms = row.now_ms;
    }

    fn apply_write(&mut self, write: &Write, row: &Row, told: &mut BTreeMap<u64, bool>) {
        let number = self.count;
        match write {
            Write::Put(order) => {
                told.insert(order.id, true);
                self.orders.insert(order.id, (order.clone(), row.release));
            }
            Write::Delete(id) => {
                let id = own_key(self.writer, *id);
                if self.orders.remove(&id).is_some() {
                    told.insert(id, false);
                    self.parcels.retain(|parcel, (order, _)| {
                        let stays = *order != id;
                        if !stays {
                            told.insert(own_key(self.writer, *parcel), false);
                        }
                        stays
                    });
                }
            }
            Write::Parcel(key, Some(order)) => {
                told.insert(own_key(self.writer, *key), true);
                self.parcels.insert(*key, (own_key(self.writer, *order), number));
            }
            Write::Parcel(key, None) => {
                if self.parcels.remove(key).is_some() {
                    told.insert(own_key(self.writer, *key), false);
                }
            }
            Write::Log(key, Some(n)) => drop(self.log.insert(*key, *n)),
            Write::Log(key, None) => drop(self.log.remove(key)),
            Write::Fill(from, count) => {
                let n = i64::try_from(number % 1000).expect("less than a thousand");
                self.temporary.get_or_insert_default().extend((*from..from + count).map(|key| (key, n)));
            }
            Write::Drop => self.temporary = None,
            Write::Count(key, Count::Put(n)) => drop(self.counters.insert(*key, *n)),
            Write::Count(key, Count::Increment(n)) => *self.counters.entry(*key).or_default() += n,
            Write::Count(key, Count::Delete) => drop(self.counters.remove(key)),
            Write::Session(key, ms) => {
                self.sessions.insert(*key, (number, ms.map(|ms| row.now_ms + ms)));
            }
            Write::Touch(key, ms) => {
                if let Some((_, expires)) = self.sessions.get_mut(key) {
                    *expires = Some(row.now_ms + ms);
                }
            }
            Write::EndSession(key) => drop(self.sessions.remove(key)),
            Write::Scratch(key, n) => drop(self.scratch.insert(*key, *n)),
            Write::Clear => self.scratch.clear(),
            Write::Bytes(key, Some(bytes)) => drop(self.bytes.insert(*key, (number, *bytes))),
            Write::Bytes(key, None) => drop(self.bytes.remove(key)),
            Write::Blob(key, bytes, _) => drop(self.blobs.insert(*key, (number, *bytes))),
            Write::DeleteBlob(key) => drop(self.blobs.remove(key)),
            Write::RenameBlob(from, to) => {
                if let Some(blob) = self.blobs.remove(from) {
                    self.blobs.insert(*to, blob);
                }
            }
        }
    }
}

fn parcel_key(random: &mut Random) -> u64 {
    PARCELS_FROM + random.below(PARCEL_COUNT) as u64
}

/// A parcel of an order that the same commit stores. It comes first: the database looks for the order of a
/// parcel again at the commit.
fn first_of_new_order(writes: &[Write], random: &mut Random) -> Option<Write> {
    let order = writes.iter().find_map(|write| match write {
        Write::Put(order) => Some(order.id % 1000),
        _ => None,
    })?;
    let parcel = Write::Parcel(parcel_key(random), Some(order));
    writes.iter().all(|other| !parcel.meets(other)).then_some(parcel)
}

impl Write {
    /// Whether two writes may have the same key, or one deletes what the other refers to; the plan avoids
    /// such pairs within a commit.
    fn meets(&self, other: &Write) -> bool {
        use Write::{
            Blob, Bytes, Clear, Count, Delete, DeleteBlob, Drop, EndSession, Fill, Log, Parcel, Put,
            RenameBlob, Scratch, Session, Touch,
        };
        match (self, other) {
            // A document's key among the writer's own.
            (Put(a), Put(b)) => a.id == b.id,
            (Put(put), Delete(id)) | (Delete(id), Put(put)) => put.id % 1000 == *id,
            (Delete(a), Delete(b)) | (Log(a, _), Log(b, _)) | (Parcel(a, _), Parcel(b, _)) => a == b,
            (Parcel(_, order), Delete(id)) | (Delete(id), Parcel(_, order)) => *order == Some(*id),
            (Count(a, _), Count(b, _)) | (Bytes(a, _), Bytes(b, _)) => a == b,
            (Session(a, _) | Touch(a, _) | EndSession(a), Session(b, _) | Touch(b, _) | EndSession(b)) => {
                a == b
            }
            (Fill(..) | Drop, Fill(..) | Drop) | (Scratch(..) | Clear, Scratch(..) | Clear) => true,
            (Blob(..) | DeleteBlob(_) | RenameBlob(..), Blob(..) | DeleteBlob(_) | RenameBlob(..)) => true,
            _ => false,
        }
    }
}
