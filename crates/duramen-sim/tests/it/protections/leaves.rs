//! Transactions whose keys are scattered over more leaves than memory has room for.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{Background, Code, Durability, Engine, Hooks, Options, Transaction};
use duramen_sim::search::shapes::GEOMETRY;

/// Every key of a scattered transaction is in a different leaf, and all of these stay until a checkpoint.
///
/// A few bytes written may thus need many times the memory. A transaction that cannot fit is refused before
/// it is ordered, so that no other commit waits for it.
#[test]
fn a_transaction_whose_leaves_do_not_fit_into_memory_is_refused_before_it_is_ordered() {
    const ROWS: u32 = 24_000;
    let options = Options {
        geometry: GEOMETRY,
        memory_bytes: 4 << 20,
        // With patches only these stay, and they fit.
        patches: false,
        background: Background::Stepped,
        ..Options::default()
    };
    let engine =
        Engine::open(Arc::new(MemDisk::new(7)), Path::new("/db"), options, Hooks::default()).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for first in (0..ROWS).step_by(1000) {
        let load = |tx: &mut Transaction| {
            (first..first + 1000).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[7; 200]))
        };
        engine.transact(Durability::Process, load).unwrap();
        engine.step().unwrap();
    }
    engine.checkpoint().unwrap();
    let scatter = |step: usize| {
        let pages_read = engine.stats().pages_read;
        let mut transaction = engine.begin().unwrap();
        let put = |n: u32| transaction.put(tree, &n.to_be_bytes(), &[8; 8]);
        (0..ROWS).step_by(step).try_for_each(put).unwrap();
        (transaction.commit(Durability::Disk).map(drop), engine.stats().pages_read - pages_read)
    };
    let published = engine.stats().commit.published;
    let (refused, pages_read) = scatter(3);
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::TooLarge, "{refused}");
    assert!(refused.hint().contains("batches"), "{refused:?}");
    assert_eq!(engine.stats().commit.published, published);
    assert!(pages_read < u64::from(ROWS) / 10, "{pages_read} pages read for what is not done");
    // A quarter of it fits, and so do as many changes to neighbouring keys.
    scatter(12).0.unwrap();
    let neighbours =
        |tx: &mut Transaction| (0..ROWS / 3).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[9; 8]));
    engine.transact(Durability::Disk, neighbours).unwrap();
}
