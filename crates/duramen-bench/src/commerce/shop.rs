//! What is asked of every engine: the six operations of shoppers, a load before them and a look at all rows after.
//!
//! Owns two traits, and nothing that measures. Whoever implements them promises full durability: a call that writes returns
//! only when what it wrote survives a power cut, as far as that engine can promise it; and that each call is one
//! transaction, RateProduct of `postgres-view` excepted.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::model::{CartId, CustomerId, Item, Listing, OrderId, ProductId};
use crate::engine::Result;

/// Whether a checkout takes what it sells from the product's stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stock {
    /// There is none: nobody meets anybody at a checkout.
    Endless,
    /// There is, and writers conflict.
    Counted,
}

/// What a checkout made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    /// The order.
    pub order: OrderId,
    /// What was in the cart, in any order.
    pub products: Vec<ProductId>,
}

/// An open database.
pub trait Store: Send + Sync {
    /// One agent's way in: a connection where the engine has such.
    fn shop(&self) -> Result<Box<dyn Shop + '_>>;

    /// What a reader of its figures should know of this very run.
    fn note(&self) -> Option<String> {
        None
    }

    /// Ends as a program would that ends in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What one agent asks. Each call is a transaction of its own.
pub trait Shop {
    /// Writes rows in one transaction: categories, products, customers, orders, reviews and stock.
    ///
    /// # Errors
    /// Also a name, or a pair of customer and product, that is there already; then nothing is written.
    fn load(&mut self, items: &[Item]) -> Result<()>;

    /// All rows are loaded: what an engine then does once, so that ratings are there before the first review.
    fn loaded(&mut self) -> Result<()>;

    /// A product by id, with its ratings.
    fn lookup(&mut self, product: ProductId) -> Result<Option<Listing>>;

    /// A product by name, with its ratings.
    fn find(&mut self, name: &str) -> Result<Option<Listing>>;

    /// A new cart.
    fn create_cart(&mut self) -> Result<CartId>;

    /// One more product in a cart.
    fn add(&mut self, cart: CartId, product: ProductId) -> Result<()>;

    /// Makes a cart an order; the cart is gone, and its products are taken from a counted stock, all or nothing.
    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> Result<Sale>;

    /// Writes a review without text, over the one that customer had written of that product.
    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> Result<()>;

    /// How often a transaction had to be run again since this was asked last.
    fn take_retries(&mut self) -> u64;

    /// Shows every row there is, in any order.
    fn show(&mut self, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()>;
}

/// How a store is opened or created in an existing directory.
pub type Open = fn(&Path, Stock) -> Result<Box<dyn Store>>;

/// What is said of an engine in every result.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in commands and tables.
    pub name: &'static str,
    /// The durable setting, and how the shop is kept.
    pub setting: &'static str,
    /// Opens or creates.
    pub open: Open,
}
