use duramen::prelude::*;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByAssignee, key = assignee, nulls))]
struct Ticket {
    #[key]
    id: u64,
    assignee: String,
}

fn main() {}
