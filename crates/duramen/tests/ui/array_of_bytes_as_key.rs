use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct File {
    #[key]
    hash: [u8; 16],
}

fn main() {}
