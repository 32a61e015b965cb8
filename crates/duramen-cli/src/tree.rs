//! `duramen inspect --tree`: the shape of one tree on disk: its nodes by level, the sizes of its keys and
//! values.

use std::time::{Duration, Instant};

use duramen::{Code, Document, Error, LevelShape, NamedTree, Sizes, Snapshot, TreeShape, Value, doc};
use indicatif::ProgressBar;

use crate::args::DatabaseArgs;
use crate::database::{self, candidates};
use crate::failure::{FAILED, Failure, Result};
use crate::numbers::{bytes, counted, grouped};
use crate::output::{Output, align_right, new_table, printable};
use crate::signals::Signals;

/// A command that takes longer shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The widest bar of a histogram.
const BAR_WIDTH: u64 = 40;

/// Runs the command.
pub(crate) fn inspect(args: &DatabaseArgs, name: &str, out: Output) -> Result<()> {
    let db = database::open_to_read(args)?;
    let snapshot = db.snapshot()?;
    let tree = find(&snapshot, name)?;
    let shape = look(&snapshot, &tree, out)?;
    let geometry = db.durability_status().geometry;
    let page_bytes_max =
        |height: usize| (if height == 0 { geometry.leaf_bytes_max } else { geometry.inner_bytes_max }) as u64;
    let reductions = snapshot.tree_reductions(&tree)?.into_iter().map(|kept| match kept.field {
        Some(field) => format!("{} {field}", kept.reduce),
        None => kept.reduce,
    });
    let reductions: Vec<String> = reductions.collect();
    let seq = db.durability_status().published.0;
    if out.is_json() {
        let levels = shape.levels.iter().enumerate();
        let levels = levels.map(|(height, level)| level_json(height, level, page_bytes_max(height)));
        return out.object(
            "tree",
            doc! {
                "name": tree.name.as_str(),
                "tree": tree.tree.as_str(),
                "holds": tree.holds.to_string(),
                "seq": seq,
                "entries": shape.entries,
                "height": shape.levels.len() as u64,
                "levels": levels.collect::<Vec<_>>(),
                "keys": sizes_json(&shape.keys),
                "values": sizes_json(&shape.values),
                "big_values": doc! { "count": shape.big_values, "sum": shape.big_bytes },
                "reductions": reductions.iter().map(|one| Value::from(one.as_str())).collect::<Vec<_>>(),
            },
        );
    }
    let kept = if reductions.is_empty() { "no reductions".to_owned() } else { reductions.join(", ") };
    out.line(&printable(&format!(
        "{} ({}), at seq {seq}: {}, {}; keeps {kept}",
        tree.name,
        tree.holds,
        counted(shape.entries, "entry"),
        counted(shape.levels.len() as u64, "level"),
    )))?;
    show_levels(&shape, &page_bytes_max, out)?;
    show_sizes(&shape, out)?;
    if shape.big_values > 0 {
        let (count, sum) = (counted(shape.big_values, "value"), bytes(shape.big_bytes));
        out.line(&format!("{count} of {sum} lie outside of the nodes"))?;
    }
    Ok(())
}

fn find(snapshot: &Snapshot, name: &str) -> Result<NamedTree> {
    let trees = snapshot.trees()?;
    let found =
        trees.iter().find(|tree| tree.name == name).or_else(|| trees.iter().find(|tree| tree.tree == name));
    found.cloned().ok_or_else(|| {
        let names: Vec<String> = trees.into_iter().map(|tree| printable(&tree.name)).collect();
        let hint = match &names[..] {
            [] => "the database has no trees: `duramen import` makes one".to_owned(),
            names => candidates("trees", name, names),
        };
        Failure::said(FAILED, Code::NoSuchTree, format!("there is no tree {}", printable(name)), hint)
    })
}

