//! Shoppers' plans: lists of steps, drawn before the run. The only state between the steps is the shopper's
//! cart.
//!
//! Owns the mixes. In `hot` products are drawn by Zipf's law, so that agents compete for the same ones.

use clap::ValueEnum;
use duramen_disk::memory::{Random, mixed};
use serde::{Deserialize, Serialize};

use super::generator::Counts;
use super::model::{CustomerId, ProductId};
use super::shop::Stock;

/// What shoppers are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Mix {
    /// 1 to 10 searches; adds, buys and rates with 25 in 100.
    Balanced,
    /// 1 to 10 searches; 10 in 100.
    ReadHeavy,
    /// 1 to 10 searches; 90 in 100.
    WriteHeavy,
    /// 1 to 20 searches; 25 in 100.
    Default,
    /// As write-heavy, of products by Zipf's law, and each checkout takes from the products' stock.
    Hot,
}

impl Mix {
    /// Percentages: adds a found product, buys the contents of the cart, rates a bought product.
    fn percent(self) -> usize {
        match self {
            Mix::ReadHeavy => 10,
            Mix::Balanced | Mix::Default => 25,
            Mix::WriteHeavy | Mix::Hot => 90,
        }
    }

    fn searches_max(self) -> usize {
        if self == Mix::Default { 20 } else { 10 }
    }

    /// Whether checkouts reduce a stock.
    pub(crate) fn stock(self) -> Stock {
        if self == Mix::Hot { Stock::Counted } else { Stock::Endless }
    }
}

/// One step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// LookupProduct.
    Lookup(ProductId),
    /// FindProduct by its name.
    Find(ProductId),
    /// CreateCart.
    CreateCart,
    /// AddProductToCart.
    Add(ProductId),
    /// Checkout for a customer.
    Checkout(CustomerId),
    /// RateProduct.
    Rate(CustomerId, ProductId, u8),
}

/// Draws plans.
pub(super) fn draw(mix: Mix, counts: Counts, count: usize, seed: u64) -> Vec<Vec<Step>> {
    let mut random = Random::new(mixed(seed ^ 0x0070_6c61_6e73));
    let products = Products::new(mix, counts.products, &mut random);
    (0..count).map(|_| plan(mix, counts, &products, &mut random)).collect()
}

fn plan(mix: Mix, counts: Counts, products: &Products, random: &mut Random) -> Vec<Step> {
    let percent = mix.percent();
    let mut steps = Vec::new();
    let mut wanted = Vec::new();
    for _ in 0..random.between(1, mix.searches_max() + 1) {
        let product = products.draw(random);
        steps.push(if random.chance(1, 2) { Step::Lookup(product) } else { Step::Find(product) });
        if random.chance(percent, 100) {
            if wanted.is_empty() {
                steps.push(Step::CreateCart);
            }
            steps.push(Step::Add(product));
            wanted.push(product);
        }
    }
    if !wanted.is_empty() && random.chance(percent, 100) {
        let customer = CustomerId::of(random.below(counts.customers));
        steps.push(Step::Checkout(customer));
        for product in wanted {
            if random.chance(percent, 100) {
                let rating = u8::try_from(random.between(1, 6)).expect("at most 5");
                steps.push(Step::Rate(customer, product, rating));
            }
        }
    }
    steps
}

/// The distribution of products.
enum Products {
    /// Uniform, over this many.
    Uniform(usize),
    /// The cumulative weights, and the product at each rank.
    Zipf(Vec<f64>, Vec<ProductId>),
}

impl Products {
    #[allow(clippy::cast_precision_loss, reason = "places are far below 2^53")]
    fn new(mix: Mix, count: usize, random: &mut Random) -> Products {
        if mix != Mix::Hot {
            return Products::Uniform(count);
        }
        let mut sum = 0.0;
        let weight = |place: usize| {
            sum += 1.0 / (place + 1) as f64;
            sum
        };
        let sums = (0..count).map(weight).collect();
        // The most popular ones are not neighbours.
        let mut order: Vec<ProductId> = (0..count).map(ProductId::of).collect();
        random.shuffle(&mut order);
        Products::Zipf(sums, order)
    }

    #[allow(clippy::cast_precision_loss, reason = "53 bits are kept")]
    fn draw(&self, random: &mut Random) -> ProductId {
        match self {
            Products::Uniform(count) => ProductId::of(random.below(*count)),
            Products::Zipf(sums, order) => {
                let part = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
                let at = part * sums.last().copied().unwrap_or_default();
                order[sums.partition_point(|sum| *sum <= at).min(order.len() - 1)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Plans that break the rules would make results incomparable over time.
    use super::*;
    use crate::commerce::generator::Size;

    #[allow(clippy::cast_precision_loss, reason = "few steps")]
    fn means(mix: Mix) -> [f64; 6] {
        let plans = draw(mix, Size::Medium.counts(), 40_000, 5);
        let mut counts = [0.0; 6];
        for step in plans.iter().flatten() {
            counts[match step {
                Step::Lookup(_) => 0,
                Step::Find(_) => 1,
                Step::CreateCart => 2,
                Step::Add(_) => 3,
                Step::Checkout(_) => 4,
                Step::Rate(..) => 5,
            }] += 1.0;
        }
        counts.map(|count| count / plans.len() as f64)
    }

    #[test]
    fn each_mix_has_the_operations_that_the_original_has() {
        for (mix, wanted) in [
            (Mix::Balanced, [2.75, 2.75, 0.72, 1.37, 0.18, 0.09]),
            (Mix::ReadHeavy, [2.75, 2.75, 0.41, 0.55, 0.04, 0.005]),
            (Mix::WriteHeavy, [2.75, 2.75, 0.99, 4.96, 0.89, 4.02]),
            (Mix::Default, [5.24, 5.24, 0.85, 2.62, 0.21, 0.17]),
        ] {
            for (found, wanted) in means(mix).into_iter().zip(wanted) {
                assert!((found - wanted).abs() < 0.03 + wanted * 0.01, "{mix:?}: {found}, want {wanted}");
            }
        }
    }

    #[test]
    fn hot_plans_want_a_few_products_most() {
        let plans = draw(Mix::Hot, Size::Medium.counts(), 2_000, 9);
        let mut counts = vec![0_usize; 1000];
        for step in plans.iter().flatten() {
            if let Step::Add(product) = step {
                counts[product.index()] += 1;
            }
        }
        let all: usize = counts.iter().sum();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // 1 / H(1000) is 0.134.
        assert!((all / 9..all / 6).contains(&counts[0]), "{} of {all}", counts[0]);
    }
}
