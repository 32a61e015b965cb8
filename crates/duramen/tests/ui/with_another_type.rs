use duramen::prelude::*;

struct Letters;

impl duramen::view::Monoid for Letters {
    const NAME: &'static str = "letters";
    const VERSION: u32 = 1;
    type Value = String;
    type State = u64;
    type Answer = u64;

    fn one(value: String) -> u64 {
        value.len() as u64
    }

    fn join(left: u64, right: u64) -> u64 {
        left + right
    }

    fn answer(state: Option<u64>) -> u64 {
        state.unwrap_or(0)
    }
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCarrier, key = carrier, reduce = With(Letters, delay)))]
struct Flight {
    #[key]
    id: u64,
    carrier: String,
    delay: i32,
    distance: f64,
}

fn main() {}
