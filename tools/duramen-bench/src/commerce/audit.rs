//! The audit at the end of a run: every row, compared with the load and with the answers to shoppers.
//!
//! - Every acknowledged order exists with exactly its products, and every abandoned cart with exactly its
//!   contents. There are no others.
//! - No row of the load is missing, duplicated or changed, and names are unique.
//! - Every pair of customer and product has at most one review, the last acknowledged.
//! - The shop's ratings are the sums of the reviews.
//! - A counted stock is the initial stock less the sold units.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::generator::{Data, STOCK_UNITS};
use super::model::{CartId, CustomerId, Item, Order, OrderId, Product, ProductId, Rating, Review};
use super::ratings::Ratings;
use super::shop::{Shop, Stock};
use super::shopper::Ledger;
use crate::engine::{Failure, Result};

/// Checks every row.
///
/// # Errors
/// The first fault, or an error of the shop.
pub(super) fn audit(shop: &mut dyn Shop, data: &Data, ratings: &Ratings, ledger: &Ledger) -> Result<()> {
    let mut audit = Audit::new(data, ratings, ledger);
    shop.show(&mut |item| audit.see(&item).map_err(|what| wrong(&what)))?;
    audit.finish().map_err(|what| wrong(&what))
}

fn wrong(what: &str) -> Failure {
    format!("WRONG END: {what}").into()
}

type Seen<T = ()> = std::result::Result<T, String>;

struct Audit<'a> {
    data: &'a Data,
    ratings: &'a Ratings,
    /// Orders and carts not seen yet.
    orders: HashMap<OrderId, (CustomerId, &'a [ProductId])>,
    carts: HashMap<CartId, &'a [ProductId]>,
    told_twice: bool,
    sold: HashMap<ProductId, i64>,
    /// The loaded reviews, for their text.
    loaded: HashMap<(CustomerId, ProductId), usize>,
    /// By kind, which loaded rows were seen.
    seen: BTreeMap<&'static str, Vec<bool>>,
    names: HashSet<String>,
    reviewed: HashSet<(CustomerId, ProductId)>,
    /// By product: the sums of the reviews, and the shop's answers.
    summed: BTreeMap<ProductId, Rating>,
    answered: BTreeMap<ProductId, Rating>,
}

