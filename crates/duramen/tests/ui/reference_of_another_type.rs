use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct User {
    #[key]
    id: u64,
}

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(User)]
    author: Option<String>,
}

fn main() {}
