use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = city, reduce = (Count, Sum)))]
struct Order {
    #[key]
    id: u64,
    city: String,
    cents: i64,
}

fn main() {}
