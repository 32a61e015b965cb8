use duramen::prelude::*;

#[derive(Serialize, Deserialize, duramen::Key)]
enum Priority {
    Low,
    Medium,
    High,
}

fn main() {}
