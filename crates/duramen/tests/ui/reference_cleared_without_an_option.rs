use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(Comment, on_delete = clear)]
    parent: u64,
}

fn main() {}
