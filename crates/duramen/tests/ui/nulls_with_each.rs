use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByTag, key = tags, each, nulls))]
struct Post {
    #[key]
    id: u64,
    tags: Vec<String>,
}

fn main() {}
