//! Duramen, by its engine's public interface: a tree of bytes for each kind of row, a tree for each index.
//!
//! Owns the trees and their keys. A name is unique because the transaction that writes it has read that it is
//! free; a pair of customer and product is a key. The ratings of a product are a row that is read and written
//! with the review, in one transaction. Ids of carts and orders are counted in memory, from the last in the
//! tree on, as one process has the database.

mod rows;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use duramen_disk::OsDisk;
use duramen_engine::{
    Direction, Durability, Engine, Error, Hooks, KeyRange, Options, Result as Answer, Snapshot, Transaction,
    TreeId,
};

use crate::commerce::model::{
    CartId, CategoryId, Customer, CustomerId, Item, Listing, OrderId, ProductId, Rating, Review,
};
use crate::commerce::shop::{Entry, Sale, Shop, Stock, Store};
use crate::engine::Result;

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "duramen",
    setting: "Options::default(), level Disk; raw trees: five of rows, four of indexes and ratings, one of stock; \
              transact(), which runs again what met a conflict",
    open,
};

struct Trees {
    categories: TreeId,
    products: TreeId,
    products_by_name: TreeId,
    products_by_category: TreeId,
    customers: TreeId,
    orders: TreeId,
    carts: TreeId,
    /// By product, then customer.
    reviews: TreeId,
    ratings: TreeId,
    stock: TreeId,
}

struct Duramen {
    engine: Engine,
    trees: Trees,
    stock: Stock,
    last_order: AtomicU32,
    last_cart: AtomicU32,
}

struct Visit<'a> {
    store: &'a Duramen,
    retries: u64,
}

fn open(path: &Path, stock: Stock) -> Result<Box<dyn Store>> {
    let engine = Engine::open(Arc::new(OsDisk::new()), path, Options::default(), Hooks::default())?;
    let (trees, _) = engine.transact(Durability::Disk, |tx| {
        let mut tree = |name| match tx.tree(name)? {
            Some(tree) => Ok::<_, Error>(tree),
            None => tx.create_tree(name, None),
        };
        Ok(Trees {
            categories: tree("categories")?,
            products: tree("products")?,
            products_by_name: tree("products by name")?,
            products_by_category: tree("products by category")?,
            customers: tree("customers")?,
            orders: tree("orders")?,
            carts: tree("carts")?,
            reviews: tree("reviews")?,
            ratings: tree("ratings")?,
            stock: tree("stock")?,
        })
    })?;
    let store = Duramen { engine, trees, stock, last_order: AtomicU32::new(0), last_cart: AtomicU32::new(0) };
    store.count_on()?;
    Ok(Box::new(store))
}

