//! The oracle for a product's ratings while agents rate: the possible sums and counts at any moment.
//!
//! Every later reader must see an acknowledged review, and may see one that is submitted and not
//! acknowledged. Of two overlapping reviews for one pair of customer and product either may win. So each pair
//! has claims: a claim is submitted, then acknowledged, and replaces those that had been acknowledged before
//! it was submitted.
//!
//! A reader takes the [`Bounds`] before its query. If no claim of that product has changed until the answer,
//! count and sum must lie within them; without claims in flight that is a single value. Otherwise the count
//! may also include the claims submitted meanwhile, and the sum may be any that so many ratings can have.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::generator::Data;
use super::model::{CustomerId, ProductId, Rating, Review};

const POISON: &str = "nothing panics while a product's ratings are locked";

/// The claims of all reviews.
pub(super) struct Ratings {
    products: Vec<Mutex<Tally>>,
}

#[derive(Default)]
struct Tally {
    /// How often a claim was submitted or acknowledged.
    moves: u64,
    claims_made: u64,
    sum: Between,
    count: Between,
    pairs: BTreeMap<CustomerId, Vec<Claim>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Between {
    least: u64,
    most: u64,
}

#[derive(Clone)]
struct Claim {
    number: u64,
    rating: u8,
    acknowledged: bool,
    /// Loaded, so possibly with text.
    loaded: bool,
}

/// The possible ratings of a product at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    moves: u64,
    sum: Between,
    count: Between,
}

/// A claim that was submitted but not acknowledged.
#[must_use]
pub(super) struct Submitted {
    number: u64,
    /// The claims that it will replace.
    replaced: Vec<u64>,
}

impl Ratings {
    /// The claims of the loaded reviews.
    pub(super) fn new(data: &Data) -> Ratings {
        let products = (0..data.counts().products).map(|_| Mutex::default()).collect();
        let ratings = Ratings { products };
        for index in 0..data.review_count() {
            let review = data.review(index);
            ratings.tally(review.product).claim(review.customer, review.rating, true);
        }
        ratings
    }

    fn tally(&self, product: ProductId) -> MutexGuard<'_, Tally> {
        self.products[product.index()].lock().expect(POISON)
    }

    /// Call before a review is sent.
    pub(super) fn submit(&self, customer: CustomerId, product: ProductId, rating: u8) -> Submitted {
        let mut tally = self.tally(product);
        let known = tally.pairs.get(&customer).into_iter().flatten();
        let replaced = known.filter(|claim| claim.acknowledged).map(|claim| claim.number).collect();
        Submitted { number: tally.claim(customer, rating, false), replaced }
    }

    /// Call after a review was acknowledged.
    pub(super) fn acknowledge(&self, customer: CustomerId, product: ProductId, submitted: &Submitted) {
        self.tally(product).change(customer, |claims| {
            claims.retain(|claim| !submitted.replaced.contains(&claim.number));
            for claim in claims.iter_mut().filter(|claim| claim.number == submitted.number) {
                claim.acknowledged = true;
            }
        });
    }

    /// The possible answers for a reader that queries now.
    pub(super) fn bounds(&self, product: ProductId) -> Bounds {
        let tally = self.tally(product);
        Bounds { moves: tally.moves, sum: tally.sum, count: tally.count }
    }

    /// Checks an answer against the bounds from before the query.
    ///
    /// # Errors
    /// Why the answer is not possible.
    pub(super) fn check(&self, product: ProductId, before: Bounds, found: Rating) -> Result<(), String> {
        let now = self.bounds(product);
        let still = now.moves == before.moves;
        let sum = if still { now.sum } else { Between { least: found.count, most: 5 * found.count } };
        let count = Between { least: before.count.least, most: now.count.most };
        for (what, number, wanted) in [("count", found.count, count), ("sum", found.sum, sum)] {
            if number < wanted.least || number > wanted.most {
                let Between { least, most } = wanted;
                return Err(format!(
                    "{what} of the ratings of {product:?} is {number}, right is {least} to {most}"
                ));
            }
        }
        Ok(())
    }

    /// Checks a review at the end of the run.
    ///
    /// # Errors
    /// Why the review is not possible.
    pub(super) fn check_review(
        &self,
        review: &Review,
        text: impl Fn() -> Option<String>,
    ) -> Result<(), String> {
        let tally = self.tally(review.product);
        let claims = tally.pairs.get(&review.customer).map_or(&[][..], Vec::as_slice);
        let fits = |claim: &Claim| {
            let wanted = if claim.loaded { text() } else { None };
            claim.rating == review.rating && wanted == review.text
        };
        if claims.iter().any(fits) {
            return Ok(());
        }
        let wanted: Vec<u8> = claims.iter().map(|claim| claim.rating).collect();
        Err(format!("{review:?} is not what was acknowledged last: {wanted:?}"))
    }

    /// How many pairs have an acknowledged review.
    pub(super) fn pair_count(&self) -> usize {
        self.products.iter().map(|tally| tally.lock().expect(POISON).pairs.len()).sum()
    }
}

