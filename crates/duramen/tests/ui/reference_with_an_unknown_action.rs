use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(Comment, on_delete = ignore)]
    parent: Option<u64>,
}

fn main() {}
