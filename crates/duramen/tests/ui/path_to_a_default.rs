use duramen::prelude::*;

#[derive(Serialize, Deserialize, Nested)]
struct Address {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    city: String,
    #[serde(default)]
    floor: Option<i32>,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = home.city), view(ByFloor, key = home.floor))]
struct Person {
    #[key]
    id: u64,
    home: Address,
}

fn main() {}
