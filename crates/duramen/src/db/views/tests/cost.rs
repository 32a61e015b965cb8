//! The cost of views, counted and not timed: nodes that a query reads, and bytes that a change writes, for
//! few rows and for a hundred times as many.

use std::sync::Arc;

use duramen_disk::memory::OpKind;
use duramen_disk::{Disk, MemDisk};

use crate::access::reads::sealed::Readable;
use crate::catalog::entries::OpenView;
use crate::store::KeyRange;
use crate::value::tuple::encode;
use crate::view::kinds::Reduce;
use crate::view::spec::ViewSpec;
use crate::{Db, LocalReads as _, Schema, doc};

/// The cost of one view with a given number of rows.
#[derive(Debug)]
struct Cost {
    /// The most nodes that a query read.
    nodes: u64,
    /// Bytes written to the data file for a change of one document, including the checkpoint's own; mean of
    /// several.
    bytes_written: u64,
}

fn flight(id: u64) -> crate::Document {
    let mixed = (id ^ 0x5555).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let delay = if mixed.is_multiple_of(9) { mixed / 9 % 1300 } else { mixed / 9 % 60 };
    let tail = format!("N{:05}", mixed / 700 % 4000);
    doc! { "id": id, "from": ["EWR", "JFK", "LGA"][(mixed % 3) as usize], "delay": delay as i64 - 43, "tail": tail }
}

fn open(disk: &Arc<dyn Disk>) -> Db {
    Db::options().open_on(Arc::clone(disk), "/flights").unwrap()
}

fn view(db: &Db) -> OpenView {
    db.snapshot().unwrap().entry("flights").unwrap().views[0].clone()
}

/// Bytes written to the data file while `run` ran and the database was then closed.
fn written(memory: &MemDisk, disk: &Arc<dyn Disk>, run: impl FnOnce(&Db)) -> u64 {
    let db = open(disk);
    memory.record();
    run(&db);
    db.close().unwrap();
    drop(db);
    let trace = memory.stop_recording();
    let ops = (0..trace.len()).map(|index| trace.op(index));
    ops.filter(|op| op.kind == OpKind::Write && op.path.ends_with("data")).map(|op| op.bytes).sum()
}

fn cost(rows: u64, reduce: &[Reduce]) -> Cost {
    let memory = MemDisk::new(0);
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let db = open(&disk);
    let by = ViewSpec::new("by", ["from", "id"]).values(["delay", "tail"]).reduce(reduce.iter().cloned());
    db.ensure(&Schema::new("flights").key(["id"]).view(by)).unwrap();
    // Not in the order of the view: its leaves are as full as they are in use.
    for part in 0..rows / 500 {
        db.transact(|tx| {
            (part * 500..(part + 1) * 500)
                .try_for_each(|index| tx.documents("flights").put(flight(index * 7919 % rows)))
        })
        .unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = open(&disk);
    let view = view(&db);
    let ask = |from: &str, first: u64, to: &str, last: u64| {
        let (from, to) = (encode(&(from, first)).unwrap(), Some(encode(&(to, last)).unwrap()));
        db.snapshot().unwrap().source().reduce(view.tree, &KeyRange { from, to }).unwrap().nodes_touched
    };
    let parts = (1..40).chain(1..40);
    let nodes = parts.map(|part| ask("EWR", rows * part / 83, "LGA", rows * (part + 40) / 83)).max().unwrap();
    drop(db);
    let changes = 10;
    let one_by_one = |number: u64| {
        written(&memory, &disk, |db| {
            let flight = flight(rows * number / changes).with("delay", 999);
            db.documents("flights").put(flight).unwrap();
        })
    };
    let bytes_written = (0..changes).map(one_by_one).sum::<u64>() / changes;
    Cost { nodes, bytes_written }
}

// A query reads two paths, and a change writes one, however long the reductions are. A hundred times the rows
// add levels and nothing else.
#[test]
fn questions_and_changes_cost_by_the_height_of_the_tree() {
    let sketches = [Reduce::Distinct(1), Reduce::Quantiles(0), Reduce::TopK(0, 5)];
    let [few, many] = [1000, 100_000].map(|rows| cost(rows, &sketches));
    let plain = cost(100_000, &[Reduce::Sum(0)]);
    // One level above the leaves for few rows, two for many; at most two nodes a level, the first one of both
    // paths.
    assert!(few.nodes <= 3 && many.nodes <= 5, "{few:?} {many:?}");
    let node = crate::store::limits::INNER_BYTES_MAX as u64;
    // One more inner node on the way to the document and on the way to its row; each may be a little larger
    // than it should.
    assert!(many.bytes_written <= few.bytes_written + 3 * node, "{few:?} {many:?}");
    // Long reductions cost a level, no more.
    assert!(many.bytes_written <= plain.bytes_written + 2 * node, "{many:?} {plain:?}");
}
