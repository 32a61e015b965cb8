//! Every engine of the build stores a small shop, with conflicting agents, under the same oracle and audit as
//! a run; and rejects duplicates of unique values.

use std::fs;
use std::path::Path;

use super::all;
use crate::commerce::Setting;
use crate::commerce::generator::{Data, Size};
use crate::commerce::model::{CartId, CustomerId, Item, ProductId};
use crate::commerce::plans::Mix;
use crate::commerce::shop::{Entry, Stock};
use crate::commerce::turn::turn;
use crate::job::{Job, Step};

fn in_directory(entry: &Entry, name: &str, check: impl FnOnce(&Path)) {
    let dir = std::env::temp_dir().join(format!(
        "duramen-commerce-test-{}-{name}-{}",
        std::process::id(),
        entry.name
    ));
    fs::create_dir_all(&dir).unwrap();
    check(&dir);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn commerce_is_right_in_every_engine() {
    for entry in all() {
        for mix in [Mix::Default, Mix::Hot] {
            in_directory(&entry, &format!("{mix:?}"), |dir| {
                let setting = Setting { size: Size::Small, mix };
                let job = Job {
                    engine: entry.name.to_owned(),
                    step: Step::Commerce(setting),
                    dir: dir.to_owned(),
                    seed: 5,
                    seconds: 0.0,
                    threads: 4,
                    rows: 40,
                };
                let outcome = turn(&job, setting).unwrap_or_else(|failed| panic!("{}: {failed}", entry.name));
                assert!(outcome.figures["Checkout count"] > 0.0, "{}", entry.name);
            });
        }
    }
}

#[test]
fn what_must_be_unique_is_refused_and_nothing_of_it_is_written() {
    for entry in all() {
        in_directory(&entry, "unique", |dir| {
            let data = Data::new(Size::Small.counts(), Stock::Endless, 5);
            let store = (entry.open)(dir, Stock::Endless).unwrap();
            let mut shop = store.shop().unwrap();
            shop.load(&data.items().collect::<Vec<_>>()).unwrap();
            shop.loaded().unwrap();
            let mut again = data.product(ProductId(1)).clone();
            let second = Item::Product(ProductId(901), again.clone());
            again.name.push('!');
            let other = Item::Product(ProductId(900), again.clone());
            assert!(shop.load(&[other, second]).is_err(), "{}: two of one name", entry.name);
            assert_eq!(shop.find(&again.name).unwrap(), None, "{}", entry.name);
            let review = data.review(0);
            assert!(shop.load(&[Item::Review(review)]).is_err(), "{}: two of one pair", entry.name);
            drop(shop);
            store.close().unwrap();
        });
    }
}

#[test]
fn a_cart_is_checked_out_once() {
    for entry in all() {
        in_directory(&entry, "once", |dir| {
            let data = Data::new(Size::Small.counts(), Stock::Endless, 5);
            let store = (entry.open)(dir, Stock::Endless).unwrap();
            let mut shop = store.shop().unwrap();
            shop.load(&data.items().collect::<Vec<_>>()).unwrap();
            shop.loaded().unwrap();
            let cart = shop.create_cart().unwrap();
            shop.add(cart, ProductId(7)).unwrap();
            shop.add(cart, ProductId(7)).unwrap();
            let sale = shop.checkout(cart, CustomerId(3)).unwrap();
            assert_eq!(sale.products, [ProductId(7), ProductId(7)], "{}", entry.name);
            assert!(shop.checkout(cart, CustomerId(3)).is_err(), "{}", entry.name);
            assert!(shop.checkout(CartId(4_000_000), CustomerId(3)).is_err(), "{}", entry.name);
            drop(shop);
            store.close().unwrap();
        });
    }
}
