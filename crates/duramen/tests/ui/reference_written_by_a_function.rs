use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(Comment)]
    #[serde(with = "other")]
    parent: Option<u64>,
}

fn main() {}
