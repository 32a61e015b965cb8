use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
struct User {
    id: u64,
}

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(User)]
    author: u64,
}

fn main() {}
