use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = (city, day)))]
struct Order {
    #[key]
    id: u64,
    city: String,
    day: u32,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.view::<ByCity>().key("Oslo").count()?;
    Ok(())
}