impl Tally {
    /// Adds a claim and returns its number.
    fn claim(&mut self, customer: CustomerId, rating: u8, loaded: bool) -> u64 {
        self.claims_made += 1;
        let number = self.claims_made;
        let claim = Claim { number, rating, acknowledged: loaded, loaded };
        self.change(customer, |claims| claims.push(claim.clone()));
        number
    }

    /// Changes a pair's claims, and the bounds accordingly.
    fn change(&mut self, customer: CustomerId, change: impl Fn(&mut Vec<Claim>)) {
        let claims = self.pairs.entry(customer).or_default();
        let before = share(claims);
        change(claims);
        let after = share(claims);
        for (bounds, before, after) in
            [(&mut self.count, before.0, after.0), (&mut self.sum, before.1, after.1)]
        {
            bounds.least = bounds.least + after.least - before.least;
            bounds.most = bounds.most + after.most - before.most;
        }
        self.moves += 1;
    }
}

/// What one pair may add to count and sum.
fn share(claims: &[Claim]) -> (Between, Between) {
    let ratings = claims.iter().map(|claim| u64::from(claim.rating));
    let (least, most) = (ratings.clone().min().unwrap_or(0), ratings.max().unwrap_or(0));
    let is_there = claims.iter().any(|claim| claim.acknowledged);
    let count = Between { least: u64::from(is_there), most: u64::from(!claims.is_empty()) };
    (count, Between { least: if is_there { least } else { 0 }, most })
}

#[cfg(test)]
mod tests {
    //! An oracle must not accept a lost review, and must not reject a right answer.
    use super::*;
    use crate::commerce::generator::Counts;
    use crate::commerce::shop::Stock;

    const CUSTOMER: CustomerId = CustomerId(1);
    const PRODUCT: ProductId = ProductId(1);

    fn ratings() -> Ratings {
        let counts = Counts { categories: 1, products: 2, customers: 2, orders: 0, reviews: 0 };
        Ratings::new(&Data::new(counts, Stock::Endless, 1))
    }

    fn allows(ratings: &Ratings, before: Bounds, count: u64, sum: u64) -> bool {
        ratings.check(PRODUCT, before, Rating { sum, count }).is_ok()
    }

    #[test]
    fn what_was_acknowledged_must_be_seen_and_nothing_else() {
        let ratings = ratings();
        let submitted = ratings.submit(CUSTOMER, PRODUCT, 4);
        ratings.acknowledge(CUSTOMER, PRODUCT, &submitted);
        let before = ratings.bounds(PRODUCT);
        assert!(allows(&ratings, before, 1, 4));
        assert!(
            !allows(&ratings, before, 0, 0)
                && !allows(&ratings, before, 1, 5)
                && !allows(&ratings, before, 2, 8)
        );
    }

    #[test]
    fn what_was_submitted_may_be_seen() {
        let ratings = ratings();
        let early = ratings.bounds(PRODUCT);
        let _submitted = ratings.submit(CUSTOMER, PRODUCT, 4);
        let before = ratings.bounds(PRODUCT);
        for (before, allowed) in [(before, true), (early, true)] {
            assert_eq!(allows(&ratings, before, 0, 0), allowed);
            assert_eq!(allows(&ratings, before, 1, 4), allowed);
        }
        assert!(!allows(&ratings, before, 1, 5) && !allows(&ratings, early, 2, 8));
    }

    #[test]
    fn a_later_review_takes_the_place_of_an_earlier_one_and_of_two_at_once_either_stays() {
        let ratings = ratings();
        let first = ratings.submit(CUSTOMER, PRODUCT, 4);
        ratings.acknowledge(CUSTOMER, PRODUCT, &first);
        let (left, right) = (ratings.submit(CUSTOMER, PRODUCT, 2), ratings.submit(CUSTOMER, PRODUCT, 5));
        ratings.acknowledge(CUSTOMER, PRODUCT, &left);
        ratings.acknowledge(CUSTOMER, PRODUCT, &right);
        let before = ratings.bounds(PRODUCT);
        assert!(allows(&ratings, before, 1, 2) && allows(&ratings, before, 1, 5));
        let review = |rating| Review { customer: CUSTOMER, product: PRODUCT, rating, text: None };
        let possible = |rating| ratings.check_review(&review(rating), || None).is_ok();
        assert_eq!([2, 5, 4].map(possible), [true, true, false]);
        let last = ratings.submit(CUSTOMER, PRODUCT, 1);
        ratings.acknowledge(CUSTOMER, PRODUCT, &last);
        let before = ratings.bounds(PRODUCT);
        assert!(allows(&ratings, before, 1, 1) && !allows(&ratings, before, 1, 2));
    }
}
