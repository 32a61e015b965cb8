use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCarrier, key = carrier, reduce = TopK(delay)))]
struct Flight {
    #[key]
    id: u64,
    carrier: String,
    delay: i32,
    distance: f64,
}

fn main() {}
