//! What clients were told, and whether the database says the same.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr as _;

use duramen::prelude::*;

use crate::client::{COLLECTION, COUNTERS};
use crate::{Wrong, wrong};

/// An acknowledged batch: the client, the number of its batch, the request id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) client: u64,
    pub(crate) number: u64,
    pub(crate) id: String,
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ack {} {} {}", self.client, self.number, self.id)
    }
}

/// All that was acknowledged, by client and number.
#[derive(Debug, Default)]
pub(crate) struct Acks(BTreeMap<(u64, u64), String>);

impl Acks {
    /// From the lines of acknowledgements. A last line that was cut off was not said.
    pub(crate) fn parse(text: &str) -> Result<Acks, Wrong> {
        let mut acks = Acks::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let ["ack", client, number, id] = words[..] else {
                return Err(wrong(format!("no line: {line}")));
            };
            let number_of = |text| u64::from_str(text).map_err(|_| wrong(format!("no number: {line}")));
            acks.add(Ack { client: number_of(client)?, number: number_of(number)?, id: id.to_owned() })?;
        }
        Ok(acks)
    }

    pub(crate) fn add(&mut self, ack: Ack) -> Result<(), Wrong> {
        match self.0.insert((ack.client, ack.number), ack.id.clone()) {
            None => Ok(()),
            Some(before) => Err(wrong(format!("{ack}: acknowledged before under {before}"))),
        }
    }

    /// Adds those of another client.
    pub(crate) fn add_all(&mut self, others: Acks) -> Result<(), Wrong> {
        let ack = |((client, number), id)| Ack { client, number, id };
        others.0.into_iter().map(ack).try_for_each(|ack| self.add(ack))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Every acknowledged id is there, under its number, and each client's numbers are without gaps: a batch
    /// that ran twice would have raised the counter twice. Returns how many batches there are.
    pub(crate) fn check(&self, db: &Db) -> Result<u64, Wrong> {
        let snapshot = db.snapshot()?;
        let documents = snapshot.documents(COLLECTION);
        let mut stored: BTreeMap<u64, u64> = BTreeMap::new();
        for document in documents.scan(Span::all())? {
            let document = document?;
            let [client, number] = ["client", "number"].map(|field| match document.get(field) {
                Some(Value::Int(number)) => u64::try_from(*number).unwrap_or(u64::MAX),
                _ => u64::MAX,
            });
            let next = stored.entry(client).or_default();
            if number != *next {
                return Err(wrong(format!("client {client} has {number} where {next} was to come")));
            }
            *next += 1;
            if let Some(id) = self.0.get(&(client, number))
                && document.get("id") != Some(&Value::Text(id.clone()))
            {
                return Err(wrong(format!(
                    "client {client}, {number}: acknowledged as {id}, stored: {document}"
                )));
            }
        }
        for (client, number) in self.0.keys() {
            if stored.get(client).is_none_or(|next| number >= next) {
                return Err(wrong(format!("client {client}, {number}: acknowledged and not there")));
            }
        }
        for (client, count) in &stored {
            let counter = snapshot.kv(COUNTERS).get::<i64>(*client)?.unwrap_or(0);
            if u64::try_from(counter) != Ok(*count) {
                return Err(wrong(format!("client {client}: {count} batches, counted {counter}")));
            }
        }
        Ok(stored.values().sum())
    }
}
