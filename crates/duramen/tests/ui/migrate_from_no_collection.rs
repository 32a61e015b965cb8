use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
struct OldOrder {
    id: u64,
}

#[derive(Serialize, Deserialize, Collection)]
#[migrate_from(OldOrder)]
struct Order {
    #[key]
    id: u64,
}

impl From<OldOrder> for Order {
    fn from(old: OldOrder) -> Order {
        Order { id: old.id }
    }
}

fn main() {}
