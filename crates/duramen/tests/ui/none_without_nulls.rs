use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByAssignee, key = assignee))]
struct Ticket {
    #[key]
    id: u64,
    assignee: Option<String>,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.view::<ByAssignee>().key(None).count()?;
    Ok(())
}
