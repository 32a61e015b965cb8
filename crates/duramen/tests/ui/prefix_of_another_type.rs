use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    #[key]
    city: String,
    #[key]
    id: u64,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.collection::<Order>().prefix(1).count()?;
    Ok(())
}
