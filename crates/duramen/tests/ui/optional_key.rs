use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    #[key]
    id: Option<u64>,
}

fn main() {}
