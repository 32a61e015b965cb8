use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(Newest, key = (city, desc(at))))]
struct Person {
    #[key]
    id: u64,
    city: String,
    at: u64,
}

fn main() {
    let db = Db::in_memory().unwrap();
    let _ = db.view::<Newest>().key(("Oslo", 5));
}
