use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = town))]
struct Order {
    #[key]
    id: u64,
    city: String,
    state: State,
}

#[derive(Serialize, Deserialize, Collection)]
struct Visit {
    #[key]
    state: State,
    #[references(Order, on_delete = remove)]
    order: u64,
}

#[derive(Clone, Serialize, Deserialize, duramen::Key)]
enum State {
    Open,
    Paid,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.put(&Order { id: 1, city: "Oslo".into(), state: State::Open })?;
    db.get::<Order>(1)?;
    db.get::<Visit>(State::Paid)?;
    Ok(())
}
