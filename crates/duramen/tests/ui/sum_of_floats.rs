use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(Weights, key = city, reduce = Sum(weight)))]
struct Parcel {
    #[key]
    id: u64,
    city: String,
    weight: f64,
}

fn main() {}
