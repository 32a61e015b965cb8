use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(Newest, key = at))]
struct Person {
    #[key]
    id: u64,
    at: Reverse<u64>,
}

fn main() {}
