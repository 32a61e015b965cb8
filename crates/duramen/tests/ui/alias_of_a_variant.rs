use duramen::prelude::*;

#[derive(Serialize, Deserialize, duramen::Key)]
enum Colour {
    #[serde(rename = "crimson", alias = "red")]
    Red,
    Blue,
}

fn main() {}
