//! Random transactions over collections with random references, against plain maps.
//!
//! The model knows one rule: at the commit every reference leads somewhere. Deletes act at once.

use std::collections::{BTreeMap, BTreeSet};

use duramen::prelude::*;
use duramen::{Code, OnDelete, Reference};
use proptest::collection::vec;
use proptest::prelude::*;

use super::sound;

const COLLECTIONS: usize = 3;
const FIELDS: usize = 3;
const KEYS: u64 = 6;

#[derive(Debug, Clone)]
struct Definition {
    to: usize,
    action: OnDelete,
    each: bool,
}

/// The references of each collection, by field.
type Definitions = Vec<Vec<Definition>>;

/// The keys in each field of a document.
type Fields = Vec<Vec<u64>>;

#[derive(Debug, Clone)]
enum Write {
    Put(usize, u64, Fields),
    Delete(usize, u64),
    DeleteFrom(usize, u64),
}

fn definitions() -> impl Strategy<Value = Definitions> {
    let action = prop::sample::select(OnDelete::ALL.to_vec());
    let one = (0..COLLECTIONS, action, any::<bool>()).prop_map(|(to, action, each)| Definition {
        to,
        action,
        each,
    });
    vec(vec(one, 0..=FIELDS), COLLECTIONS)
}

fn write() -> impl Strategy<Value = Write> {
    let field = prop_oneof![2 => Just(Vec::new()), 3 => vec(0..KEYS, 1..3)];
    prop_oneof![
        6 => (0..COLLECTIONS, 0..KEYS, vec(field, FIELDS)).prop_map(|(at, key, fields)| Write::Put(at, key, fields)),
        3 => (0..COLLECTIONS, 0..KEYS).prop_map(|(at, key)| Write::Delete(at, key)),
        1 => (0..COLLECTIONS, 0..KEYS).prop_map(|(at, key)| Write::DeleteFrom(at, key)),
    ]
}

fn name(at: usize) -> String {
    format!("c{at}")
}

#[derive(Debug, Clone, PartialEq, Default)]
struct State(BTreeMap<(usize, u64), Fields>);

impl State {
    /// What is stored of a field's keys: one unless it is a list.
    fn put(&mut self, definitions: &Definitions, at: usize, key: u64, fields: &Fields) {
        let held = definitions[at].iter().zip(fields).map(|(definition, keys)| {
            keys.iter().copied().take(if definition.each { usize::MAX } else { 1 }).collect()
        });
        self.0.insert((at, key), held.collect());
    }

    fn delete(&mut self, definitions: &Definitions, at: usize, key: u64) {
        let mut next = vec![(at, key)];
        while let Some((at, key)) = next.pop() {
            if self.0.remove(&(at, key)).is_none() {
                continue;
            }
            for ((of, other), fields) in &mut self.0 {
                for (definition, keys) in definitions[*of].iter().zip(fields) {
                    if definition.to != at || !keys.contains(&key) {
                        continue;
                    }
                    match definition.action {
                        OnDelete::Restrict => {}
                        OnDelete::Cascade => next.push((*of, *other)),
                        OnDelete::Clear => keys.retain(|held| *held != key),
                    }
                }
            }
        }
    }

    fn perform(&mut self, definitions: &Definitions, write: &Write) {
        match write {
            Write::Put(at, key, fields) => self.put(definitions, *at, *key, fields),
            Write::Delete(at, key) => self.delete(definitions, *at, *key),
            Write::DeleteFrom(at, from) => (*from..KEYS).for_each(|key| self.delete(definitions, *at, key)),
        }
    }

    fn leads_nowhere(&self, definitions: &Definitions) -> bool {
        self.0.iter().any(|((at, _), fields)| {
            let mut pairs = definitions[*at].iter().zip(fields);
            pairs
                .any(|(definition, keys)| keys.iter().any(|key| !self.0.contains_key(&(definition.to, *key))))
        })
    }
}

fn document(definitions: &Definitions, at: usize, key: u64, fields: &Fields) -> Document {
    let mut document = Document::new().with("id", key).with("note", format!("n{key}"));
    for (index, (definition, keys)) in definitions[at].iter().zip(fields).enumerate() {
        let value = match keys.first() {
            _ if definition.each => Value::List(keys.iter().copied().map(Value::from).collect()),
            Some(key) => Value::from(*key),
            None => Value::Null,
        };
        document.set(format!("f{index}"), value);
    }
    document
}

fn perform(tx: &Transaction<'_>, definitions: &Definitions, write: &Write) -> duramen::Result<()> {
    match write {
        Write::Put(at, key, fields) => tx.documents(&name(*at)).put(document(definitions, *at, *key, fields)),
        Write::Delete(at, key) => tx.documents(&name(*at)).delete(*key).map(drop),
        Write::DeleteFrom(at, key) => tx.documents(&name(*at)).delete_span(Span::from(*key)?).map(drop),
    }
}

fn stored(db: &Db, definitions: &Definitions) -> State {
    let mut state = State::default();
    for (at, of) in definitions.iter().enumerate() {
        for document in db.documents(name(at)).scan(Span::all()).unwrap() {
            let document = document.unwrap();
            let Some(Value::Int(key)) = document.get("id") else { panic!("{document:?}") };
            let int = |value: &Value| match value {
                Value::Int(key) => vec![u64::try_from(*key).unwrap()],
                _ => Vec::new(),
            };
            let held = (0..of.len()).map(|index| match document.get(&format!("f{index}")) {
                Some(Value::List(items)) => items.iter().flat_map(int).collect(),
                one => one.map(int).unwrap_or_default(),
            });
            state.0.insert((at, u64::try_from(*key).unwrap()), held.collect());
        }
    }
    state
}

fn check(definitions: &Definitions, transactions: &[Vec<Write>]) {
    let db = Db::in_memory().unwrap();
    (0..COLLECTIONS).for_each(|at| drop(db.ensure(&Schema::new(name(at)).key(["id"])).unwrap()));
    for (at, of) in definitions.iter().enumerate() {
        for (index, Definition { to, action, each }) in of.iter().enumerate() {
            let reference = Reference::new(format!("f{index}"), name(*to)).on_delete(*action);
            let reference = if *each { reference.each() } else { reference };
            assert!(db.documents(name(at)).add_reference(reference).unwrap());
        }
    }
    let (mut state, mut refused) = (State::default(), BTreeSet::new());
    for writes in transactions {
        let mut next = state.clone();
        writes.iter().for_each(|write| next.perform(definitions, write));
        let done = db.write(|tx| writes.iter().try_for_each(|write| perform(tx, definitions, write)));
        match done {
            Ok(_) => {
                assert!(!next.leads_nowhere(definitions), "{writes:?} was accepted");
                state = next;
            }
            Err(error) => {
                assert!(next.leads_nowhere(definitions), "{writes:?} was refused: {error}");
                refused.insert(error.code() as u32);
            }
        }
        assert_eq!(stored(&db, definitions), state, "after {writes:?}");
    }
    let known = [Code::MissingTarget as u32, Code::StillReferenced as u32];
    assert!(refused.iter().all(|code| known.contains(code)), "{refused:?}");
    sound(&db);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_transactions_leave_what_the_model_says(
        definitions in definitions(),
        transactions in vec(vec(write(), 1..5), 1..40),
    ) {
        check(&definitions, &transactions);
    }
}
