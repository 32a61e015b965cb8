use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Person {
    #[key]
    at: Reverse<u64>,
}

fn main() {}
