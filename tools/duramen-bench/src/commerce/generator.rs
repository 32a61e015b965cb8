//! The rows of the load, derived from a seed and a row's number: the same on every machine, and known to the
//! oracle without an engine.
//!
//! Owns the sizes and the rules: how many categories a product has, what an order holds, which pairs of
//! customer and product have a review.

use clap::ValueEnum;
use duramen_disk::memory::{Random, mixed};
use serde::{Deserialize, Serialize};

use super::model::{CategoryId, Customer, CustomerId, Item, Order, OrderId, Product, ProductId, Review};
use super::shop::Stock;
use super::words;

/// The initial stock of a product: more than any run sells.
pub(super) const STOCK_UNITS: i64 = 1_000_000;

/// An order has fewer products than this.
const ORDER_PRODUCTS_END: usize = 20;

/// One of this many reviews has text.
const REVIEWS_PER_TEXT: usize = 4;

/// How much a shop holds before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Size {
    /// 100 products, 100 customers, 125 orders, 50 reviews.
    Small,
    /// 1,000 products, 1,000 customers, 1,500 orders, 500 reviews.
    Medium,
    /// 5,000 products, 5,000 customers, 5,000 orders, 1,000 reviews.
    Large,
    /// Ten times a cache of 256 MiB: 1,000,000 products, 8,000,000 customers, 2,000,000 orders, 2,000,000
    /// reviews.
    Xlarge,
}

/// The number of rows of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Categories.
    pub categories: usize,
    /// Products.
    pub products: usize,
    /// Customers.
    pub customers: usize,
    /// Orders.
    pub orders: usize,
    /// Reviews, at most one for each pair of customer and product that occurs in orders.
    pub reviews: usize,
}

impl Size {
    /// The number of rows of each kind.
    pub(crate) fn counts(self) -> Counts {
        let counts = |categories, products, customers, orders, reviews| Counts {
            categories,
            products,
            customers,
            orders,
            reviews,
        };
        match self {
            Size::Small => counts(10, 100, 100, 125, 50),
            Size::Medium => counts(50, 1_000, 1_000, 1_500, 500),
            Size::Large => counts(100, 5_000, 5_000, 5_000, 1_000),
            Size::Xlarge => counts(20, 1_000_000, 8_000_000, 2_000_000, 2_000_000),
        }
    }
}

/// The purpose of drawn numbers, so that rows of different kinds do not resemble each other.
#[derive(Clone, Copy)]
enum Kind {
    Product = 1,
    Customer,
    Order,
    Pairs,
    Review,
}

/// The rows of one data set.
pub(super) struct Data {
    counts: Counts,
    stock: Stock,
    seed: u64,
    /// Computed once, because shoppers query them often.
    products: Vec<Product>,
    /// Pairs that have a review.
    reviewed: Vec<(CustomerId, ProductId)>,
}

impl Data {
    /// The rows of these counts and this seed.
    pub(super) fn new(counts: Counts, stock: Stock, seed: u64) -> Data {
        let mut data = Data { counts, stock, seed, products: Vec::new(), reviewed: Vec::new() };
        data.products = (0..counts.products).map(|index| data.make_product(index)).collect();
        data.reviewed = data.draw_reviewed();
        data
    }

    /// The number of rows of each kind.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the stock is counted.
    pub(super) fn stock(&self) -> Stock {
        self.stock
    }

    /// A product.
    pub(super) fn product(&self, id: ProductId) -> &Product {
        &self.products[id.index()]
    }

