//! What one transaction of a life does: drawn, performed on the database, and applied to the model.
//!
//! Owns all three, so that a new kind of write is added in one place. Expiry follows the transaction's own
//! time.

use std::cell::Cell;

use duramen::blobs::Upload;
use duramen::{Code, Document, Error, LocalReads, Reads, Schema, Transaction, Ttl, Value, doc};

use super::model::{ExpectedChange, NAMESPACES, State};
use super::references::Phase;
use super::references::writes::{Outcome, ReferenceWrite};
use super::shop::{ORDERS, Order, Release, Ticket};
use crate::search::random::Random;

/// Number of different orders.
const ORDER_COUNT: usize = 24;

/// Keys of a namespace of key-values, of a namespace of blobs, of the tree of bytes.
const KEY_COUNT: usize = 8;

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Stores an order.
    Put {
        /// The order.
        order: Order,
        /// By its type, or as a document by name.
        typed: bool,
    },
    /// Deletes an order.
    Delete {
        /// Its key.
        id: u64,
        /// By its type, or by name.
        typed: bool,
    },
    /// Stores or deletes a document of `log`.
    Log(u64, Option<i64>),
    /// Stores or deletes a document of the temporary collection.
    Temporary(u64, Option<i64>),
    /// Drops the temporary collection.
    DropTemporary,
    /// Stores a document under an id assigned by the database.
    Push(i64),
    /// Deletes such a document.
    DeleteTicket(u64),
    /// Stores or deletes a document of collections that refer to each other.
    Reference(ReferenceWrite),
    /// Writes a value.
    Value(usize, u64, ValueWrite),
    /// Clears a namespace.
    Clear(usize),
    /// Stores or deletes bytes.
    Bytes(Vec<u8>, Option<Vec<u8>>),
    /// Attaches the finished upload to a key.
    Attach(u64),
    /// Deletes a blob.
    DeleteBlob(u64),
    /// Gives a blob another key.
    Rename(u64, u64),
}

/// A change to a value.
#[derive(Debug, Clone, Copy)]
pub enum ValueWrite {
    /// Stores it for good.
    Put(i64),
    /// Stores it for so many milliseconds.
    PutFor(i64, u64),
    /// Lets it expire so many milliseconds from now.
    Touch(u64),
    /// Adds to it.
    Increment(i64),
    /// Deletes it.
    Delete,
}

/// What a write may depend on.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// The program that writes.
    pub release: Release,
    /// Whether documents of earlier versions are being converted: only their type may then write.
    pub is_migrating: bool,
    /// Whether the unique view covers every document.
    pub is_unique: bool,
    /// Whether there is an upload to attach.
    pub has_upload: bool,
    /// How far the reference of the books is checked, if there is one.
    pub books: Option<Phase>,
}

/// A document of the collection `orders`.
fn order(state: &State, at: Circumstances, random: &mut Random) -> Order {
    let tags = (0..random.below(3)).map(|_| format!("t{}", random.below(4))).collect();
    let words = (0..random.below(4)).map(|_| format!("w{}", random.below(4))).collect::<Vec<_>>().join(" ");
    let cents = i64::try_from(random.below(1000)).expect("less than a thousand") - 500;
    let id = random.below(ORDER_COUNT) as u64;
    let email =
        (at.release.has_views() && random.chance(1, 2)).then(|| format!("{}@example.org", random.below(16)));
    let is_taken = state.orders.values().any(|(_, other)| other.id != id && other.email == email);
    // A view that is not built yet cannot refuse values in documents it has not reached.
    let email = email.filter(|_| at.is_unique || !is_taken);
    let note_bytes = if random.chance(1, 6) { random.between(300, 1200) } else { random.below(30) };
    Order {
        id,
        owner: format!("o{}", random.below(4)),
        cents,
        tags,
        email,
        words,
        note: "n".repeat(note_bytes),
    }
}

