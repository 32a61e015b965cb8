//! SQLite: a table with three indexes.

use std::path::Path;

use rusqlite::{Connection, Row, params};

use super::model::Order;
use super::{Entry, Orders};
use crate::engine::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "SQLite",
    setting: "journal_mode=WAL, synchronous=FULL; three indexes, that of cities with cents, of which a sum reads the \
              rows; 256 MiB of cache, prepared statements",
    open,
};

struct Sqlite(Connection);

fn open(dir: &Path) -> Result<Box<dyn Orders>> {
    let connection = Connection::open(dir.join("orders.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -(256 << 10))?;
    connection.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, city TEXT, cents INTEGER, status TEXT, \
         placed INTEGER, express INTEGER, weight REAL);
         CREATE INDEX by_customer ON orders (customer);
         CREATE INDEX by_city ON orders (city, cents);
         CREATE INDEX by_time ON orders (placed);",
    )?;
    Ok(Box::new(Sqlite(connection)))
}

fn order(row: &Row<'_>) -> rusqlite::Result<Order> {
    Ok(Order {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        customer: row.get::<_, i64>(1)?.cast_unsigned(),
        city: row.get(2)?,
        cents: row.get(3)?,
        status: row.get(4)?,
        placed: row.get(5)?,
        express: row.get(6)?,
        weight: row.get(7)?,
    })
}

impl Orders for Sqlite {
    fn put(&mut self, orders: &[Order]) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
            for Order { id, customer, city, cents, status, placed, express, weight } in orders {
                let (id, customer) = (id.cast_signed(), customer.cast_signed());
                insert.execute(params![id, customer, city, cents, status, placed, express, weight])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn update(&mut self, ids: &[u64], cents: i64) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut update =
                transaction.prepare_cached("UPDATE orders SET cents = cents + ? WHERE id = ?")?;
            for id in ids {
                update.execute(params![cents, id.cast_signed()])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get(&mut self, id: u64) -> Result<Option<Order>> {
        let mut statement = self.0.prepare_cached("SELECT * FROM orders WHERE id = ?")?;
        let mut found = statement.query_map([id.cast_signed()], order)?;
        Ok(found.next().transpose()?)
    }

    fn of_customer(&mut self, customer: u64) -> Result<Vec<Order>> {
        let mut statement = self.0.prepare_cached("SELECT * FROM orders WHERE customer = ?")?;
        let found = statement.query_map([customer.cast_signed()], order)?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    fn sum_of_city(&mut self, city: &str) -> Result<(u64, i64)> {
        let mut statement =
            self.0.prepare_cached("SELECT count(*), sum(cents) FROM orders WHERE city = ?")?;
        Ok(statement.query_row([city], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))?)
    }

    fn heavier(&mut self, weight: f64) -> Result<Vec<Order>> {
        let mut statement = self.0.prepare_cached("SELECT * FROM orders WHERE weight > ?")?;
        let found = statement.query_map([weight], order)?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.close().map_err(|(_, error)| error.into())
    }
}