    /// Every row, in the order of loading.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        let categories = (0..self.counts.categories).map(|index| self.category(index));
        let products = self.products.iter().enumerate();
        let products = products.map(|(index, product)| Item::Product(ProductId::of(index), product.clone()));
        let customers = (0..self.counts.customers).map(|index| self.customer(index));
        let orders = (0..self.counts.orders).map(|index| Item::Order(OrderId::of(index), self.order(index)));
        let reviews = (0..self.reviewed.len()).map(|index| Item::Review(self.review(index)));
        let counted = if self.stock == Stock::Counted { self.counts.products } else { 0 };
        let stock = (0..counted).map(|index| Item::Stock(ProductId::of(index), STOCK_UNITS));
        categories.chain(products).chain(customers).chain(orders).chain(reviews).chain(stock)
    }

    /// The category at an index.
    pub(super) fn category(&self, index: usize) -> Item {
        Item::Category(CategoryId::of(index), format!("{} {index}", words::of(words::THINGS, index)))
    }

    /// The customer at an index.
    pub(super) fn customer(&self, index: usize) -> Item {
        let mut random = self.random(Kind::Customer, index);
        let first = *random.pick(words::FIRST_NAMES);
        let last = *random.pick(words::LAST_NAMES);
        let suffix = random.below(256);
        let fields = [
            format!("{first} {last} {suffix}"),
            format!("{}.{}.{index}@example.org", first.to_lowercase(), last.to_lowercase()),
            format!(
                "{} {} {}",
                random.between(1, 2000),
                random.pick(words::LAST_NAMES),
                random.pick(words::STREETS)
            ),
            format!("{} {}", random.pick(words::PLACES), random.pick(words::CITIES)),
            (*random.pick(words::REGIONS)).to_owned(),
            (*random.pick(words::COUNTRIES)).to_owned(),
            format!("{:05}", random.below(100_000)),
            format!("+{} {:09}", random.between(1, 99), random.below(1_000_000_000)),
        ];
        Item::Customer(CustomerId::of(index), Customer { fields })
    }

    /// The order at an index: up to 19 distinct products.
    pub(super) fn order(&self, index: usize) -> Order {
        let mut random = self.random(Kind::Order, index);
        let customer = CustomerId::of(random.below(self.counts.customers));
        let count = random.below((self.counts.products + 2).div_euclid(3).min(ORDER_PRODUCTS_END));
        let products = distinct(&mut random, count, self.counts.products);
        Order { customer, products: products.into_iter().map(ProductId::of).collect() }
    }

    /// The review at an index.
    pub(super) fn review(&self, index: usize) -> Review {
        let mut random = self.random(Kind::Review, index);
        let (customer, product) = self.reviewed[index];
        let rating = u8::try_from(random.between(1, 6)).expect("at most 5");
        let text = random.chance(1, REVIEWS_PER_TEXT).then(|| words::paragraphs(&mut random));
        Review { customer, product, rating, text }
    }

    /// How many reviews there are.
    pub(super) fn review_count(&self) -> usize {
        self.reviewed.len()
    }

    /// An invertible multiplication gives every index a distinct number, in no order.
    fn make_product(&self, index: usize) -> Product {
        let mut random = self.random(Kind::Product, index);
        let number = ProductId::of(index).0.wrapping_mul(0x9e37_79b1);
        let name = format!(
            "{} {} {} {number:08x}",
            random.pick(words::LOOKS),
            random.pick(words::MATERIALS),
            random.pick(words::THINGS)
        );
        let count = random.below(self.counts.categories.div_ceil(2).max(1));
        let mut categories = distinct(&mut random, count, self.counts.categories);
        categories.sort_unstable();
        Product { name, categories: categories.into_iter().map(CategoryId::of).collect() }
    }

    /// Draws pairs without repetition from those that occur in orders.
    fn draw_reviewed(&self) -> Vec<(CustomerId, ProductId)> {
        let orders = (0..self.counts.orders).map(|index| self.order(index));
        let mut pairs: Vec<_> = orders
            .flat_map(|order| order.products.into_iter().map(move |product| (order.customer, product)))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut random = self.random(Kind::Pairs, 0);
        random.shuffle(&mut pairs);
        pairs.truncate(self.counts.reviews);
        pairs.shrink_to_fit();
        pairs
    }

    fn random(&self, kind: Kind, index: usize) -> Random {
        Random::new(mixed(self.seed ^ mixed((kind as u64) << 48 | index as u64)))
    }
}

/// Distinct numbers below a bound, in the order drawn.
fn distinct(random: &mut Random, count: usize, bound: usize) -> Vec<usize> {
    let mut drawn: Vec<usize> = Vec::with_capacity(count);
    while drawn.len() < count {
        let number = random.below(bound);
        if !drawn.contains(&number) {
            drawn.push(number);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    //! Rows that differ from run to run, or break the rules, would make the comparison meaningless.
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_rows_and_another_gives_others() {
        let rows = |seed| Data::new(Size::Small.counts(), Stock::Counted, seed).items().collect::<Vec<_>>();
        assert_eq!(rows(1), rows(1));
        assert_ne!(rows(1), rows(2));
        let counts = Size::Small.counts();
        let all = counts.categories + 2 * counts.products + counts.customers + counts.orders + counts.reviews;
        assert_eq!(rows(1).len(), all);
    }

    #[test]
    fn names_are_unique_and_reviews_are_of_what_was_ordered_once() {
        let data = Data::new(Size::Medium.counts(), Stock::Endless, 7);
        let names: BTreeSet<_> = data.products.iter().map(|product| &product.name).collect();
        assert_eq!(names.len(), data.counts.products);
        let ordered: BTreeSet<_> = (0..data.counts.orders)
            .map(|index| data.order(index))
            .flat_map(|order| order.products.into_iter().map(move |product| (order.customer, product)))
            .collect();
        let reviewed: BTreeSet<_> = data.reviewed.iter().copied().collect();
        assert_eq!(reviewed.len(), data.counts.reviews);
        assert!(reviewed.is_subset(&ordered));
        assert!(data.products.iter().all(|product| product.categories.len() < 25));
        assert!((0..data.counts.orders).all(|index| data.order(index).products.len() < ORDER_PRODUCTS_END));
    }

    #[test]
    fn reviews_end_with_the_pairs() {
        let counts = Counts { categories: 1, products: 3, customers: 2, orders: 2, reviews: 100 };
        let data = Data::new(counts, Stock::Endless, 3);
        assert!(data.review_count() <= 6);
    }
}
