use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Comment {
    #[key]
    id: u64,
    #[references(Comment)]
    #[serde(default, skip_serializing_if = "is_first")]
    parent: u64,
}

fn is_first(parent: &u64) -> bool {
    *parent == 0
}

fn main() {}