impl Duramen {
    /// New ids continue after the last existing ones.
    fn count_on(&self) -> Result<()> {
        let snapshot = self.engine.snapshot()?;
        for (tree, last) in [(self.trees.orders, &self.last_order), (self.trees.carts, &self.last_cart)] {
            let mut rows = snapshot.rows(tree, KeyRange::all(), Direction::Reverse)?;
            let found = rows.next()?.and_then(|row| rows::read_key(row.key()));
            last.store(found.unwrap_or(0), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Store for Duramen {
    fn shop(&self) -> Result<Box<dyn Shop + '_>> {
        Ok(Box::new(Visit { store: self, retries: 0 }))
    }

    fn note(&self) -> Option<String> {
        Some(format!(
            "a commit waits for {}, the fastest when the database was created",
            self.engine.durability_status().sync_call
        ))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.engine.close()?)
    }
}

/// The error of a row that differs from what was written, which no run should ever see.
fn corrupt(tree: &str) -> Error {
    Error::invalid(format!("a row of {tree} cannot be read"))
}

fn taken(what: &str) -> Error {
    Error::invalid(format!("{what} is there already"))
}

impl Trees {
    fn load(&self, tx: &mut Transaction, item: &Item) -> Answer<()> {
        match item {
            Item::Category(id, name) => tx.put(self.categories, &rows::key(id.0), name.as_bytes()),
            Item::Product(id, product) => {
                if tx.get(self.products_by_name, product.name.as_bytes())?.is_some() {
                    return Err(taken(&product.name));
                }
                tx.put(self.products_by_name, product.name.as_bytes(), &rows::key(id.0))?;
                for category in &product.categories {
                    tx.put(self.products_by_category, &rows::pair(category.0, id.0), &[])?;
                }
                tx.put(self.products, &rows::key(id.0), &rows::product(product))
            }
            Item::Customer(id, customer) => {
                let row = customer.fields.iter().fold(rows::Writer::default(), |row, field| row.text(field));
                tx.put(self.customers, &rows::key(id.0), &row.bytes())
            }
            Item::Order(id, order) => {
                tx.put(self.orders, &rows::key(id.0), &rows::order(order.customer, &order.products))
            }
            Item::Review(review) => {
                if self.write_review(tx, review)?.is_some() {
                    return Err(taken(&format!("a review of {:?} by {:?}", review.product, review.customer)));
                }
                Ok(())
            }
            Item::Stock(id, units) => tx.put(self.stock, &rows::key(id.0), &units.to_le_bytes()),
            Item::Cart(..) | Item::Rating(..) => Err(Error::invalid("carts and ratings are not loaded")),
        }
    }

    /// Writes a review and updates the product's ratings. Returns the previous rating.
    fn write_review(&self, tx: &mut Transaction, review: &Review) -> Answer<Option<u8>> {
        let (product, customer) = (review.product.0, review.customer.0);
        let key = rows::pair(product, customer);
        let before = tx.get(self.reviews, &key)?;
        let before =
            before.map(|row| rows::read_review(&row).ok_or_else(|| corrupt("reviews"))).transpose()?;
        let before = before.map(|(rating, _)| rating);
        let known = tx.get(self.ratings, &rows::key(product))?;
        let known = known.map(|row| rows::read_rating(&row).ok_or_else(|| corrupt("ratings"))).transpose()?;
        let mut rating = known.unwrap_or_default();
        rating.sum = rating.sum + u64::from(review.rating) - u64::from(before.unwrap_or(0));
        rating.count += u64::from(before.is_none());
        tx.put(self.reviews, &key, &rows::review(review.rating, review.text.as_deref()))?;
        tx.put(self.ratings, &rows::key(product), &rows::rating(rating))?;
        Ok(before)
    }

    fn checkout(&self, tx: &mut Transaction, stock: Stock, sale: &Checkout) -> Answer<Vec<ProductId>> {
        let cart = rows::key(sale.cart.0);
        let row = tx.get(self.carts, &cart)?.ok_or_else(|| Error::invalid("there is no such cart"))?;
        let products = rows::read_cart(&row).ok_or_else(|| corrupt("carts"))?;
        tx.delete(self.carts, &cart)?;
        tx.put(self.orders, &rows::key(sale.order.0), &rows::order(sale.customer, &products))?;
        if stock == Stock::Counted {
            for product in &products {
                let key = rows::key(product.0);
                let units =
                    tx.get(self.stock, &key)?.and_then(|row| Some(i64::from_le_bytes(row.try_into().ok()?)));
                let units = units.ok_or_else(|| corrupt("stock"))?;
                tx.put(self.stock, &key, &(units - 1).to_le_bytes())?;
            }
        }
        Ok(products)
    }

    fn listing(&self, snapshot: &Snapshot, id: ProductId) -> Result<Option<Listing>> {
        let key = rows::key(id.0);
        let Some(product) = snapshot.get_with(self.products, &key, rows::read_product)? else {
            return Ok(None);
        };
        let product = product.ok_or_else(|| corrupt("products"))?;
        let rating = match snapshot.get_with(self.ratings, &key, rows::read_rating)? {
            Some(found) => found.ok_or_else(|| corrupt("ratings"))?,
            None => Rating::default(),
        };
        Ok(Some(Listing { id, product, rating }))
    }
}

/// A cart, and the order and customer that it is for.
struct Checkout {
    cart: CartId,
    order: OrderId,
    customer: CustomerId,
}

impl Visit<'_> {
    /// Runs a durable transaction, and counts its retries.
    fn transact<T>(&mut self, mut body: impl FnMut(&Trees, &mut Transaction) -> Answer<T>) -> Result<T> {
        let mut runs = 0;
        let (out, _) = self.store.engine.transact(Durability::Disk, |tx| {
            runs += 1;
            body(&self.store.trees, tx)
        })?;
        self.retries += runs - 1;
        Ok(out)
    }
}

impl Shop for Visit<'_> {
    fn load(&mut self, items: &[Item]) -> Result<()> {
        self.transact(|trees, tx| items.iter().try_for_each(|item| trees.load(tx, item)))
    }

    fn loaded(&mut self) -> Result<()> {
        self.store.count_on()
    }

    fn lookup(&mut self, product: ProductId) -> Result<Option<Listing>> {
        self.store.trees.listing(&self.store.engine.snapshot()?, product)
    }

    fn find(&mut self, name: &str) -> Result<Option<Listing>> {
        let (snapshot, trees) = (self.store.engine.snapshot()?, &self.store.trees);
        match snapshot.get_with(trees.products_by_name, name.as_bytes(), rows::read_key)? {
            Some(id) => trees.listing(&snapshot, ProductId(id.ok_or_else(|| corrupt("products by name"))?)),
            None => Ok(None),
        }
    }

