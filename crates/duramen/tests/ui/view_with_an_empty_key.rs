use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(Total, key = (), value = cents, reduce = Sum))]
struct Order {
    #[key]
    id: u64,
    cents: i64,
}

fn main() {}
