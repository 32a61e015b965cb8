use std::collections::HashMap;

use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    #[key]
    lines: HashMap<String, u64>,
}

fn main() {}
