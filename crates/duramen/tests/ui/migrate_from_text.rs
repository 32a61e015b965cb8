use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[migrate_from("OldOrder")]
struct Order {
    #[key]
    id: u64,
}

fn main() {}
