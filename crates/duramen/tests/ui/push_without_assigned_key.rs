use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
struct Order {
    #[key]
    id: u64,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.push(Order { id: 0 })?;
    Ok(())
}
