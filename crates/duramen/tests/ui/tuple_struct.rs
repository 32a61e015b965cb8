use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order(u64, String);

fn main() {}
