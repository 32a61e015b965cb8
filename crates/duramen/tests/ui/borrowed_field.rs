use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order<'a> {
    #[key]
    id: u64,
    city: &'a str,
}

fn main() {}
