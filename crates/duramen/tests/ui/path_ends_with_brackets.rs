use duramen::prelude::*;

#[derive(Serialize, Deserialize, Nested)]
struct Line {
    product: u32,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByProduct, key = lines[], each))]
struct Order {
    #[key]
    id: u64,
    lines: Vec<Line>,
}

fn main() {}
