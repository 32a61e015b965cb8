//! Duramen with its typed interface: structs in collections, a unique view for names, a view for categories,
//! and the ratings of a product as a reduction over its reviews. Nothing is maintained by hand.
//!
//! Owns the structs. Ids of carts and orders are assigned by the database. `remote` has the same shop on a
//! database that another process would have open.

use std::path::Path;

use duramen::prelude::*;

use crate::commerce::model::{
    self, CartId, CategoryId, CustomerId, Item, Listing, OrderId, ProductId, Rating,
};
use crate::commerce::shop::{self, Entry, Sale, Shop, Stock};
use crate::engine;

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "duramen-typed",
    setting: "Db::open(), level Disk; seven typed collections and four views; documents by shape; transact(), \
              which runs again what met a conflict",
    open,
};

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "categories")]
struct Category {
    #[key]
    id: u32,
    name: String,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(
    name = "products",
    view(ProductByName, key = name, unique),
    view(ProductsByCategory, key = categories, each)
)]
struct Product {
    #[key]
    id: u32,
    name: String,
    categories: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "customers")]
struct Customer {
    #[key]
    id: u32,
    name: String,
    email: String,
    address: String,
    city: String,
    region: String,
    country: String,
    postal_code: String,
    phone: String,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "orders")]
struct Order {
    #[key(assigned)]
    id: u32,
    customer: u32,
    products: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "carts")]
struct Cart {
    #[key(assigned)]
    id: u32,
    products: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "reviews", view(Ratings, key = product, value = rating, reduce = (Count, Sum)))]
struct Review {
    #[key]
    product: u32,
    #[key]
    customer: u32,
    rating: u8,
    text: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "stock")]
struct Units {
    #[key]
    product: u32,
    units: i64,
}

struct Typed {
    db: Db,
    stock: Stock,
}

/// What one agent has of the shop.
pub(super) struct Visit<S> {
    db: S,
    stock: Stock,
    retries: u64,
}

impl<S> Visit<S> {
    pub(super) fn new(db: S, stock: Stock) -> Visit<S> {
        Visit { db, stock, retries: 0 }
    }
}

fn open(path: &Path, stock: Stock) -> engine::Result<Box<dyn shop::Store>> {
    Ok(Box::new(Typed { db: Db::open(path)?, stock }))
}

impl shop::Store for Typed {
    fn shop(&self) -> engine::Result<Box<dyn Shop + '_>> {
        Ok(Box::new(Visit::new(self.db.clone(), self.stock)))
    }

    fn note(&self) -> Option<String> {
        Some(format!(
            "a commit waits for {}, the fastest when the database was created",
            self.db.durability_status().sync_call
        ))
    }

    fn close(self: Box<Self>) -> engine::Result<()> {
        Ok(self.db.close()?)
    }
}

fn load<T: Tx>(tx: &mut T, item: &Item) -> Result<()> {
    match item {
        Item::Category(id, name) => tx.insert(&Category { id: id.0, name: name.clone() }),
        Item::Product(id, product) => tx.insert(&Product {
            id: id.0,
            name: product.name.clone(),
            categories: product.categories.iter().map(|category| category.0).collect(),
        }),
        Item::Customer(id, customer) => {
            let [name, email, address, city, region, country, postal_code, phone] = customer.fields.clone();
            tx.insert(&Customer { id: id.0, name, email, address, city, region, country, postal_code, phone })
        }
        Item::Order(id, order) => {
            tx.insert(&Order { id: id.0, customer: order.customer.0, products: numbers(&order.products) })
        }
        Item::Review(review) => tx.insert(&Review {
            product: review.product.0,
            customer: review.customer.0,
            rating: review.rating,
            text: review.text.clone(),
        }),
        Item::Stock(id, units) => tx.insert(&Units { product: id.0, units: *units }),
        Item::Cart(..) | Item::Rating(..) => Err(Error::invalid("carts and ratings are not loaded")),
    }
}

fn numbers(products: &[ProductId]) -> Vec<u32> {
    products.iter().map(|id| id.0).collect()
}

fn ids(products: Vec<u32>) -> Vec<ProductId> {
    products.into_iter().map(ProductId).collect()
}

fn checkout<T: Tx>(tx: &mut T, stock: Stock, cart: CartId, customer: CustomerId) -> Result<Sale> {
    let Cart { products, .. } =
        tx.take::<Cart>(cart.0)?.ok_or_else(|| Error::invalid("there is no such cart"))?;
    if stock == Stock::Counted {
        for product in &products {
            tx.modify::<Units>(*product, |units| {
                units.units -= 1;
                Ok(())
            })?;
        }
    }
    let order = tx.push(Order { id: 0, customer: customer.0, products })?;
    Ok(Sale { order: OrderId(order.id), products: ids(order.products) })
}

