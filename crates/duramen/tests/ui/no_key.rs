use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    id: u64,
}

fn main() {}
