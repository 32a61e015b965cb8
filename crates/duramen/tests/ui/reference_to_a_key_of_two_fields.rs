use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Room {
    #[key]
    house: String,
    #[key]
    number: u32,
}

#[derive(Serialize, Deserialize, Collection)]
struct Booking {
    #[key]
    id: u64,
    #[references(Room)]
    room: u32,
}

fn main() {}
