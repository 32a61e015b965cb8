use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(Order, key = city))]
struct Order {
    #[key]
    id: u64,
    city: String,
}

fn main() {}
