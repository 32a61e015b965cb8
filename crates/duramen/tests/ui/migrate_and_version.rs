use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(version = 2)]
#[migrate_from(OldOrder)]
struct Order {
    #[key]
    id: u64,
}

fn main() {}
