use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(Comment)]
    #[references(Comment, on_delete = clear)]
    parent: Option<u64>,
}

fn main() {}
