use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByTag, key = tags, each))]
struct Post {
    #[key]
    id: u64,
    tags: String,
}

fn main() {}
