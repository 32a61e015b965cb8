use duramen::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = city, reduce = Count))]
struct Order {
    #[key]
    city: String,
    #[key]
    id: u64,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    for order in db.collection::<Order>().iter()? {
        db.put(&order)?;
    }
    Ok(())
}
