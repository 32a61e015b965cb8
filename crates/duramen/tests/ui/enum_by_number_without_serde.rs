use duramen::prelude::*;

#[derive(Clone, Serialize, Deserialize, duramen::Key)]
#[key(by_number)]
enum Priority {
    Low = 1,
    Medium = 2,
    High = 1000,
}

fn main() {}
