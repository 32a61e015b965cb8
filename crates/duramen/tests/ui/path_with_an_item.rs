use duramen::prelude::*;

#[derive(Serialize, Deserialize, Nested)]
struct Address {
    city: String,
    tags: Vec<String>,
    #[serde(alias = "level")]
    floor: i32,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByTag, key = home.0))]
struct Person {
    #[key]
    id: u64,
    home: Address,
}

fn main() {}
