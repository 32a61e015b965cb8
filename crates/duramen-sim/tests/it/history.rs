//! Transactions that run at the same time are as if they had run one after the other (I1, D2), and syncs are shared
//! without standing in anybody's way.

mod pipeline;
mod planted;

use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Disk, MemDisk, OsDisk};
use duramen_engine::{Background, Engine, Geometry, Hooks, Options};
use duramen_sim::history::{Run, Verdict, check, run};

fn options(background: Background) -> Options {
    Options {
        geometry: Geometry {
            block_bytes: 512,
            leaf_bytes_max: 512,
            inner_bytes_max: 512,
            big_value_bytes: 300,
            big_value_extent_bytes: 400,
            segment_bytes_min: 64 * 1024,
            segment_bytes_max: 256 * 1024,
        },
        memory_bytes: 4 * 1024 * 1024,
        background,
        ..Options::default()
    }
}

fn open(disk: Arc<dyn Disk>, path: &Path, background: Background) -> Engine {
    Engine::open(disk, path, options(background), Hooks::default()).unwrap()
}

fn check_run(engine: &Engine, plan: Run) -> Verdict {
    let events = run(engine, plan).unwrap();
    let verdict = check(&events);
    println!("{plan:?}: {verdict}");
    assert!(verdict.violations.is_empty(), "{}", verdict.violations.join("\n"));
    assert!(verdict.conflict_count > 0, "transactions met: {verdict}");
    assert!(verdict.writer_count > verdict.conflict_count / 20, "and got through: {verdict}");
    verdict
}

#[test]
fn random_transactions_of_many_threads_are_serialisable() {
    for (seed, key_count) in [(1, 12), (2, 40), (3, 400)] {
        let disk = Arc::new(MemDisk::new(seed));
        let engine = open(disk, Path::new("/db"), Background::Threads);
        check_run(&engine, Run { seed, thread_count: 6, transaction_count: 1500, key_count });
        let report = engine.check().unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        engine.close().unwrap();
    }
}

#[test]
fn random_transactions_are_serialisable_on_the_operating_systems_disk() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let engine = open(Arc::new(OsDisk::default()), &folder.join("db"), Background::Threads);
    check_run(&engine, Run { seed: 4, thread_count: 4, transaction_count: 250, key_count: 40 });
    engine.close().unwrap();
    drop(engine);
    std::fs::remove_dir_all(&folder).unwrap();
}
