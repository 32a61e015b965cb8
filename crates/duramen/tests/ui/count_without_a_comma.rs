use duramen::prelude::*;
use duramen::view::{CodedView, Emitter, reduce};

#[derive(Serialize, Deserialize, Collection)]
#[collection(coded(ByWord))]
struct Note {
    #[key]
    id: u64,
    text: String,
}

struct ByWord;

impl CodedView for ByWord {
    type Collection = Note;
    type Key = String;
    type Value = ();
    type Reduce = (reduce::Count);
    const NAME: &'static str = "by_word";
    const VERSION: u32 = 1;

    fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
        emit.row(note.text.clone(), ());
    }
}

fn main() {}
