use duramen::prelude::*;

#[derive(Serialize, Deserialize, duramen::Key)]
#[key(by_name)]
enum Colour {
    #[serde(rename = "crimson", alias = "red")]
    Red,
    Blue,
}

fn main() {}
