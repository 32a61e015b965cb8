//! A small shop, written once: its functions run on a database in this process and on one that another
//! serves.
//!
//! ```sh
//! cargo run --example shop -- embedded
//! cargo run --example shop -- duramen://TOKEN@127.0.0.1:7420
//! cargo run --example shop -- shop.duramen      # the directory of a database that `duramen serve` has open
//! ```

#![allow(clippy::print_stdout, reason = "a program: it prints the totals")]
#![allow(clippy::disallowed_methods, reason = "a program: it has threads")]

use std::thread;

use duramen::prelude::*;
use duramen_client::Remote;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ProductByName, key = name, unique))]
struct Product {
    #[key]
    id: u64,
    name: String,
    cents: i64,
    stock: i64,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(SalesByCity, key = city, value = cents, reduce = (Count, Sum, Max)))]
struct Order {
    #[key(assigned)]
    id: u64,
    city: String,
    #[references(Product)]
    product: u64,
    cents: i64,
}

/// Of a city: orders, cents, the dearest order.
type Sales = (u64, i128, Option<i64>);

/// What is left, and what was sold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) cities: Vec<(String, Sales)>,
    /// Products that are left.
    pub(crate) left: i64,
    /// Orders, as a counter beside them has it.
    pub(crate) counted: i64,
}

/// Opens the shop with 40 products, ten of each.
///
/// # Errors
/// Those of the database.
pub(crate) fn open<S: Store>(db: &S) -> Result<()> {
    db.transact(|tx| {
        for id in 1..=40 {
            let cents = i64::try_from(id * id % 97 + 5).unwrap_or(5);
            tx.put(&Product { id, name: format!("product {id}"), cents, stock: 10 })?;
        }
        Ok(())
    })
}

/// Sells a product, if there is one left. Returns whether it was sold.
///
/// # Errors
/// Those of the database; `InvalidArgument` (E0201) for a product that does not exist.
pub(crate) fn sell<T: Tx>(tx: &mut T, name: &str, city: &str) -> Result<bool> {
    let product = tx.view::<ProductByName>().key(name).first_doc()?;
    let mut product = product.ok_or_else(|| Error::invalid(format!("there is no {name}")))?;
    if product.stock == 0 {
        return Ok(false);
    }
    product.stock -= 1;
    tx.put(&product)?;
    tx.push(Order { id: 0, city: city.to_owned(), product: product.id, cents: product.cents })?;
    tx.kv("counters").increment("orders", 1)?;
    Ok(true)
}

/// Four customers at a time buy what they find.
///
/// # Errors
/// Those of the database.
pub(crate) fn trade<S: Store + Sync>(db: &S) -> Result<()> {
    let customer = |city: &'static str, first: u64| {
        for turn in 0..60 {
            let name = format!("product {}", (first + turn * 7) % 40 + 1);
            db.transact(|tx| sell(tx, &name, city))?;
        }
        Ok(())
    };
    let customer = &customer;
    thread::scope(|scope| {
        let cities = ["Bergen", "Oslo", "Rome", "Turin"];
        let customers: Vec<_> =
            (0..).zip(cities).map(|(first, city)| scope.spawn(move || customer(city, first))).collect();
        customers.into_iter().try_for_each(|customer| {
            customer.join().unwrap_or_else(|_| Err(Error::invalid("a customer panicked")))
        })
    })
}

/// The totals, all of one state.
///
/// # Errors
/// Those of the database.
pub(crate) fn totals<S: Store>(db: &S) -> Result<Totals> {
    let now = db.snapshot()?;
    let mut left = 0;
    for product in now.collection::<Product>().iter()? {
        left += product?.stock;
    }
    let cities = now.view::<SalesByCity>().group_by::<String>()?;
    let counted = now.kv("counters").get("orders")?.unwrap_or(0);
    Ok(Totals { cities, left, counted })
}

/// Everything, on any store.
///
/// # Errors
/// Those of the database.
pub(crate) fn run<S: Store + Sync>(db: &S) -> Result<Totals> {
    open(db)?;
    trade(db)?;
    totals(db)
}

#[allow(dead_code, reason = "tests include this file, and call the functions above")]
fn main() -> Result<()> {
    let place = std::env::args().nth(1).unwrap_or_else(|| "embedded".to_owned());
    let Totals { cities, left, counted } = match place.as_str() {
        "embedded" => run(&Db::in_memory()?)?,
        address => run(&Remote::connect(address)?)?,
    };
    for (city, (orders, cents, dearest)) in cities {
        println!("{city}: {orders} orders, {cents} cents, the dearest {} cents", dearest.unwrap_or(0));
    }
    println!("{counted} orders, {left} products left");
    Ok(())
}
