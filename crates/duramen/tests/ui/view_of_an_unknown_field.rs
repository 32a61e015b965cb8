use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = town))]
struct Order {
    #[key]
    id: u64,
    city: String,
}

fn main() {}
