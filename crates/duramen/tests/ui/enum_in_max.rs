use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
enum Priority {
    Low,
    Medium,
    High,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByTeam, key = team, reduce = Max(priority)))]
struct Ticket {
    #[key]
    id: u64,
    team: String,
    priority: Priority,
}

fn main() {}
