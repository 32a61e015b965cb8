//! The interface of every engine: the six operations of shoppers, a load before and a scan of all rows after.
//!
//! Owns two traits, and no measurements. Implementations promise full durability: a call that writes returns
//! only when its writes survive a power cut, as far as that engine can promise it. Each call is one
//! transaction, except for RateProduct of `postgres-view`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::model::{CartId, CustomerId, Item, Listing, OrderId, ProductId};
use crate::engine::Result;

/// Whether a checkout reduces the stock of its products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stock {
    /// There is no stock: checkouts do not conflict.
    Endless,
    /// There is a stock, and writers conflict.
    Counted,
}

/// The result of a checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sale {
    /// The order.
    pub order: OrderId,
    /// The products of the cart, in any order.
    pub products: Vec<ProductId>,
}

/// An open database.
pub(super) trait Store: Send + Sync {
    /// A session for one agent: a connection if the engine has such.
    fn shop(&self) -> Result<Box<dyn Shop + '_>>;

    /// A remark for the reader of this run's figures.
    fn note(&self) -> Option<String> {
        None
    }

    /// Closes as a program would that ends in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The operations of one agent. Each call is a transaction of its own.
pub(super) trait Shop {
    /// Writes rows in one transaction: categories, products, customers, orders, reviews and stock.
    ///
    /// # Errors
    /// Also for a name, or a pair of customer and product, that exists already; then nothing is written.
    fn load(&mut self, items: &[Item]) -> Result<()>;

    /// Called once after the load: engines may then compute the ratings.
    fn loaded(&mut self) -> Result<()>;

    /// A product by id, with its ratings.
    fn lookup(&mut self, product: ProductId) -> Result<Option<Listing>>;

    /// A product by name, with its ratings.
    fn find(&mut self, name: &str) -> Result<Option<Listing>>;

    /// A new cart.
    fn create_cart(&mut self) -> Result<CartId>;

    /// One more product in a cart.
    fn add(&mut self, cart: CartId, product: ProductId) -> Result<()>;

    /// Makes a cart an order. The cart is removed, and its products are taken from a counted stock, all or
    /// nothing.
    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> Result<Sale>;

    /// Writes a review without text, replacing that customer's review of the product.
    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> Result<()>;

    /// How many transactions were retried since the last call.
    fn take_retries(&mut self) -> u64;

    /// Shows every row, in any order.
    fn show(&mut self, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()>;
}

/// Opens or creates a store in an existing directory.
pub(super) type Open = fn(&Path, Stock) -> Result<Box<dyn Store>>;

/// The description of an engine in every result.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Its name in commands and tables.
    pub name: &'static str,
    /// The durable setting, and how the shop is stored.
    pub setting: &'static str,
    /// Opens or creates.
    pub open: Open,
}