/// A few writes of any kind, each to a different key.
#[must_use]
pub fn some_writes(state: &State, at: Circumstances, random: &mut Random) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    if at.has_upload && random.chance(1, 2) {
        writes.push(Write::Attach(random.below(KEY_COUNT) as u64));
    }
    for _ in 0..random.between(1, 5) {
        let write = some_write(state, at, random);
        if writes.iter().all(|other| !write.meets(other)) {
            writes.push(write);
        }
    }
    writes
}

fn some_write(state: &State, at: Circumstances, random: &mut Random) -> Write {
    let typed = at.is_migrating || random.chance(3, 4);
    let number = i64::try_from(random.below(100)).expect("less than a hundred");
    let (key, row) = (random.below(KEY_COUNT) as u64, random.below(30) as u64);
    let namespace = random.below(NAMESPACES.len());
    match random.below(36) {
        26..=35 => Write::Reference(ReferenceWrite::some(&state.referring, at.books, random)),
        0..=8 => Write::Put { order: order(state, at, random), typed },
        9..=10 => Write::Delete { id: random.below(ORDER_COUNT) as u64, typed },
        11..=12 => Write::Log(row, (!random.chance(1, 4)).then_some(number)),
        13..=14 => Write::Temporary(row, (!random.chance(1, 4)).then_some(number)),
        15 if random.chance(1, 3) => Write::DropTemporary,
        16 if random.chance(1, 4) => Write::Clear(namespace),
        15..=19 => Write::Value(namespace, key, some_value(number, random)),
        20 => Write::DeleteBlob(key),
        22 if random.chance(3, 4) => Write::Push(number),
        23 if random.chance(1, 2) => Write::DeleteTicket(state.last_ticket),
        22 => Write::DeleteTicket(random.below(1 + usize::try_from(state.last_ticket).unwrap_or(0)) as u64),
        21 => Write::Rename(key, random.below(KEY_COUNT) as u64),
        _ => {
            let length = if random.chance(1, 5) { random.between(300, 1500) } else { random.below(60) };
            let value = (!random.chance(1, 4)).then(|| vec![7; length]);
            Write::Bytes(format!("b{key}").into_bytes(), value)
        }
    }
}

fn some_value(number: i64, random: &mut Random) -> ValueWrite {
    let ms = random.below(400) as u64;
    match random.below(8) {
        0 => ValueWrite::Delete,
        1 => ValueWrite::Touch(ms),
        2..=3 => ValueWrite::Increment(number),
        4 => ValueWrite::Put(number),
        _ => ValueWrite::PutFor(number, ms),
    }
}

fn number_document(id: u64, n: i64) -> Document {
    doc! { "id": id, "n": n }
}

fn order_document(order: &Order) -> Document {
    let tags = order.tags.iter().cloned().map(Value::from).collect();
    let mut document = doc! { "id": order.id, "owner": order.owner.clone(), "cents": order.cents };
    document.set("tags", Value::List(tags));
    document.set("email", order.email.clone());
    document.set("words", order.words.clone());
    document.set("note", order.note.clone());
    document
}

impl Write {
    /// Whether two writes may affect the same key: their combined effect is not tested here.
    fn meets(&self, other: &Write) -> bool {
        use Write::{Attach, Bytes, Clear, Delete, DeleteBlob, DropTemporary, Log, Put, Rename, Temporary};
        let order_of = |write: &Write| match write {
            Put { order, .. } => Some(order.id),
            Delete { id, .. } => Some(*id),
            _ => None,
        };
        match (self, other) {
            // A delete takes along what refers to it.
            (Write::Reference(_), Write::Reference(_)) => true,
            (Put { order, .. }, Put { order: other, .. })
                if order.email.is_some() && order.email == other.email =>
            {
                true
            }
            (Put { .. } | Delete { .. }, Put { .. } | Delete { .. }) => order_of(self) == order_of(other),
            (Log(a, _), Log(b, _)) => a == b,
            (Write::Value(a, c, _), Write::Value(b, d, _)) => (a, c) == (b, d),
            (Bytes(a, _), Bytes(b, _)) => a == b,
            (Clear(_) | Write::Value(..), Clear(_) | Write::Value(..))
            | (Temporary(..) | DropTemporary, Temporary(..) | DropTemporary)
            | (Write::Push(_) | Write::DeleteTicket(_), Write::Push(_) | Write::DeleteTicket(_))
            | (Attach(_) | DeleteBlob(_) | Rename(..), Attach(_) | DeleteBlob(_) | Rename(..)) => true,
            _ => false,
        }
    }

