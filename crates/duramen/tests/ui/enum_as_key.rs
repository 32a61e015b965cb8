use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
enum Room {
    Cellar,
    Attic,
}

#[derive(Serialize, Deserialize, Collection)]
struct Sensor {
    #[key]
    room: Room,
    #[key]
    id: u64,
}

fn main() {}