impl<'a> Audit<'a> {
    fn new(data: &'a Data, ratings: &'a Ratings, ledger: &'a Ledger) -> Audit<'a> {
        let mut sold = HashMap::new();
        for product in ledger.orders.iter().flat_map(|(_, _, products)| products) {
            *sold.entry(*product).or_default() += 1;
        }
        let loaded = (0..data.review_count()).map(|index| (data.review(index), index));
        let orders: HashMap<_, _> =
            ledger.orders.iter().map(|(id, who, what)| (*id, (*who, &what[..]))).collect();
        let carts: HashMap<_, _> = ledger.carts.iter().map(|(id, what)| (*id, &what[..])).collect();
        Audit {
            data,
            ratings,
            told_twice: orders.len() < ledger.orders.len() || carts.len() < ledger.carts.len(),
            orders,
            carts,
            sold,
            loaded: loaded.map(|(review, index)| ((review.customer, review.product), index)).collect(),
            seen: BTreeMap::new(),
            names: HashSet::new(),
            reviewed: HashSet::new(),
            summed: BTreeMap::new(),
            answered: BTreeMap::new(),
        }
    }

    fn see(&mut self, item: &Item) -> Seen {
        match item {
            Item::Category(id, _) => {
                self.once("category", id.0, self.data.counts().categories)?;
                same(item, &self.data.category(id.0 as usize - 1))
            }
            Item::Product(id, product) => self.product(*id, product),
            Item::Customer(id, _) => {
                self.once("customer", id.0, self.data.counts().customers)?;
                same(item, &self.data.customer(id.0 as usize - 1))
            }
            Item::Order(id, order) => self.order(*id, order),
            Item::Cart(id, products) => {
                let wanted = self.carts.remove(id);
                let wanted =
                    wanted.ok_or_else(|| format!("{id:?} was checked out, or never left, and is there"))?;
                contents(&format!("{id:?}"), products, wanted)
            }
            Item::Review(review) => self.review(review),
            Item::Rating(id, rating) => {
                let before = self.answered.insert(*id, *rating);
                before.map_or(Ok(()), |_| Err(format!("{id:?} has two answers for its ratings")))
            }
            Item::Stock(id, units) => {
                self.once("stock", id.0, self.data.counts().products)?;
                same(units, &(STOCK_UNITS - self.sold.get(id).copied().unwrap_or(0)))
                    .map_err(|what| format!("stock of {id:?}: {what}"))
            }
        }
    }

    fn once(&mut self, kind: &'static str, id: u32, count: usize) -> Seen {
        let seen = self.seen.entry(kind).or_insert_with(|| vec![false; count]);
        let seen = (id as usize).checked_sub(1).and_then(|index| seen.get_mut(index));
        let seen = seen.ok_or_else(|| format!("{kind} {id} was never loaded"))?;
        if std::mem::replace(seen, true) { Err(format!("{kind} {id} is there twice")) } else { Ok(()) }
    }

    fn product(&mut self, id: ProductId, product: &Product) -> Seen {
        if !self.names.insert(product.name.clone()) {
            return Err(format!("two products are named {:?}", product.name));
        }
        self.once("product", id.0, self.data.counts().products)?;
        same(product, self.data.product(id))
    }

    fn order(&mut self, id: OrderId, order: &Order) -> Seen {
        if let Some((customer, products)) = self.orders.remove(&id) {
            same(&order.customer, &customer).map_err(|what| format!("{id:?}: {what}"))?;
            return contents(&format!("{id:?}"), &order.products, products);
        }
        self.once("order", id.0, self.data.counts().orders)?;
        let wanted = self.data.order(id.0 as usize - 1);
        same(&order.customer, &wanted.customer).map_err(|what| format!("{id:?}: {what}"))?;
        contents(&format!("{id:?}"), &order.products, &wanted.products)
    }

    fn review(&mut self, review: &Review) -> Seen {
        let pair = (review.customer, review.product);
        if !self.reviewed.insert(pair) {
            return Err(format!("{pair:?} has two reviews"));
        }
        let loaded = self.loaded.get(&pair).copied();
        self.ratings.check_review(review, || loaded.and_then(|index| self.data.review(index).text))?;
        let rating = self.summed.entry(review.product).or_default();
        rating.sum += u64::from(review.rating);
        rating.count += 1;
        Ok(())
    }

    /// Fails for rows that were not seen.
    fn finish(mut self) -> Seen {
        if self.told_twice {
            return Err("two orders, or two carts, were given one id".to_owned());
        }
        if let Some((id, _)) = self.orders.iter().next() {
            return Err(format!("{} orders are lost, {id:?} among them", self.orders.len()));
        }
        if let Some((id, _)) = self.carts.iter().next() {
            return Err(format!("{} carts are lost, {id:?} among them", self.carts.len()));
        }
        let counts = self.data.counts();
        let stock = if self.data.stock() == Stock::Counted { counts.products } else { 0 };
        for (kind, wanted) in [
            ("category", counts.categories),
            ("product", counts.products),
            ("customer", counts.customers),
            ("order", counts.orders),
            ("stock", stock),
        ] {
            let found = self.seen.get(kind).map_or(0, |seen| seen.iter().filter(|seen| **seen).count());
            same(&found, &wanted).map_err(|what| format!("rows of kind {kind}: {what}"))?;
        }
        same(&self.reviewed.len(), &self.ratings.pair_count()).map_err(|what| format!("reviews: {what}"))?;
        self.answered.retain(|_, rating| rating.count > 0);
        for (product, summed) in &self.summed {
            let answered = self.answered.remove(product).unwrap_or_default();
            same(&answered, summed).map_err(|what| format!("ratings of {product:?}: {what}"))?;
        }
        match self.answered.first_key_value() {
            Some((product, rating)) => Err(format!("{product:?} has no review, and {rating:?}")),
            None => Ok(()),
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Seen {
    if found == wanted { Ok(()) } else { Err(format!("{found:?}, right is {wanted:?}")) }
}

/// Compares products, in any order.
fn contents(what: &str, found: &[ProductId], wanted: &[ProductId]) -> Seen {
    let sorted = |products: &[ProductId]| {
        let mut sorted = products.to_vec();
        sorted.sort_unstable();
        sorted
    };
    same(&sorted(found), &sorted(wanted)).map_err(|how| format!("{what} holds {how}"))
}

#[cfg(test)]
mod tests;
