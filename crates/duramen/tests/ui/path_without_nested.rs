use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
struct Address {
    city: String,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = home.city))]
struct Person {
    #[key]
    id: u64,
    home: Address,
}

fn main() {}
