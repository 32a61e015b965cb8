use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCarrier, key = carrier, reduce = (Count, BottomK(100, delay))))]
struct Flight {
    #[key]
    id: u64,
    carrier: String,
    delay: i32,
    distance: f64,
}

fn main() {}
