use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, value = cents, reduce = Sum))]
struct Order {
    #[key]
    id: u64,
    cents: i64,
}

fn main() {}
