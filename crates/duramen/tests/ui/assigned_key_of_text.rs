use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    #[key(assigned)]
    id: String,
}

fn main() {}
