//! native_db: a typed database over redb, with secondary keys.

use std::sync::LazyLock;

use native_db::{Builder, Database, Models, ToKey, native_db};
use native_model::{Model, native_model};
use serde::{Deserialize, Serialize};

use super::model::Order;
use super::{Entry, Orders};
use crate::engine::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "native_db",
    setting: "its defaults, over redb; three secondary keys; a sum and a filter read the orders",
    open: |dir| Ok(Box::new(Native(Builder::new().create(&MODELS, dir.join("orders.native"))?))),
};

static MODELS: LazyLock<Models> = LazyLock::new(|| {
    let mut models = Models::new();
    models.define::<NativeOrder>().expect("a model that its macros accept");
    models
});

#[derive(Debug, Clone, Serialize, Deserialize)]
#[native_model(id = 1, version = 1)]
#[native_db]
struct NativeOrder {
    #[primary_key]
    id: u64,
    #[secondary_key]
    customer: u64,
    #[secondary_key]
    city: String,
    cents: i64,
    status: String,
    #[secondary_key]
    placed: i64,
    express: bool,
    weight: f64,
}

impl From<&Order> for NativeOrder {
    fn from(order: &Order) -> NativeOrder {
        let Order { id, customer, city, cents, status, placed, express, weight } = order.clone();
        NativeOrder { id, customer, city, cents, status, placed, express, weight }
    }
}

impl From<NativeOrder> for Order {
    fn from(order: NativeOrder) -> Order {
        let NativeOrder { id, customer, city, cents, status, placed, express, weight } = order;
        Order { id, customer, city, cents, status, placed, express, weight }
    }
}

struct Native(Database<'static>);

impl Orders for Native {
    fn put(&mut self, orders: &[Order]) -> Result<()> {
        let write = self.0.rw_transaction()?;
        for order in orders {
            write.insert(NativeOrder::from(order))?;
        }
        Ok(write.commit()?)
    }

    fn update(&mut self, ids: &[u64], cents: i64) -> Result<()> {
        let write = self.0.rw_transaction()?;
        for id in ids {
            let Some(old) = write.get().primary::<NativeOrder>(*id)? else { continue };
            let mut new = old.clone();
            new.cents += cents;
            write.update(old, new)?;
        }
        Ok(write.commit()?)
    }

    fn get(&mut self, id: u64) -> Result<Option<Order>> {
        Ok(self.0.r_transaction()?.get().primary::<NativeOrder>(id)?.map(Order::from))
    }

    fn of_customer(&mut self, customer: u64) -> Result<Vec<Order>> {
        let read = self.0.r_transaction()?;
        let scan = read.scan().secondary::<NativeOrder>(NativeOrderKey::customer)?;
        let found = scan.range(customer..=customer)?;
        found.map(|order| Ok(order?.into())).collect()
    }

    fn sum_of_city(&mut self, city: &str) -> Result<(u64, i64)> {
        let read = self.0.r_transaction()?;
        let scan = read.scan().secondary::<NativeOrder>(NativeOrderKey::city)?;
        let (mut count, mut sum) = (0, 0);
        for order in scan.range(city.to_owned()..=city.to_owned())? {
            (count, sum) = (count + 1, sum + order?.cents);
        }
        Ok((count, sum))
    }

    fn heavier(&mut self, weight: f64) -> Result<Vec<Order>> {
        let read = self.0.r_transaction()?;
        let mut found = Vec::new();
        for order in read.scan().primary::<NativeOrder>()?.all()? {
            let order: NativeOrder = order?;
            if order.weight > weight {
                found.push(order.into());
            }
        }
        Ok(found)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