    fn create_cart(&mut self) -> Result<CartId> {
        let cart = CartId(self.store.last_cart.fetch_add(1, Ordering::Relaxed) + 1);
        self.transact(|trees, tx| tx.put(trees.carts, &rows::key(cart.0), &rows::cart(&[])))?;
        Ok(cart)
    }

    fn add(&mut self, cart: CartId, product: ProductId) -> Result<()> {
        let key = rows::key(cart.0);
        self.transact(|trees, tx| {
            let row = tx.get(trees.carts, &key)?.ok_or_else(|| Error::invalid("there is no such cart"))?;
            let mut products = rows::read_cart(&row).ok_or_else(|| corrupt("carts"))?;
            products.push(product);
            tx.put(trees.carts, &key, &rows::cart(&products))
        })
    }

    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> Result<Sale> {
        let order = OrderId(self.store.last_order.fetch_add(1, Ordering::Relaxed) + 1);
        let (sale, stock) = (Checkout { cart, order, customer }, self.store.stock);
        let products = self.transact(|trees, tx| trees.checkout(tx, stock, &sale))?;
        Ok(Sale { order, products })
    }

    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> Result<()> {
        let review = Review { customer, product, rating, text: None };
        self.transact(|trees, tx| trees.write_review(tx, &review))?;
        Ok(())
    }

    fn take_retries(&mut self) -> u64 {
        std::mem::take(&mut self.retries)
    }

    fn show(&mut self, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
        let (snapshot, trees) = (self.store.engine.snapshot()?, &self.store.trees);
        trees.check_indexes(&snapshot)?;
        for (name, tree, read) in trees.readers() {
            let mut found = snapshot.rows(tree, KeyRange::all(), Direction::Forward)?;
            while let Some(row) = found.next()? {
                see(read(row.key(), &row.value()?).ok_or_else(|| corrupt(name))?)?;
            }
        }
        Ok(())
    }
}

type Read = fn(&[u8], &[u8]) -> Option<Item>;

impl Trees {
    /// The decoders of each tree's rows.
    fn readers(&self) -> [(&'static str, TreeId, Read); 8] {
        [
            ("categories", self.categories, |key, row| {
                Some(Item::Category(CategoryId(rows::read_key(key)?), String::from_utf8(row.to_vec()).ok()?))
            }),
            ("products", self.products, |key, row| {
                Some(Item::Product(ProductId(rows::read_key(key)?), rows::read_product(row)?))
            }),
            ("customers", self.customers, |key, row| {
                let mut row = rows::Reader(row);
                let fields: Option<Vec<String>> = Customer::FIELDS.iter().map(|_| row.text()).collect();
                Some(Item::Customer(
                    CustomerId(rows::read_key(key)?),
                    Customer { fields: fields?.try_into().ok()? },
                ))
            }),
            ("orders", self.orders, |key, row| {
                Some(Item::Order(OrderId(rows::read_key(key)?), rows::read_order(row)?))
            }),
            ("carts", self.carts, |key, row| {
                Some(Item::Cart(CartId(rows::read_key(key)?), rows::read_cart(row)?))
            }),
            ("reviews", self.reviews, |key, row| {
                let (product, customer) = rows::read_pair(key)?;
                let (rating, text) = rows::read_review(row)?;
                let (product, customer) = (ProductId(product), CustomerId(customer));
                Some(Item::Review(Review { customer, product, rating, text }))
            }),
            ("ratings", self.ratings, |key, row| {
                Some(Item::Rating(ProductId(rows::read_key(key)?), rows::read_rating(row)?))
            }),
            ("stock", self.stock, |key, row| {
                let units = i64::from_le_bytes(row.try_into().ok()?);
                Some(Item::Stock(ProductId(rows::read_key(key)?), units))
            }),
        ]
    }

    /// Checks that the indexes contain every product under its name and its categories, and nothing else.
    fn check_indexes(&self, snapshot: &Snapshot) -> Result<()> {
        let mut products = snapshot.rows(self.products, KeyRange::all(), Direction::Forward)?;
        let (mut names, mut categories) = (0, 0);
        while let Some(row) = products.next()? {
            let product = rows::read_product(&row.value()?).ok_or_else(|| corrupt("products"))?;
            let named = snapshot.get(self.products_by_name, product.name.as_bytes())?;
            if named.as_deref() != Some(row.key()) {
                return Err(format!("{:?} is not found by its name", product.name).into());
            }
            names += 1;
            categories += product.categories.len() as u64;
        }
        for (tree, wanted) in [(self.products_by_name, names), (self.products_by_category, categories)] {
            let found = snapshot.count(tree, &KeyRange::all())?;
            if found != wanted {
                return Err(format!("an index has {found} entries, right is {wanted}").into());
            }
        }
        Ok(())
    }
}