    /// Whether the unique view or a reference must refuse it.
    #[must_use]
    pub fn outcome(&self, state: &State, at: Circumstances) -> Outcome {
        match self {
            Write::Put { order, .. }
                if at.is_unique
                    && order.email.is_some()
                    && state
                        .orders
                        .values()
                        .any(|(_, other)| other.id != order.id && other.email == order.email) =>
            {
                Outcome::RefusedAtOnce(Code::UniqueViolation)
            }
            Write::Reference(write) => write.outcome(&state.referring, at.books),
            _ => Outcome::Passes,
        }
    }

    /// Performs it on the database. `ticket` is set to an assigned id.
    ///
    /// # Errors
    /// The database's error.
    pub fn perform(
        &self,
        tx: &mut Transaction<'_>,
        release: Release,
        upload: Option<&Upload>,
        ticket: &Cell<u64>,
    ) -> Result<(), Error> {
        match self {
            Write::Push(n) => tx.push(Ticket { id: 0, n: *n }).map(|pushed| ticket.set(pushed.id)),
            Write::DeleteTicket(id) => tx.delete::<Ticket>(*id).map(drop),
            Write::Reference(write) => write.perform(tx),
            Write::Put { order, typed: true } => release.put(tx, order),
            Write::Put { order, typed: false } => tx.documents(ORDERS).put(order_document(order)),
            Write::Delete { id, typed: true } => release.delete(tx, *id).map(drop),
            Write::Delete { id, typed: false } => tx.documents(ORDERS).delete(*id).map(drop),
            Write::Log(id, Some(n)) => tx.documents("log").put(number_document(*id, *n)),
            Write::Log(id, None) => tx.documents("log").delete(*id).map(drop),
            Write::Temporary(id, n) => {
                tx.ensure(&numbers_schema("temporary"))?;
                match n {
                    Some(n) => tx.documents("temporary").put(number_document(*id, *n)),
                    None => tx.documents("temporary").delete(*id).map(drop),
                }
            }
            Write::DropTemporary => tx.drop_collection("temporary").map(drop),
            Write::Value(namespace, key, what) => what.perform(tx, NAMESPACES[*namespace], *key),
            Write::Clear(namespace) => tx.kv(NAMESPACES[*namespace]).clear().map(drop),
            Write::Bytes(key, Some(value)) => tx.put_bytes("plain", key, value),
            Write::Bytes(key, None) => tx.delete_bytes("plain", key).map(drop),
            Write::Attach(key) => match upload {
                Some(upload) => tx.blobs("files").attach(*key, upload),
                None => Err(Error::invalid("there is nothing to attach")),
            },
            Write::DeleteBlob(key) => tx.blobs("files").delete(*key).map(drop),
            Write::Rename(from, to) => tx.blobs("files").rename(*from, *to).map(drop),
        }
    }

