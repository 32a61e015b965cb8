//! SQLite by rusqlite: ordinary tables and indexes, a log, full durability. Ratings are in a table that is
//! maintained with the reviews, in one transaction.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use crate::commerce::model::{
    CartId, CategoryId, Customer, CustomerId, Item, Listing, Order, OrderId, Product, ProductId, Rating,
    Review,
};
use crate::commerce::shop::{Entry, Sale, Shop, Stock, Store};
use crate::engine::Result;

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "sqlite",
    setting: "journal_mode=WAL, synchronous=FULL; tables with indexes; 256 MiB of cache and 4 GiB of memory map a \
              connection, prepared statements; BEGIN IMMEDIATE for writes, which queue at a lock of the process: \
              SQLite's own waiting sleeps",
    open,
};

const BUSY_WAIT: Duration = Duration::from_secs(60);
const POISON: &str = "nothing panics while it writes";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS products (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS product_categories (product_id INTEGER NOT NULL, category_id INTEGER NOT NULL,
        PRIMARY KEY (product_id, category_id)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS products_by_category ON product_categories (category_id);
    CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT, address TEXT, city TEXT,
        region TEXT, country TEXT, postal_code TEXT, phone TEXT);
    CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS order_products (order_id INTEGER NOT NULL, product_id INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS products_by_order ON order_products (order_id);
    CREATE TABLE IF NOT EXISTS carts (id INTEGER PRIMARY KEY, customer_id INTEGER);
    CREATE TABLE IF NOT EXISTS cart_products (cart_id INTEGER NOT NULL, product_id INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS products_by_cart ON cart_products (cart_id);
    CREATE TABLE IF NOT EXISTS product_reviews (product_id INTEGER NOT NULL, customer_id INTEGER NOT NULL,
        rating INTEGER NOT NULL, review TEXT, PRIMARY KEY (product_id, customer_id)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS product_ratings (product_id INTEGER PRIMARY KEY, sum INTEGER NOT NULL,
        count INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS stock (product_id INTEGER PRIMARY KEY, units INTEGER NOT NULL);";

struct Sqlite {
    path: PathBuf,
    stock: Stock,
    writing: Mutex<()>,
    /// Keeps the log's file until the end, as a program would.
    _first: Mutex<Connection>,
}

struct Visit<'a> {
    store: &'a Sqlite,
    connection: Connection,
}

fn open(path: &Path, stock: Stock) -> Result<Box<dyn Store>> {
    let path = path.join("sqlite");
    let first = connect(&path)?;
    first.execute_batch(TABLES)?;
    Ok(Box::new(Sqlite { path, stock, writing: Mutex::new(()), _first: Mutex::new(first) }))
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -(256 << 10))?;
    connection.pragma_update(None, "mmap_size", 4_i64 << 30)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

impl Store for Sqlite {
    fn shop(&self) -> Result<Box<dyn Shop + '_>> {
        Ok(Box::new(Visit { store: self, connection: connect(&self.path)? }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Visit<'_> {
    /// Runs a durable transaction.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let _turn: MutexGuard<'_, ()> = self.store.writing.lock().expect(POISON);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let out = work(&transaction)?;
        transaction.commit()?;
        Ok(out)
    }

    fn listing(&mut self, filter: &str, wanted: impl rusqlite::ToSql) -> Result<Option<Listing>> {
        let transaction = self.connection.transaction()?;
        let text = format!(
            "SELECT id, name, COALESCE(sum, 0), COALESCE(count, 0) FROM products \
             LEFT JOIN product_ratings ON product_id = id WHERE {filter} = ?1"
        );
        let mut select = transaction.prepare_cached(&text)?;
        let found = select.query_row([wanted], |row| {
            Ok((row.get(0)?, row.get(1)?, Rating { sum: unsigned(row, 2)?, count: unsigned(row, 3)? }))
        });
        let Some((id, name, rating)) = found.optional()? else { return Ok(None) };
        let categories = categories(&transaction, id)?;
        let product = Product { name, categories };
        Ok(Some(Listing { id: ProductId::read(id)?, product, rating }))
    }
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

fn categories(connection: &Connection, product: i64) -> Result<Vec<CategoryId>> {
    let text = "SELECT category_id FROM product_categories WHERE product_id = ?1 ORDER BY category_id";
    let mut select = connection.prepare_cached(text)?;
    let mut rows = select.query([product])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(CategoryId::read(row.get(0)?)?);
    }
    Ok(found)
}

/// The products of an order or a cart.
fn products(connection: &Connection, table: &str, column: &str, id: i64) -> Result<Vec<ProductId>> {
    let mut select =
        connection.prepare_cached(&format!("SELECT product_id FROM {table} WHERE {column} = ?1"))?;
    let mut rows = select.query([id])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(ProductId::read(row.get(0)?)?);
    }
    Ok(found)
}

fn run(connection: &Connection, text: &str, values: impl rusqlite::Params) -> Result<usize> {
    Ok(connection.prepare_cached(text)?.execute(values)?)
}

fn load(tx: &Transaction<'_>, item: &Item) -> Result<()> {
    match item {
        Item::Category(id, name) => {
            run(tx, "INSERT INTO categories VALUES (?1, ?2)", params![id.0, name])?;
        }
        Item::Product(id, product) => {
            run(tx, "INSERT INTO products VALUES (?1, ?2)", params![id.0, product.name])?;
            for category in &product.categories {
                run(tx, "INSERT INTO product_categories VALUES (?1, ?2)", [id.0, category.0])?;
            }
        }
        Item::Customer(id, customer) => {
            let fields = customer.fields.iter().map(|field| field as &dyn rusqlite::ToSql);
            let values: Vec<&dyn rusqlite::ToSql> = std::iter::once(&id.0 as _).chain(fields).collect();
            run(tx, "INSERT INTO customers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", &values[..])?;
        }
        Item::Order(id, order) => {
            run(tx, "INSERT INTO orders VALUES (?1, ?2)", [id.0, order.customer.0])?;
            for product in &order.products {
                run(tx, "INSERT INTO order_products VALUES (?1, ?2)", [id.0, product.0])?;
            }
        }
        Item::Review(review) => {
            let text = "INSERT INTO product_reviews VALUES (?1, ?2, ?3, ?4)";
            run(tx, text, params![review.product.0, review.customer.0, review.rating, review.text])?;
            count_rating(tx, review.product, i64::from(review.rating), 1)?;
        }
        Item::Stock(id, units) => {
            run(tx, "INSERT INTO stock VALUES (?1, ?2)", params![id.0, units])?;
        }
        Item::Cart(..) | Item::Rating(..) => return Err("carts and ratings are not loaded".into()),
    }
    Ok(())
}

fn count_rating(tx: &Transaction<'_>, product: ProductId, more_sum: i64, more_count: i64) -> Result<()> {
    let text = "INSERT INTO product_ratings VALUES (?1, ?2, ?3) \
                ON CONFLICT DO UPDATE SET sum = sum + excluded.sum, count = count + excluded.count";
    run(tx, text, params![product.0, more_sum, more_count])?;
    Ok(())
}

fn take_stock(tx: &Transaction<'_>, products: &[ProductId]) -> Result<()> {
    for product in products {
        run(tx, "UPDATE stock SET units = units - 1 WHERE product_id = ?1", [product.0])?;
    }
    Ok(())
}

impl Shop for Visit<'_> {
    fn load(&mut self, items: &[Item]) -> Result<()> {
        self.write(|tx| items.iter().try_for_each(|item| load(tx, item)))
    }

    fn loaded(&mut self) -> Result<()> {
        Ok(self.connection.execute_batch("ANALYZE")?)
    }

    fn lookup(&mut self, product: ProductId) -> Result<Option<Listing>> {
        self.listing("id", product.0)
    }

    fn find(&mut self, name: &str) -> Result<Option<Listing>> {
        self.listing("name", name)
    }

    fn create_cart(&mut self) -> Result<CartId> {
        self.write(|tx| {
            run(tx, "INSERT INTO carts (customer_id) VALUES (NULL)", [])?;
            CartId::read(tx.last_insert_rowid())
        })
    }

    fn add(&mut self, cart: CartId, product: ProductId) -> Result<()> {
        self.write(|tx| run(tx, "INSERT INTO cart_products VALUES (?1, ?2)", [cart.0, product.0]))?;
        Ok(())
    }

    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> Result<Sale> {
        let stock = self.store.stock;
        self.write(|tx| {
            if run(tx, "DELETE FROM carts WHERE id = ?1", [cart.0])? == 0 {
                return Err(format!("there is no {cart:?}").into());
            }
            run(tx, "INSERT INTO orders (customer_id) VALUES (?1)", [customer.0])?;
            let order = tx.last_insert_rowid();
            let products = products(tx, "cart_products", "cart_id", i64::from(cart.0))?;
            for product in &products {
                run(tx, "INSERT INTO order_products VALUES (?1, ?2)", params![order, product.0])?;
            }
            run(tx, "DELETE FROM cart_products WHERE cart_id = ?1", [cart.0])?;
            if stock == Stock::Counted {
                take_stock(tx, &products)?;
            }
            Ok(Sale { order: OrderId::read(order)?, products })
        })
    }

    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> Result<()> {
        self.write(|tx| {
            let text = "SELECT rating FROM product_reviews WHERE product_id = ?1 AND customer_id = ?2";
            let mut select = tx.prepare_cached(text)?;
            let before: Option<i64> =
                select.query_row([product.0, customer.0], |row| row.get(0)).optional()?;
            let text = "INSERT INTO product_reviews VALUES (?1, ?2, ?3, NULL) \
                        ON CONFLICT DO UPDATE SET rating = excluded.rating, review = NULL";
            run(tx, text, params![product.0, customer.0, rating])?;
            let more_sum = i64::from(rating) - before.unwrap_or(0);
            count_rating(tx, product, more_sum, i64::from(before.is_none()))
        })
    }

    fn take_retries(&mut self) -> u64 {
        0
    }

    fn show(&mut self, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
        let tx = self.connection.transaction()?;
        for (text, read) in READERS {
            let mut select = tx.prepare(text)?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                see(read(&tx, row)?)?;
            }
        }
        Ok(())
    }
}

type Read = fn(&Connection, &Row<'_>) -> Result<Item>;

/// The decoders of each table's rows.
const READERS: [(&str, Read); 8] = [
    ("SELECT id, name FROM categories", |_, row| {
        Ok(Item::Category(CategoryId::read(row.get(0)?)?, row.get(1)?))
    }),
    ("SELECT id, name FROM products", |tx, row| {
        let product = Product { name: row.get(1)?, categories: categories(tx, row.get(0)?)? };
        Ok(Item::Product(ProductId::read(row.get(0)?)?, product))
    }),
    ("SELECT * FROM customers", |_, row| {
        let mut fields: [String; Customer::FIELDS.len()] = Default::default();
        for (index, field) in fields.iter_mut().enumerate() {
            *field = row.get(index + 1)?;
        }
        Ok(Item::Customer(CustomerId::read(row.get(0)?)?, Customer { fields }))
    }),
    ("SELECT id, customer_id FROM orders", |tx, row| {
        let products = products(tx, "order_products", "order_id", row.get(0)?)?;
        Ok(Item::Order(
            OrderId::read(row.get(0)?)?,
            Order { customer: CustomerId::read(row.get(1)?)?, products },
        ))
    }),
    ("SELECT id FROM carts", |tx, row| {
        let products = products(tx, "cart_products", "cart_id", row.get(0)?)?;
        Ok(Item::Cart(CartId::read(row.get(0)?)?, products))
    }),
    ("SELECT product_id, customer_id, rating, review FROM product_reviews", |_, row| {
        let (product, customer) = (ProductId::read(row.get(0)?)?, CustomerId::read(row.get(1)?)?);
        Ok(Item::Review(Review { customer, product, rating: row.get(2)?, text: row.get(3)? }))
    }),
    ("SELECT product_id, sum, count FROM product_ratings", |_, row| {
        let rating = Rating { sum: unsigned(row, 1)?, count: unsigned(row, 2)? };
        Ok(Item::Rating(ProductId::read(row.get(0)?)?, rating))
    }),
    ("SELECT product_id, units FROM stock", |_, row| {
        Ok(Item::Stock(ProductId::read(row.get(0)?)?, row.get(1)?))
    }),
];
