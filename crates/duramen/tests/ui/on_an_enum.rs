use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
enum Shape {
    Circle { radius: u32 },
    Square { side: u32 },
}

fn main() {}
