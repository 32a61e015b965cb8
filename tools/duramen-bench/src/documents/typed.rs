//! Duramen: a typed collection with three views.

use duramen::find::{Condition, Operator};
use duramen::prelude::*;

use super::model::{ByCity, ByCustomer, Order};
use super::{Entry, Orders};
use crate::engine::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "Duramen",
    setting: "Db::open(), level Disk; a typed collection with three views, that of cities with sums; the filter by find()",
    open: |dir| Ok(Box::new(Typed(Db::open(dir.join("orders.duramen"))?))),
};

struct Typed(Db);

impl Orders for Typed {
    fn put(&mut self, orders: &[Order]) -> Result<()> {
        Ok(self.0.transact(|tx| orders.iter().try_for_each(|order| tx.put(order)))?)
    }

    fn update(&mut self, ids: &[u64], cents: i64) -> Result<()> {
        Ok(self.0.transact(|tx| {
            ids.iter().try_for_each(|id| {
                tx.modify::<Order>(*id, |order| {
                    order.cents += cents;
                    Ok(())
                })
                .map(drop)
            })
        })?)
    }

    fn get(&mut self, id: u64) -> Result<Option<Order>> {
        Ok(self.0.get(id)?)
    }

    fn of_customer(&mut self, customer: u64) -> Result<Vec<Order>> {
        Ok(self.0.view::<ByCustomer>().key(customer).docs()?)
    }

    fn sum_of_city(&mut self, city: &str) -> Result<(u64, i64)> {
        let (count, sum) = self.0.view::<ByCity>().key(city).reduce()?;
        Ok((count, i64::try_from(sum)?))
    }

    fn heavier(&mut self, weight: f64) -> Result<Vec<Order>> {
        let orders = self.0.documents("orders");
        let heavier = Condition::new(&orders.schema()?, "weight", Operator::Greater, weight)?;
        let found = orders.find([heavier]).iter()?;
        found.map(|order| Ok(order?.to::<Order>()?)).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
