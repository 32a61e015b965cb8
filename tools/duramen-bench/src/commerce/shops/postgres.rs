//! PostgreSQL over a Unix socket, with its own server for each run. Each operation is one round trip, except
//! for the refresh of the view and a counted stock.
//!
//! There are two forms. `postgres-view` keeps the ratings in a materialised view, refreshed as a whole after
//! each review, as the original does. `postgres-table` keeps them in a table, by a trigger, in the review's
//! transaction. The server is started and stopped by the same script as for `compare`.

mod rows;
mod statements;

use std::path::{Path, PathBuf};

use postgres::error::SqlState;
use postgres::{Client, Row, Statement};

use crate::commerce::model::{CartId, CustomerId, Item, Listing, OrderId, ProductId};
use crate::commerce::shop::{Entry, Sale, Shop, Stock, Store};
use crate::engine::Result;
use crate::engines::postgres::{connect, script};

/// The form with a view.
pub const VIEW: Entry = Entry {
    name: "postgres-view",
    setting: "fsync, synchronous_commit, full_page_writes on; 256 MiB of shared buffers; Unix socket, prepared \
              statements, a connection an agent, READ COMMITTED; ratings in a materialised view, refreshed after each \
              review, one refresh after the other, or an older one could take a newer one's place",
    open: |path, stock| open(path, stock, Keeps::View),
};

/// The form with a table.
pub const TABLE: Entry = Entry {
    name: "postgres-table",
    setting: "as postgres-view; ratings in a table that a trigger keeps in the review's transaction",
    open: |path, stock| open(path, stock, Keeps::Table),
};

/// How ratings are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    View,
    Table,
}

struct Postgres {
    dir: PathBuf,
    stock: Stock,
    keeps: Keeps,
}

struct Visit<'a> {
    store: &'a Postgres,
    client: Client,
    lookup: Statement,
    find: Statement,
    create_cart: Statement,
    add: Statement,
    checkout: Statement,
    take_stock: Statement,
    rate: Statement,
    retries: u64,
}

fn open(path: &Path, stock: Stock, keeps: Keeps) -> Result<Box<dyn Store>> {
    script("start", path)?;
    let store = Postgres { dir: path.to_owned(), stock, keeps };
    let mut client = connect(path)?;
    client.batch_execute(statements::TABLES)?;
    client.batch_execute(match keeps {
        Keeps::View => statements::RATINGS_VIEW,
        Keeps::Table => statements::RATINGS_TABLE,
    })?;
    Ok(Box::new(store))
}

impl Store for Postgres {
    fn shop(&self) -> Result<Box<dyn Shop + '_>> {
        let mut client = connect(&self.dir)?;
        Ok(Box::new(Visit {
            store: self,
            lookup: client.prepare(&statements::listing("p.id = $1::bigint"))?,
            find: client.prepare(&statements::listing("p.name = $1::text"))?,
            create_cart: client.prepare(statements::CREATE_CART)?,
            add: client.prepare(statements::ADD)?,
            checkout: client.prepare(statements::CHECKOUT)?,
            take_stock: client.prepare(statements::TAKE_STOCK)?,
            rate: client.prepare(statements::RATE)?,
            client,
            retries: 0,
        }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Dropping it stops the server.
        Ok(())
    }
}

/// The server ends with the run, however that ends.
impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(failed) = script("stop", &self.dir) {
            crate::output::progress(&failed.to_string());
        }
    }
}

type Asked<T> = std::result::Result<T, postgres::Error>;

impl Visit<'_> {
    /// Retries a transaction while the server aborts it because of another.
    fn again<T>(&mut self, mut work: impl FnMut(&mut Self) -> Asked<T>) -> Result<T> {
        let retried = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        loop {
            match work(self) {
                Err(error) if error.code().is_some_and(|code| retried.contains(code)) => self.retries += 1,
                done => return Ok(done?),
            }
        }
    }

    fn try_checkout(&mut self, cart: CartId, customer: CustomerId) -> Asked<Vec<(i64, i64)>> {
        let values = [i64::from(cart.0), i64::from(customer.0)];
        let pair = |row: &Row| (row.get(0), row.get(1));
        if self.store.stock == Stock::Endless {
            let rows = self.client.query(&self.checkout, &[&values[0], &values[1]])?;
            return Ok(rows.iter().map(pair).collect());
        }
        let mut transaction = self.client.transaction()?;
        let rows = transaction.query(&self.checkout, &[&values[0], &values[1]])?;
        let sold: Vec<(i64, i64)> = rows.iter().map(pair).collect();
        let products: Vec<i64> = sold.iter().map(|(_, product)| *product).collect();
        transaction.execute(&self.take_stock, &[&products])?;
        transaction.commit()?;
        Ok(sold)
    }
}

impl Shop for Visit<'_> {
    fn load(&mut self, items: &[Item]) -> Result<()> {
        rows::load(&mut self.client, items)
    }

    fn loaded(&mut self) -> Result<()> {
        self.client.batch_execute(statements::LOADED)?;
        Ok(self.client.batch_execute(match self.store.keeps {
            Keeps::View => statements::REFRESH,
            Keeps::Table => statements::RATINGS_KEPT,
        })?)
    }

    fn lookup(&mut self, product: ProductId) -> Result<Option<Listing>> {
        let found = self.client.query_opt(&self.lookup, &[&i64::from(product.0)])?;
        found.as_ref().map(rows::listing).transpose()
    }

    fn find(&mut self, name: &str) -> Result<Option<Listing>> {
        let found = self.client.query_opt(&self.find, &[&name])?;
        found.as_ref().map(rows::listing).transpose()
    }

    fn create_cart(&mut self) -> Result<CartId> {
        let id = self.again(|shop| shop.client.query_one(&shop.create_cart, &[]))?;
        CartId::read(id.get(0))
    }

    fn add(&mut self, cart: CartId, product: ProductId) -> Result<()> {
        let (cart, product) = (i64::from(cart.0), i64::from(product.0));
        self.again(|shop| shop.client.execute(&shop.add, &[&cart, &product]))?;
        Ok(())
    }

    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> Result<Sale> {
        let sold = self.again(|shop| shop.try_checkout(cart, customer))?;
        let (order, _) = *sold.first().ok_or_else(|| format!("there is no {cart:?}, or it is empty"))?;
        let products = sold.iter().map(|(_, product)| ProductId::read(*product)).collect::<Result<_>>()?;
        Ok(Sale { order: OrderId::read(order)?, products })
    }

    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> Result<()> {
        let (customer, product) = (i64::from(customer.0), i64::from(product.0));
        let rating = i16::from(rating);
        self.again(|shop| shop.client.execute(&shop.rate, &[&customer, &product, &rating]))?;
        if self.store.keeps == Keeps::View {
            self.again(|shop| shop.client.batch_execute(statements::REFRESH))?;
        }
        Ok(())
    }

    fn take_retries(&mut self) -> u64 {
        std::mem::take(&mut self.retries)
    }

    fn show(&mut self, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
        rows::show(&mut self.client, see)
    }
}
