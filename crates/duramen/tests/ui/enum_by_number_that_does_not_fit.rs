use duramen::prelude::*;

#[derive(Clone, Serialize, Deserialize, duramen::Key)]
#[key(by_number)]
#[serde(into = "u8", try_from = "u8")]
enum Priority {
    Low = -1,
    High = 200,
}

fn main() {}
