//! What programs write: before the database is a node, and in the transactions of the node.

use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{Durability, Engine, Hooks, Transaction, TreeId};

use super::life::{PATH, options};
use super::text;
use super::truth::{Effect, Write, apply};
use crate::contents::Contents;
use crate::search::random::Random;

/// A database of its own, before it is a node.
pub(super) fn embedded(disk: &MemDisk, random: &mut Random) -> Result<Contents, String> {
    let engine = Engine::open(Arc::new(disk.clone()), PATH, options(), Hooks::default()).map_err(text)?;
    let mut contents = Contents::default();
    for name in ["a", "b"] {
        let effect = vec![Write::Create { tree: name.to_owned() }];
        engine.transact(Durability::Disk, |tx| tx.create_tree(name, None)).map_err(text)?;
        apply(&mut contents, &effect);
    }
    for _ in 0..random.below(6) {
        let mut effect = Vec::new();
        engine.transact(Durability::Disk, |tx| write(tx, random, &mut effect)).map_err(text)?;
        apply(&mut contents, &effect);
    }
    engine.close().map_err(text)?;
    Ok(contents)
}

/// A few writes of a transaction.
pub(super) fn write(
    tx: &mut Transaction,
    random: &mut Random,
    effect: &mut Effect,
) -> duramen_engine::Result<()> {
    effect.clear();
    for _ in 0..random.between(1, 3) {
        let tree = (*random.pick(&["a", "b"])).to_owned();
        let Some(id) = tx.tree(&tree)? else { continue };
        let key = vec![b'k', u8::try_from(random.below(24)).expect("small")];
        match random.below(8) {
            0 => {
                tx.delete(id, &key)?;
                effect.push(Write::Delete { tree, key });
            }
            // One more than what is there: an update that is lost would show.
            1..=3 => {
                let before = tx.get(id, &key)?.unwrap_or_default();
                let mut value = before.clone();
                value.truncate(40);
                value.push(u8::try_from(random.below(256)).expect("a byte"));
                tx.put(id, &key, &value)?;
                effect.push(Write::Put { tree, key, value });
            }
            kind => {
                let length = if kind == 4 { random.between(300, 2500) } else { random.between(0, 60) };
                let value: Vec<u8> = (0..length).map(|_| random.bits().to_le_bytes()[0]).collect();
                tx.put(id, &key, &value)?;
                effect.push(Write::Put { tree, key, value });
            }
        }
    }
    if random.chance(1, 12) {
        trees(tx, random, effect)?;
    }
    Ok(())
}

/// Creates a tree, or drops it.
fn trees(tx: &mut Transaction, random: &mut Random, effect: &mut Effect) -> duramen_engine::Result<()> {
    let tree = format!("t{}", random.below(3));
    if tx.tree(&tree)?.is_some() {
        tx.drop_tree(&tree)?;
        effect.push(Write::Drop { tree });
        return Ok(());
    }
    let id: TreeId = tx.create_tree(&tree, None)?;
    let (key, value) = (vec![1], vec![2; random.below(40)]);
    tx.put(id, &key, &value)?;
    effect.extend([Write::Create { tree: tree.clone() }, Write::Put { tree, key, value }]);
    Ok(())
}
