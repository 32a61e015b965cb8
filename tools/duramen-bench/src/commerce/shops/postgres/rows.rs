//! Writes rows to PostgreSQL by COPY, and reads them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Row};

use crate::commerce::model::{
    CartId, CategoryId, Customer, CustomerId, Item, Listing, Order, OrderId, Product, ProductId, Rating,
    Review,
};
use crate::engine::Result;

/// Lines for COPY, by table.
#[derive(Default)]
struct Lines(BTreeMap<&'static str, String>);

impl Lines {
    fn add(&mut self, table: &'static str, fields: &[&dyn Display]) {
        let escaped = |field: &&dyn Display| {
            field.to_string().replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
        };
        let lines = self.0.entry(table).or_default();
        lines.push_str(&fields.iter().map(escaped).collect::<Vec<_>>().join("\t"));
        lines.push('\n');
    }

    fn take(&mut self, item: &Item) -> Result<()> {
        match item {
            Item::Category(id, name) => self.add("categories (id, name)", &[&id.0, name]),
            Item::Product(id, product) => {
                self.add("products (id, name)", &[&id.0, &product.name]);
                for category in &product.categories {
                    self.add("product_categories", &[&id.0, &category.0]);
                }
            }
            Item::Customer(id, customer) => {
                let fields = customer.fields.iter().map(|field| field as &dyn Display);
                self.add("customers", &std::iter::once(&id.0 as _).chain(fields).collect::<Vec<_>>());
            }
            Item::Order(id, order) => {
                self.add("orders (id, customer_id)", &[&id.0, &order.customer.0]);
                for product in &order.products {
                    self.add("order_products", &[&id.0, &product.0]);
                }
            }
            Item::Review(Review { customer, product, rating, text }) => match text {
                Some(text) => self.add("product_reviews", &[&customer.0, &product.0, rating, text]),
                None => self.add(
                    "product_reviews (customer_id, product_id, rating)",
                    &[&customer.0, &product.0, rating],
                ),
            },
            Item::Stock(id, units) => self.add("stock", &[&id.0, units]),
            Item::Cart(..) | Item::Rating(..) => return Err("carts and ratings are not loaded".into()),
        }
        Ok(())
    }
}

/// Writes rows in one transaction.
pub fn load(client: &mut Client, items: &[Item]) -> Result<()> {
    let mut lines = Lines::default();
    items.iter().try_for_each(|item| lines.take(item))?;
    let mut transaction = client.transaction()?;
    for (table, lines) in lines.0 {
        let mut copy = transaction.copy_in(&format!("COPY {table} FROM STDIN"))?;
        copy.write_all(lines.as_bytes())?;
        copy.finish()?;
    }
    Ok(transaction.commit()?)
}

/// The row of a search.
pub fn listing(row: &Row) -> Result<Listing> {
    let product = Product { name: row.get(1), categories: ids(row, 2, CategoryId::read)? };
    let rating = Rating { sum: unsigned(row, 3)?, count: unsigned(row, 4)? };
    Ok(Listing { id: ProductId::read(row.get(0))?, product, rating })
}

fn ids<T>(row: &Row, column: usize, of: fn(i64) -> Result<T>) -> Result<Vec<T>> {
    row.get::<_, Vec<i64>>(column).into_iter().map(of).collect()
}

fn unsigned(row: &Row, column: usize) -> Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column))?)
}

/// Shows every row of every table.
pub fn show(client: &mut Client, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
    for (text, read) in READERS {
        let mut rows = client.query_raw(text, std::iter::empty::<i64>())?;
        while let Some(row) = rows.next()? {
            see(read(&row)?)?;
        }
    }
    Ok(())
}

type Read = fn(&Row) -> Result<Item>;

/// The decoders of each table's rows.
const READERS: [(&str, Read); 8] = [
    ("SELECT id, name FROM categories", |row| Ok(Item::Category(CategoryId::read(row.get(0))?, row.get(1)))),
    (
        "SELECT id, name, ARRAY(SELECT category_id FROM product_categories WHERE product_id = id ORDER BY 1) FROM products",
        |row| {
            let product = Product { name: row.get(1), categories: ids(row, 2, CategoryId::read)? };
            Ok(Item::Product(ProductId::read(row.get(0))?, product))
        },
    ),
    ("SELECT * FROM customers", |row| {
        let fields: Vec<String> = (1..=Customer::FIELDS.len()).map(|column| row.get(column)).collect();
        let fields = fields.try_into().map_err(|_| "a customer has other fields")?;
        Ok(Item::Customer(CustomerId::read(row.get(0))?, Customer { fields }))
    }),
    (
        "SELECT id, customer_id, ARRAY(SELECT product_id FROM order_products WHERE order_id = id) FROM orders",
        |row| {
            let order =
                Order { customer: CustomerId::read(row.get(1))?, products: ids(row, 2, ProductId::read)? };
            Ok(Item::Order(OrderId::read(row.get(0))?, order))
        },
    ),
    ("SELECT id, ARRAY(SELECT product_id FROM cart_products WHERE cart_id = id) FROM carts", |row| {
        Ok(Item::Cart(CartId::read(row.get(0))?, ids(row, 1, ProductId::read)?))
    }),
    ("SELECT customer_id, product_id, rating, review FROM product_reviews", |row| {
        let (customer, product) = (CustomerId::read(row.get(0))?, ProductId::read(row.get(1))?);
        let rating = u8::try_from(row.get::<_, i16>(2))?;
        Ok(Item::Review(Review { customer, product, rating, text: row.get(3) }))
    }),
    ("SELECT product_id, sum, count FROM product_ratings", |row| {
        let rating = Rating { sum: unsigned(row, 1)?, count: unsigned(row, 2)? };
        Ok(Item::Rating(ProductId::read(row.get(0))?, rating))
    }),
    ("SELECT product_id, units FROM stock", |row| Ok(Item::Stock(ProductId::read(row.get(0))?, row.get(1)))),
];
