//! One agent: follows plans step by step, times each call, compares each answer with the expected one.
//!
//! Owns the agent's ledger: the carts it abandoned, and its acknowledged orders. A wrong answer is an error,
//! and ends the run.

use std::time::Instant;

use super::generator::Data;
use super::model::{CartId, CustomerId, Listing, Operation, OrderId, ProductId};
use super::plans::Step;
use super::ratings::Ratings;
use super::shop::Shop;
use crate::engine::{Failure, Result};

/// The acknowledged results of shoppers, all of which must exist at the end.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// Orders with customer and products.
    pub orders: Vec<(OrderId, CustomerId, Vec<ProductId>)>,
    /// Abandoned carts with their contents.
    pub carts: Vec<(CartId, Vec<ProductId>)>,
}

/// The calls of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    /// Nanoseconds of each.
    pub samples: Vec<u64>,
    /// How often a call had to be retried.
    pub retries: u64,
}

/// The results of one agent, or of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    /// By operation, in the order of [`Operation::ALL`].
    pub calls: [Calls; Operation::ALL.len()],
    /// The acknowledged results.
    pub ledger: Ledger,
}

impl Done {
    /// The results of both.
    pub(super) fn and(mut self, other: Done) -> Done {
        for (all, more) in self.calls.iter_mut().zip(other.calls) {
            all.samples.extend(more.samples);
            all.retries += more.retries;
        }
        self.ledger.orders.extend(other.ledger.orders);
        self.ledger.carts.extend(other.ledger.carts);
        self
    }
}

/// An agent.
pub(super) struct Shopper<'a> {
    shop: Box<dyn Shop + 'a>,
    data: &'a Data,
    ratings: &'a Ratings,
    cart: Option<(CartId, Vec<ProductId>)>,
    done: Done,
}

impl<'a> Shopper<'a> {
    /// An agent on one session.
    pub(super) fn new(shop: Box<dyn Shop + 'a>, data: &'a Data, ratings: &'a Ratings) -> Shopper<'a> {
        Shopper { shop, data, ratings, cart: None, done: Done::default() }
    }

    /// Follows all steps of a plan, and abandons the cart if nothing was bought.
    ///
    /// # Errors
    /// An error of the shop, or a wrong answer.
    pub(super) fn follow(&mut self, plan: &[Step]) -> Result<()> {
        plan.iter().try_for_each(|step| self.step(*step))?;
        self.done.ledger.carts.extend(self.cart.take());
        Ok(())
    }

    /// The results.
    pub(super) fn done(self) -> Done {
        self.done
    }

    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Lookup(product) => {
                self.listing(Operation::LookupProduct, product, |shop| shop.lookup(product))
            }
            Step::Find(product) => {
                let name = &self.data.product(product).name;
                self.listing(Operation::FindProduct, product, |shop| shop.find(name))
            }
            Step::CreateCart => {
                let cart = self.timed(Operation::CreateCart, |shop| shop.create_cart())?;
                self.cart = Some((cart, Vec::new()));
                Ok(())
            }
            Step::Add(product) => {
                let (cart, _) = self.cart.as_ref().ok_or("the plan has no cart")?;
                let cart = *cart;
                self.timed(Operation::AddProductToCart, |shop| shop.add(cart, product))?;
                self.cart.iter_mut().for_each(|(_, products)| products.push(product));
                Ok(())
            }
            Step::Checkout(customer) => self.checkout(customer),
            Step::Rate(customer, product, rating) => {
                let submitted = self.ratings.submit(customer, product, rating);
                self.timed(Operation::RateProduct, |shop| shop.rate(customer, product, rating))?;
                self.ratings.acknowledge(customer, product, &submitted);
                Ok(())
            }
        }
    }

    /// A search, whose answer must be the product as loaded and possible ratings.
    fn listing(
        &mut self,
        operation: Operation,
        id: ProductId,
        ask: impl FnOnce(&mut dyn Shop) -> Result<Option<Listing>>,
    ) -> Result<()> {
        let bounds = self.ratings.bounds(id);
        let found = self.timed(operation, ask)?;
        let found = found.ok_or_else(|| wrong(operation, &format!("{id:?} was not found")))?;
        let product = self.data.product(id);
        if found.id != id || found.product != *product {
            return Err(wrong(operation, &format!("{found:?}, right is {id:?}, {product:?}")));
        }
        self.ratings.check(id, bounds, found.rating).map_err(|why| wrong(operation, &why))
    }

    fn checkout(&mut self, customer: CustomerId) -> Result<()> {
        let (cart, mut products) = self.cart.take().ok_or("the plan has no cart")?;
        let mut sale = self.timed(Operation::Checkout, |shop| shop.checkout(cart, customer))?;
        products.sort_unstable();
        sale.products.sort_unstable();
        if sale.products != products {
            let text = format!("{cart:?} held {:?}, right is {products:?}", sale.products);
            return Err(wrong(Operation::Checkout, &text));
        }
        self.done.ledger.orders.push((sale.order, customer, products));
        Ok(())
    }

    fn timed<T>(&mut self, operation: Operation, work: impl FnOnce(&mut dyn Shop) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let answer = work(&mut *self.shop);
        let took = begun.elapsed();
        let answer =
            answer.map_err(|failed| -> Failure { format!("{}: {failed}", operation.name()).into() })?;
        let calls = &mut self.done.calls[operation as usize];
        calls.samples.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        calls.retries += self.shop.take_retries();
        Ok(answer)
    }
}

fn wrong(operation: Operation, what: &str) -> Failure {
    format!("WRONG ANSWER to {}: {what}", operation.name()).into()
}
