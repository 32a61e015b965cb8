//! Audits a correct shop, and one with each fault in turn: an audit that cannot fail proves nothing.
//!
//! The shop is a list of rows in memory. It serves the shoppers correctly, and each fault is planted at the
//! end, before the audit.

use crate::commerce::agents::follow;
use crate::commerce::audit::audit;
use crate::commerce::generator::{Counts, Data, STOCK_UNITS};
use crate::commerce::model::{CartId, CustomerId, Item, Listing, Order, OrderId, ProductId, Rating, Review};
use crate::commerce::plans::{Mix, draw};
use crate::commerce::ratings::Ratings;
use crate::commerce::shop::{Sale, Shop, Stock, Store};
use crate::engine::Result;
use std::sync::{Mutex, MutexGuard};

const COUNTS: Counts = Counts { categories: 4, products: 12, customers: 5, orders: 20, reviews: 10 };

/// All rows, and the wrong answers that the shop gives while it is open.
struct Fake {
    items: Mutex<Vec<Item>>,
    lies: Lies,
}

#[derive(Clone, Copy, PartialEq)]
enum Lies {
    Never,
    ForgetsReviews,
    LosesAProductAtCheckout,
    NamesAnother,
}

struct Visit<'a>(&'a Fake);

impl Store for Fake {
    fn shop(&self) -> Result<Box<dyn Shop + '_>> {
        Ok(Box::new(Visit(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Visit<'_> {
    fn items(&self) -> MutexGuard<'_, Vec<Item>> {
        self.0.items.lock().unwrap()
    }

    fn cart(items: &mut [Item], wanted: CartId) -> &mut Vec<ProductId> {
        items
            .iter_mut()
            .find_map(|item| match item {
                Item::Cart(id, products) if *id == wanted => Some(products),
                _ => None,
            })
            .unwrap()
    }

    fn rating(items: &[Item], wanted: ProductId) -> Rating {
        let mut rating = Rating::default();
        for item in items {
            if let Item::Review(review) = item
                && review.product == wanted
            {
                rating.sum += u64::from(review.rating);
                rating.count += 1;
            }
        }
        rating
    }
}

impl Shop for Visit<'_> {
    fn load(&mut self, items: &[Item]) -> Result<()> {
        self.items().extend_from_slice(items);
        Ok(())
    }

    fn loaded(&mut self) -> Result<()> {
        Ok(())
    }

    fn lookup(&mut self, wanted: ProductId) -> Result<Option<Listing>> {
        let items = self.items();
        let rating = Visit::rating(&items, wanted);
        Ok(items.iter().find_map(|item| match item {
            Item::Product(id, product) if *id == wanted => {
                let mut product = product.clone();
                if self.0.lies == Lies::NamesAnother {
                    product.name.push('!');
                }
                Some(Listing { id: *id, product, rating })
            }
            _ => None,
        }))
    }

    fn find(&mut self, name: &str) -> Result<Option<Listing>> {
        let named = self.items().iter().find_map(|item| match item {
            Item::Product(id, product) if product.name == name => Some(*id),
            _ => None,
        });
        named.map_or(Ok(None), |id| self.lookup(id))
    }

    fn create_cart(&mut self) -> Result<CartId> {
        let mut items = self.items();
        let id = CartId(u32::try_from(items.len())?);
        items.push(Item::Cart(id, Vec::new()));
        Ok(id)
    }

    fn add(&mut self, cart: CartId, product: ProductId) -> Result<()> {
        Visit::cart(&mut self.items(), cart).push(product);
        Ok(())
    }

    fn checkout(&mut self, cart: CartId, customer: CustomerId) -> Result<Sale> {
        let mut items = self.items();
        let mut products = std::mem::take(Visit::cart(&mut items, cart));
        if self.0.lies == Lies::LosesAProductAtCheckout {
            products.pop();
        }
        // The cart's row becomes the order's, so that no id is assigned twice.
        let order = OrderId(1_000 + cart.0);
        let row = items.iter_mut().find(|item| matches!(item, Item::Cart(id, _) if *id == cart)).unwrap();
        *row = Item::Order(order, Order { customer, products: products.clone() });
        for item in items.iter_mut() {
            if let Item::Stock(id, units) = item {
                *units -= i64::try_from(products.iter().filter(|sold| *sold == id).count())?;
            }
        }
        Ok(Sale { order, products })
    }

    fn rate(&mut self, customer: CustomerId, product: ProductId, rating: u8) -> Result<()> {
        if self.0.lies == Lies::ForgetsReviews {
            return Ok(());
        }
        let mut items = self.items();
        let is_known = |item: &Item| matches!(item, Item::Review(known) if known.customer == customer && known.product == product);
        items.retain(|item| !is_known(item));
        // Ids of carts are counted by rows. A removed row is replaced, so that none is assigned twice.
        items.push(Item::Review(Review { customer, product, rating, text: None }));
        Ok(())
    }

    fn take_retries(&mut self) -> u64 {
        0
    }

    fn show(&mut self, see: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
        self.items().clone().into_iter().try_for_each(see)
    }
}

/// Shops with four agents, plants a fault, audits.
fn end(lies: Lies, plant: impl FnOnce(&mut Vec<Item>)) -> Result<()> {
    let data = Data::new(COUNTS, Stock::Counted, 11);
    let ratings = Ratings::new(&data);
    let store = Fake { items: Mutex::default(), lies };
    store.shop()?.load(&data.items().collect::<Vec<_>>())?;
    let plans = draw(Mix::Hot, COUNTS, 60, 11);
    let (done, _) = follow(&store, &data, &ratings, &plans, 4)?;
    {
        let mut items = store.items.lock().unwrap();
        let answers: Vec<Item> = (0..COUNTS.products)
            .map(ProductId::of)
            .map(|product| Item::Rating(product, Visit::rating(&items, product)))
            .collect();
        items.extend(answers);
        plant(&mut items);
    }
    audit(&mut *store.shop()?, &data, &ratings, &done.ledger)
}

/// Checks that the fault is found, and named correctly.
fn check(name: &str, plant: impl FnOnce(&mut Vec<Item>)) {
    let found = end(Lies::Never, plant).expect_err(name).to_string();
    assert!(found.starts_with("WRONG END: ") && found.contains(name), "{found}, want {name}");
}

fn remove(items: &mut Vec<Item>, is_meant: impl Fn(&Item) -> bool) -> Item {
    let index = items.iter().position(is_meant).expect("the run made one");
    items.remove(index)
}

fn new_order(item: &Item) -> bool {
    matches!(item, Item::Order(id, _) if id.0 > 1_000)
}

#[test]
fn a_shop_that_is_right_passes() {
    end(Lies::Never, |_| {}).unwrap();
}

#[test]
fn a_lost_cart_or_order_is_found() {
    check("carts are lost", |items| {
        remove(items, |item| matches!(item, Item::Cart(..)));
    });
    check("orders are lost", |items| {
        remove(items, new_order);
    });
    check("rows of kind order", |items| {
        remove(items, |item| matches!(item, Item::Order(OrderId(3), _)));
    });
}

#[test]
fn a_cart_that_outlives_its_checkout_is_found() {
    check("was checked out, or never left", |items| {
        items.push(Item::Cart(CartId(77_777), vec![ProductId(1)]));
    });
}

#[test]
fn an_order_or_a_cart_with_other_products_is_found() {
    check("holds", |items| {
        let order = remove(items, new_order);
        let Item::Order(id, mut order) = order else { panic!("an order") };
        order.products.pop();
        items.push(Item::Order(id, order));
    });
    check("holds", |items| {
        let cart = remove(items, |item| matches!(item, Item::Cart(..)));
        let Item::Cart(id, mut products) = cart else { panic!("a cart") };
        products.push(ProductId(2));
        items.push(Item::Cart(id, products));
    });
    check("right is CustomerId", |items| {
        let order = remove(items, new_order);
        let Item::Order(id, mut order) = order else { panic!("an order") };
        order.customer = CustomerId(order.customer.0 + 1);
        items.push(Item::Order(id, order));
    });
}

#[test]
fn an_order_nobody_placed_is_found() {
    check("order 999999 was never loaded", |items| {
        items.push(Item::Order(OrderId(999_999), Order { customer: CustomerId(1), products: Vec::new() }));
    });
}

#[test]
fn two_products_of_one_name_are_found() {
    check("two products are named", |items| {
        let product = items.iter().find(|item| matches!(item, Item::Product(ProductId(1), _))).cloned();
        let Some(Item::Product(_, product)) = product else { panic!("a product") };
        items.push(Item::Product(ProductId(13), product));
    });
}

#[test]
fn a_lost_second_or_older_review_is_found() {
    let is_review = |item: &Item| matches!(item, Item::Review(_));
    check("reviews: ", |items| {
        remove(items, is_review);
    });
    check("has two reviews", |items| {
        let review = items.iter().find(|item| is_review(item)).cloned().unwrap();
        items.push(review);
    });
    check("is not what was acknowledged last", |items| {
        let Item::Review(mut review) = remove(items, is_review) else { panic!("a review") };
        review.rating = review.rating % 5 + 1;
        items.push(Item::Review(review));
    });
    check("is not what was acknowledged last", |items| {
        let Item::Review(mut review) = remove(items, is_review) else { panic!("a review") };
        review.text = Some("never written".to_owned());
        items.push(Item::Review(review));
    });
}

#[test]
fn ratings_that_are_not_the_reviews_are_found() {
    check("ratings of", |items| {
        for item in items {
            if let Item::Rating(_, rating) = item {
                rating.sum += 1;
            }
        }
    });
    check("ratings of", |items| items.retain(|item| !matches!(item, Item::Rating(..))));
}

#[test]
fn a_stock_that_is_not_what_was_sold_is_found() {
    check("stock of", |items| {
        for item in items {
            if let Item::Stock(_, units) = item {
                *units = STOCK_UNITS;
            }
        }
    });
}

#[test]
fn wrong_answers_end_the_run() {
    for (lies, said) in [
        (Lies::ForgetsReviews, "of the ratings of"),
        (Lies::LosesAProductAtCheckout, "WRONG ANSWER to Checkout"),
        (Lies::NamesAnother, "right is ProductId"),
    ] {
        let found = end(lies, |_| {}).expect_err(said).to_string();
        assert!(found.contains("WRONG ANSWER") && found.contains(said), "{found}, want {said}");
    }
}
