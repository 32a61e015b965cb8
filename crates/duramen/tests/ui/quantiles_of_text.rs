use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByDelay, key = delay, reduce = (Count, Quantiles(carrier))))]
struct Flight {
    #[key]
    id: u64,
    carrier: String,
    delay: i32,
    distance: f64,
}

fn main() {}