fn listing(state: &impl Reads, product: Product) -> engine::Result<Listing> {
    let (count, sum) = state.view::<Ratings>().key(product.id).reduce()?;
    let rating = Rating { sum: u64::try_from(sum)?, count };
    let categories = product.categories.into_iter().map(CategoryId).collect();
    let id = ProductId(product.id);
    Ok(Listing { id, product: model::Product { name: product.name, categories }, rating })
}

impl<S: Store> Visit<S> {
    /// Runs a durable transaction, and counts its retries.
    fn transact<T>(&mut self, mut body: impl FnMut(&mut S::Tx<'_>) -> Result<T>) -> engine::Result<T> {
        let mut runs = 0;
        let out = self.db.transact(|tx| {
            runs += 1;
            body(tx)
        })?;
        self.retries += runs - 1;
        Ok(out)
    }
}

impl<S: Store> Shop for Visit<S> {
    fn load(&mut self, items: &[Item]) -> engine::Result<()> {
        self.transact(|tx| items.iter().try_for_each(|item| load(tx, item)))
    }

    fn loaded(&mut self) -> engine::Result<()> {
        Ok(())
    }

    fn lookup(&mut self, product: ProductId) -> engine::Result<Option<Listing>> {
        let snapshot = self.db.snapshot()?;
        snapshot.get::<Product>(product.0)?.map(|product| listing(&snapshot, product)).transpose()
    }

    fn find(&mut self, name: &str) -> engine::Result<Option<Listing>> {
        let snapshot = self.db.snapshot()?;
        let found = snapshot.view::<ProductByName>().key(name).first_doc()?;
        found.map(|product| listing(&snapshot, product)).transpose()
    }

    fn create_cart(&mut self) -> engine::Result<CartId> {
        let cart = self.transact(|tx| tx.push(Cart { id: 0, products: Vec::new() }))?;
        Ok(CartId(cart.id))
    }

    fn add(&mut self, cart: CartId, product: ProductId) -> engine::Result<()> {
        self.transact(|tx| {
            tx.modify::<Cart>(cart.0, |cart| {
                cart.products.push(product.0);
                Ok(())
            })
        })?;
        Ok(())
    }

    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> engine::Result<Sale> {
        let stock = self.stock;
        self.transact(|tx| checkout(tx, stock, cart, customer))
    }

    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> engine::Result<()> {
        let review = Review { product: product.0, customer: customer.0, rating, text: None };
        self.transact(|tx| tx.put(&review))
    }

    fn take_retries(&mut self) -> u64 {
        std::mem::take(&mut self.retries)
    }

    fn show(&mut self, see: &mut dyn FnMut(Item) -> engine::Result<()>) -> engine::Result<()> {
        let snapshot = self.db.snapshot()?;
        check_categories(&snapshot)?;
        for category in snapshot.collection::<Category>().iter()? {
            let Category { id, name } = category?;
            see(Item::Category(CategoryId(id), name))?;
        }
        for product in snapshot.collection::<Product>().iter()? {
            let Listing { id, product, rating } = listing(&snapshot, product?)?;
            see(Item::Product(id, product))?;
            if rating.count > 0 {
                see(Item::Rating(id, rating))?;
            }
        }
        for customer in snapshot.collection::<Customer>().iter()? {
            let Customer { id, name, email, address, city, region, country, postal_code, phone } = customer?;
            let fields = [name, email, address, city, region, country, postal_code, phone];
            see(Item::Customer(CustomerId(id), model::Customer { fields }))?;
        }
        for order in snapshot.collection::<Order>().iter()? {
            let Order { id, customer, products } = order?;
            let order = model::Order { customer: CustomerId(customer), products: ids(products) };
            see(Item::Order(OrderId(id), order))?;
        }
        for cart in snapshot.collection::<Cart>().iter()? {
            let Cart { id, products } = cart?;
            see(Item::Cart(CartId(id), ids(products)))?;
        }
        for review in snapshot.collection::<Review>().iter()? {
            let Review { product, customer, rating, text } = review?;
            let (product, customer) = (ProductId(product), CustomerId(customer));
            see(Item::Review(model::Review { customer, product, rating, text }))?;
        }
        for units in snapshot.collection::<Units>().iter()? {
            let Units { product, units } = units?;
            see(Item::Stock(ProductId(product), units))?;
        }
        Ok(())
    }
}

/// Checks that the view contains every product under its categories, and nothing else.
fn check_categories(snapshot: &impl Reads) -> engine::Result<()> {
    let mut wanted = 0;
    for product in snapshot.collection::<Product>().iter()? {
        wanted += product?.categories.len() as u64;
    }
    let found = snapshot.view::<ProductsByCategory>().count()?;
    if found != wanted {
        return Err(format!("the view of categories has {found} rows, right is {wanted}").into());
    }
    Ok(())
}
