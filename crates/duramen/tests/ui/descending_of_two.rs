use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(Newest, key = desc(at, id)))]
struct Person {
    #[key]
    id: u64,
    at: u64,
}

fn main() {}
