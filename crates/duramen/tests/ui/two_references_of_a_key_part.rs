use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    #[key]
    id: u64,
}

#[derive(Serialize, Deserialize, Collection)]
struct Line {
    #[key]
    #[references(Order)]
    #[references(Order, on_delete = cascade)]
    order: u64,
    #[key]
    number: u32,
}

fn main() {}
