use duramen::prelude::*;

#[derive(Collection)]
struct Order {
    #[key]
    id: u64,
}

fn main() {}
