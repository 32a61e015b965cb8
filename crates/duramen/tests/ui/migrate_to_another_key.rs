use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct OldOrder {
    #[key]
    id: u64,
}

#[derive(Serialize, Deserialize, Collection)]
#[migrate_from(OldOrder)]
struct Order {
    #[key]
    id: String,
}

impl From<OldOrder> for Order {
    fn from(old: OldOrder) -> Order {
        Order { id: old.id.to_string() }
    }
}

fn main() {}
