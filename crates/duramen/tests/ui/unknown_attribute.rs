use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(table = "orders")]
struct Order {
    #[key]
    id: u64,
}

fn main() {}
