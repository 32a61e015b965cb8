//! Duramen's engine without its documents: four trees, kept equal by hand.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::OsDisk;
use duramen_engine::{
    Builtin, Direction, Durability, Engine, Hooks, KeyRange, Options, Snapshot, Transaction, TreeId,
};

use super::model::Order;
use super::{Entry, Orders};
use crate::engine::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "raw trees",
    setting: "duramen-engine, level Disk; orders as postcard, three trees of indexes, that of cities with sums",
    open,
};

struct Raw {
    engine: Engine,
    orders: TreeId,
    customers: TreeId,
    cities: TreeId,
    times: TreeId,
}

fn open(dir: &Path) -> Result<Box<dyn Orders>> {
    let engine = Engine::open(Arc::new(OsDisk::new()), dir, Options::default(), Hooks::default())?;
    let ([orders, customers, cities, times], _) = engine.transact(Durability::Disk, |tx| {
        Ok([
            tx.create_tree("orders", None)?,
            tx.create_tree("customers", None)?,
            tx.create_tree("cities", Some(Builtin::Sum.spec()))?,
            tx.create_tree("times", None)?,
        ])
    })?;
    Ok(Box::new(Raw { engine, orders, customers, cities, times }))
}

/// The key of a number: smaller numbers come first.
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn city_key(city: &str, id: u64) -> Vec<u8> {
    [city.as_bytes(), &[0], &key(id)].concat()
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

impl Raw {
    fn read(&self, snapshot: &Snapshot, id: u64) -> Result<Option<Order>> {
        let read = snapshot.get_with(self.orders, &key(id), |stored| postcard::from_bytes(stored))?;
        Ok(read.transpose()?)
    }

    fn store(&self, tx: &mut Transaction, order: &Order) -> duramen_engine::Result<()> {
        let stored = postcard::to_stdvec(order).expect("orders have a form");
        tx.put(self.orders, &key(order.id), &stored)?;
        tx.put(self.cities, &city_key(&order.city, order.id), &order.cents.to_le_bytes())
    }
}

impl Orders for Raw {
    fn put(&mut self, orders: &[Order]) -> Result<()> {
        self.engine.transact(Durability::Disk, |tx| {
            orders.iter().try_for_each(|order| {
                self.store(tx, order)?;
                tx.put(self.customers, &pair(order.customer, order.id), &[])?;
                tx.put(self.times, &pair(order.placed.unsigned_abs(), order.id), &[])
            })
        })?;
        Ok(())
    }

    fn update(&mut self, ids: &[u64], cents: i64) -> Result<()> {
        self.engine.transact(Durability::Disk, |tx| {
            ids.iter().try_for_each(|id| {
                let stored = tx.get(self.orders, &key(*id))?.expect("it is there");
                let mut order: Order = postcard::from_bytes(&stored).expect("it was stored");
                order.cents += cents;
                self.store(tx, &order)
            })
        })?;
        Ok(())
    }

    fn get(&mut self, id: u64) -> Result<Option<Order>> {
        self.read(&self.engine.snapshot()?, id)
    }

    fn of_customer(&mut self, customer: u64) -> Result<Vec<Order>> {
        let snapshot = self.engine.snapshot()?;
        let range = KeyRange::prefix(&key(customer));
        let mut rows = snapshot.rows(self.customers, range, Direction::Forward)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let id = u64::from_be_bytes(row.key()[8..].try_into()?);
            found.extend(self.read(&snapshot, id)?);
        }
        Ok(found)
    }

    fn sum_of_city(&mut self, city: &str) -> Result<(u64, i64)> {
        let reduced = self
            .engine
            .snapshot()?
            .reduce(self.cities, &KeyRange::prefix(&[city.as_bytes(), &[0]].concat()))?;
        let sum = reduced.value.unwrap_or_default();
        let mut bytes = [0; 16];
        bytes[..sum.len()].copy_from_slice(&sum);
        Ok((reduced.count, i64::try_from(i128::from_le_bytes(bytes))?))
    }

    fn heavier(&mut self, weight: f64) -> Result<Vec<Order>> {
        let mut rows = self.engine.snapshot()?.rows(self.orders, KeyRange::all(), Direction::Forward)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let order: Order = postcard::from_bytes(&row.value()?)?;
            if order.weight > weight {
                found.push(order);
            }
        }
        Ok(found)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.engine.close()?)
    }
}
