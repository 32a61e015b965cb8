//! The orders, the same for every engine, and what their answers come to.

use duramen::prelude::*;

/// Cities that orders go to.
pub(super) const CITIES: u64 = 50;

/// Orders of each customer.
pub(super) const ORDERS_OF_A_CUSTOMER: u64 = 10;

/// One order in a thousand is heavier.
pub(super) const HEAVY: f64 = 99.85;

/// An order, with an index by customer, one by city with sums, and one by time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "orders",
    view(ByCustomer, key = customer),
    view(ByCity, key = city, value = cents, reduce = (Count, Sum)),
    view(ByTime, key = placed)
)]
pub(super) struct Order {
    #[key]
    pub id: u64,
    pub customer: u64,
    pub city: String,
    pub cents: i64,
    pub status: String,
    pub placed: i64,
    pub express: bool,
    pub weight: f64,
}

/// The order of a number.
pub(super) fn order(id: u64) -> Order {
    let mixed = mix(id);
    Order {
        id,
        customer: id / ORDERS_OF_A_CUSTOMER,
        city: city(mixed % CITIES),
        cents: i64::try_from(mixed >> 8 & 0xf_ffff).expect("20 bits"),
        status: ["placed", "paid", "sent", "delivered"][(mixed >> 30 & 3) as usize].to_owned(),
        placed: 1_700_000_000 + i64::try_from(mixed >> 34 & 0xff_ffff).expect("24 bits"),
        express: mixed >> 60 & 1 == 1,
        weight: (mixed >> 20 & 0x3ff) as f64 * 100.0 / 1024.0,
    }
}

pub(super) fn city(number: u64) -> String {
    format!("the city of number {number}")
}

/// A number below `end`, the same in every run.
pub(super) fn drawn(at: u64, end: u64) -> u64 {
    mix(at ^ 0x5eed) % end
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// What all answers of an engine come to: they must be the same for every engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answers {
    orders: u64,
    /// The sum of a hash of every field of each.
    hashes: u64,
    sums: (u64, i64),
}

impl Answers {
    pub(super) fn add(&mut self, orders: &[Order]) {
        for Order { id, customer, city, cents, status, placed, express, weight } in orders {
            let numbers = [
                *customer,
                cents.cast_unsigned(),
                placed.cast_unsigned(),
                (*express).into(),
                weight.to_bits(),
            ];
            let hash = numbers.into_iter().fold(mix(*id), |hash, number| mix(hash ^ number));
            let hash =
                city.bytes().chain(status.bytes()).fold(hash, |hash, byte| mix(hash ^ u64::from(byte)));
            self.orders += 1;
            self.hashes = self.hashes.wrapping_add(hash);
        }
    }

    pub(super) fn add_sum(&mut self, (count, sum): (u64, i64)) {
        self.sums = (self.sums.0 + count, self.sums.1 + sum);
    }
}
