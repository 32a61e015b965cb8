use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByAssignee, key = assignee, nulls))]
struct Ticket {
    #[key]
    id: u64,
    assignee: Option<String>,
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    db.view::<ByAssignee>().key(None).count()?;
    db.view::<ByAssignee>().key("ann").count()?;
    db.view::<ByAssignee>().key(Some("ann")).count()?;
    Ok(())
}