    /// Applies it to the model.
    pub fn apply(&self, state: &mut State, applied: &Applied, told: &mut Vec<ExpectedChange>) {
        match self {
            Write::Put { order, .. } => {
                told.push(ExpectedChange::put(order));
                state.orders.insert(order.id, (applied.version, order.clone()));
            }
            Write::Delete { id, .. } => {
                if state.orders.remove(id).is_some() {
                    told.push(ExpectedChange { what: format!("{ORDERS} {id} gone") });
                }
            }
            Write::Log(id, Some(n)) => {
                told.push(ExpectedChange { what: format!("log {id} put {n}") });
                state.log.insert(*id, *n);
            }
            Write::Log(id, None) => {
                if state.log.remove(id).is_some() {
                    told.push(ExpectedChange { what: format!("log {id} gone") });
                }
            }
            Write::Temporary(id, n) => {
                let rows = state.temporary.get_or_insert_default();
                match n {
                    Some(n) => rows.insert(*id, *n),
                    None => rows.remove(id),
                };
            }
            Write::DropTemporary => state.temporary = None,
            Write::Push(n) => {
                state.tickets.insert(applied.ticket, *n);
                state.last_ticket = state.last_ticket.max(applied.ticket);
            }
            Write::DeleteTicket(id) => drop(state.tickets.remove(id)),
            Write::Reference(write) => write.apply(&mut state.referring),
            Write::Value(namespace, key, what) => what.apply(state, (*namespace, *key), applied.now_ms),
            Write::Clear(namespace) => state.values.retain(|(of, _), _| of != namespace),
            Write::Bytes(key, Some(value)) => drop(state.bytes.insert(key.clone(), value.clone())),
            Write::Bytes(key, None) => drop(state.bytes.remove(key)),
            Write::Attach(key) => drop(state.blobs.insert(*key, applied.upload)),
            Write::DeleteBlob(key) => drop(state.blobs.remove(key)),
            Write::Rename(from, to) => {
                if let Some(blob) = state.blobs.remove(from) {
                    state.blobs.insert(*to, blob);
                }
            }
        }
    }
}

/// What the model must know of a transaction to apply its writes.
#[derive(Debug, Clone, Copy)]
pub struct Applied {
    /// The transaction's time.
    pub now_ms: u64,
    /// The version of documents that were written.
    pub version: u32,
    /// The finished upload.
    pub upload: (usize, u8),
    /// The assigned id.
    pub ticket: u64,
}

impl ExpectedChange {
    /// What the feed returns for a document of `orders`.
    #[must_use]
    pub fn put(order: &Order) -> ExpectedChange {
        ExpectedChange {
            what: format!("{ORDERS} {} put {} {} {}", order.id, order.owner, order.cents, order.note.len()),
        }
    }
}

/// The schema of `log`, and of the temporary collection.
#[must_use]
pub fn numbers_schema(name: &str) -> Schema {
    Schema::new(name).key(["id"]).sum(["n"])
}

impl ValueWrite {
    fn perform(self, tx: &Transaction<'_>, namespace: &str, key: u64) -> Result<(), Error> {
        let values = tx.kv(namespace);
        match self {
            ValueWrite::Put(value) => values.put(key, &value),
            ValueWrite::PutFor(value, ms) => values.put_with(key, &value, Ttl::millis(ms)),
            ValueWrite::Touch(ms) => values.touch(key, Ttl::millis(ms)).map(drop),
            ValueWrite::Increment(by) => values.increment(key, by).map(drop),
            ValueWrite::Delete => values.delete(key).map(drop),
        }
    }

    fn apply(self, state: &mut State, at: (usize, u64), now_ms: u64) {
        let stored = state.values.get(&at).copied();
        let live = stored.filter(|(_, expires)| expires.is_none_or(|expires| now_ms < expires));
        let new = match (self, live) {
            // An expired value may remain until it is deleted.
            (ValueWrite::Touch(_), None) => return,
            (ValueWrite::Touch(ms), Some((value, _))) => Some((value, Some(now_ms + ms))),
            (ValueWrite::Put(value), _) => Some((value, None)),
            (ValueWrite::PutFor(value, ms), _) => Some((value, Some(now_ms + ms))),
            (ValueWrite::Increment(by), Some((value, expires))) => Some((value + by, expires)),
            (ValueWrite::Increment(by), None) => Some((by, None)),
            (ValueWrite::Delete, _) => None,
        };
        match new {
            Some((value, expires)) if expires.is_none_or(|expires| now_ms < expires) => {
                state.values.insert(at, (value, expires));
            }
            _ => {
                state.values.remove(&at);
            }
        }
    }
}
