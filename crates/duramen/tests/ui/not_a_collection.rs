use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.put(&Order { id: 1 })?;
    Ok(())
}
