use duramen::prelude::*;

#[derive(Serialize, Deserialize)]
enum Priority {
    Low,
    Medium,
    High,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByPriority, key = priority))]
struct Ticket {
    #[key]
    id: u64,
    priority: Priority,
}

fn main() {}
