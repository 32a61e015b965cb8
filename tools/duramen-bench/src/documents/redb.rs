//! redb and serde: four tables, kept equal by hand.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::model::Order;
use super::{Entry, Orders};
use crate::engine::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "redb + serde",
    setting: "its default Durability::Immediate and cache; orders as postcard, three tables of indexes; a sum reads the rows of its city",
    open: |dir| Ok(Box::new(Redb(Database::create(dir.join("orders.redb"))?))),
};

const ORDERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("orders");
const CUSTOMERS: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("customers");
const CITIES: TableDefinition<'_, (&str, u64), i64> = TableDefinition::new("cities");
const TIMES: TableDefinition<'_, (i64, u64), ()> = TableDefinition::new("times");

struct Redb(Database);

impl Orders for Redb {
    fn put(&mut self, new: &[Order]) -> Result<()> {
        let write = self.0.begin_write()?;
        {
            let (mut orders, mut customers) = (write.open_table(ORDERS)?, write.open_table(CUSTOMERS)?);
            let (mut cities, mut times) = (write.open_table(CITIES)?, write.open_table(TIMES)?);
            for order in new {
                orders.insert(order.id, postcard::to_stdvec(order)?.as_slice())?;
                customers.insert((order.customer, order.id), ())?;
                cities.insert((order.city.as_str(), order.id), order.cents)?;
                times.insert((order.placed, order.id), ())?;
            }
        }
        Ok(write.commit()?)
    }

    fn update(&mut self, ids: &[u64], cents: i64) -> Result<()> {
        let write = self.0.begin_write()?;
        {
            let (mut orders, mut cities) = (write.open_table(ORDERS)?, write.open_table(CITIES)?);
            for id in ids {
                let stored = orders.get(id)?.map(|stored| postcard::from_bytes::<Order>(stored.value()));
                let Some(mut order) = stored.transpose()? else { continue };
                order.cents += cents;
                orders.insert(id, postcard::to_stdvec(&order)?.as_slice())?;
                cities.insert((order.city.as_str(), order.id), order.cents)?;
            }
        }
        Ok(write.commit()?)
    }

    fn get(&mut self, id: u64) -> Result<Option<Order>> {
        let stored = self.0.begin_read()?.open_table(ORDERS)?.get(id)?;
        Ok(stored.map(|stored| postcard::from_bytes(stored.value())).transpose()?)
    }

    fn of_customer(&mut self, customer: u64) -> Result<Vec<Order>> {
        let read = self.0.begin_read()?;
        let (orders, customers) = (read.open_table(ORDERS)?, read.open_table(CUSTOMERS)?);
        let mut found = Vec::new();
        for row in customers.range((customer, 0)..=(customer, u64::MAX))? {
            let (_, id) = row?.0.value();
            if let Some(stored) = orders.get(id)? {
                found.push(postcard::from_bytes(stored.value())?);
            }
        }
        Ok(found)
    }

    fn sum_of_city(&mut self, city: &str) -> Result<(u64, i64)> {
        let cities = self.0.begin_read()?.open_table(CITIES)?;
        let (mut count, mut sum) = (0, 0);
        for row in cities.range((city, 0)..=(city, u64::MAX))? {
            (count, sum) = (count + 1, sum + row?.1.value());
        }
        Ok((count, sum))
    }

    fn heavier(&mut self, weight: f64) -> Result<Vec<Order>> {
        let mut found = Vec::new();
        for row in self.0.begin_read()?.open_table(ORDERS)?.iter()? {
            let order: Order = postcard::from_bytes(row?.1.value())?;
            if order.weight > weight {
                found.push(order);
            }
        }
        Ok(found)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