fn look(snapshot: &Snapshot, tree: &NamedTree, out: Output) -> Result<TreeShape> {
    let signals = Signals::watch()?;
    let (begun, of) = (Instant::now(), snapshot.tree_len(tree)?);
    let mut bar: Option<ProgressBar> = None;
    let shape = snapshot.tree_shape(tree, |shape| {
        if out.shows_progress() && begun.elapsed() > PATIENCE {
            bar.get_or_insert_with(|| ProgressBar::new(of)).set_position(shape.entries);
        }
        match signals.received() {
            Some(_) => Err(Error::invalid("stopped by a signal")),
            None => Ok(()),
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    match (shape, signals.received()) {
        (Err(_), Some(number)) => Err(Failure::signal(number)),
        (shape, _) => Ok(shape?),
    }
}

fn show_levels(shape: &TreeShape, page_bytes_max: &dyn Fn(usize) -> u64, out: Output) -> Result<()> {
    if shape.levels.is_empty() {
        return Ok(());
    }
    let mut table =
        new_table(&["level", "nodes", "items each", "pages", "blocks", "fill", "in no checkpoint"]);
    for (height, level) in shape.levels.iter().enumerate().rev() {
        table.add_row([
            if height == 0 { "leaves".to_owned() } else { height.to_string() },
            grouped(level.nodes),
            format!("{:.1}", per(level.items, level.nodes)),
            bytes(level.page_bytes),
            bytes(level.block_bytes),
            fill(level, page_bytes_max(height))
                .map_or_else(String::new, |fill| format!("{:.0} %", fill * 100.0)),
            grouped(level.unwritten),
        ]);
    }
    align_right(&mut table, 1..7);
    out.table(&table)
}

fn show_sizes(shape: &TreeShape, out: Output) -> Result<()> {
    if shape.entries == 0 {
        return Ok(());
    }
    let mut table = new_table(&["", "shortest", "mean", "longest", "in all"]);
    for (what, sizes) in [("keys", &shape.keys), ("values", &shape.values)] {
        table.add_row([
            what.to_owned(),
            bytes(sizes.min),
            format!("{:.1} bytes", per(sizes.sum, sizes.count)),
            bytes(sizes.max),
            bytes(sizes.sum),
        ]);
    }
    align_right(&mut table, 1..5);
    out.table(&table)?;
    let mut histogram = new_table(&["value bytes", "values", ""]);
    let most = shape.values.classes.iter().max().copied().unwrap_or(0).max(1);
    for (class, count) in used(&shape.values) {
        let width = usize::try_from((count * BAR_WIDTH).div_ceil(most)).unwrap_or(0);
        histogram.add_row([bounds(class), grouped(count), "█".repeat(width)]);
    }
    align_right(&mut histogram, 0..2);
    out.table(&histogram)
}

/// The occupied size classes, from the first to the last.
fn used(sizes: &Sizes) -> impl Iterator<Item = (usize, u64)> + '_ {
    let first = sizes.classes.iter().position(|count| *count > 0).unwrap_or(0);
    let end = sizes.classes.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    (first..end.max(first)).map(|class| (class, sizes.classes[class]))
}

fn bounds(class: usize) -> String {
    let from = if class == 0 { 0 } else { 1u64 << class };
    format!("{} to {}", grouped(from), grouped((1u64 << (class + 1)) - 1))
}

/// How full the pages of a level on disk are.
fn fill(level: &LevelShape, page_bytes_max: u64) -> Option<f64> {
    let written = level.nodes - level.unwritten;
    (written > 0).then(|| per(level.page_bytes, written * page_bytes_max))
}

#[allow(clippy::cast_precision_loss, reason = "a mean is shown to a few digits")]
fn per(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

fn level_json(height: usize, level: &LevelShape, page_bytes_max: u64) -> Value {
    Value::Map(doc! {
        "level": height as u64,
        "nodes": level.nodes,
        "items": level.items,
        "page_bytes": level.page_bytes,
        "block_bytes": level.block_bytes,
        "page_bytes_max": page_bytes_max,
        "fill": fill(level, page_bytes_max),
        "unwritten": level.unwritten,
    })
}

fn sizes_json(sizes: &Sizes) -> Document {
    let classes = used(sizes).map(|(class, count)| {
        Value::Map(doc! { "from": if class == 0 { 0 } else { 1u64 << class }, "count": count })
    });
    doc! {
        "min": sizes.min, "max": sizes.max, "sum": sizes.sum, "mean": per(sizes.sum, sizes.count),
        "classes": classes.collect::<Vec<_>>(),
    }
}
