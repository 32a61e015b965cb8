//! What one transaction of the workload does: a few rows, a bulk over several segments, big values, created
//! and dropped trees.
//!
//! Draws from the seed and the model only.

use duramen_engine::{Geometry, Result};

use super::model::{Effect, State, TreeModel};
use super::random::Random;
use super::writer::Filling;

/// Trees that are never dropped: one that sums, one without a reducer, one that grows over several levels.
pub const STABLE_TREES: [(&str, bool); 3] = [("sums", true), ("plain", false), ("bulk", true)];

/// Prefix for the names of temporary trees.
pub const TEMPORARY: &str = "temporary ";

/// Tiny blocks and nodes, so that few rows pass every boundary.
pub const GEOMETRY: Geometry = Geometry {
    block_bytes: 512,
    leaf_bytes_max: 512,
    inner_bytes_max: 512,
    big_value_bytes: 300,
    big_value_extent_bytes: 400,
    segment_bytes_min: 4096,
    segment_bytes_max: 8192,
};

/// As `GEOMETRY`, with blocks that direct writes can have.
pub const DIRECT_GEOMETRY: Geometry =
    Geometry { block_bytes: 4096, segment_bytes_min: 16 * 1024, segment_bytes_max: 16 * 1024, ..GEOMETRY };

/// Different keys of one tree.
const KEY_COUNT: usize = 40;

/// The purpose of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A few puts and deletes.
    Small,
    /// More bytes than a segment holds.
    Bulk,
    /// Deletes nearly everything in one tree.
    Shrink,
    /// Values with extents of their own.
    Big,
    /// Creates or drops a tree.
    Catalogue,
}

impl Shape {
    /// Its name in the annotations of a trace.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Small => "small",
            Shape::Bulk => "bulk",
            Shape::Shrink => "shrink",
            Shape::Big => "big",
            Shape::Catalogue => "catalogue",
        }
    }

    /// Fills a transaction.
    ///
    /// # Errors
    /// The engine's error.
    pub fn fill(self, draft: &mut Filling<'_>, state: &State, random: &mut Random) -> Result<()> {
        match self {
            Shape::Small => small(draft, state, random),
            Shape::Bulk => bulk(draft, state, random),
            Shape::Shrink => shrink(draft, state, random),
            Shape::Big => big(draft, state, random),
            Shape::Catalogue => catalogue(draft, state, random),
        }
    }
}

/// Creates the stable trees that are missing.
///
/// # Errors
/// The engine's error.
pub fn found_trees(draft: &mut Filling<'_>, state: &State) -> Result<()> {
    for (name, sums) in STABLE_TREES {
        if !state.trees.contains_key(name) {
            draft.create(name, sums)?;
        }
    }
    Ok(())
}

/// Whether a transaction makes some tree outgrow its only leaf, and whether it makes one fit a leaf again.
#[must_use]
pub fn splits_and_merges(before: &State, effects: &[Effect]) -> (bool, bool) {
    let mut after = before.clone();
    after.apply(effects);
    let leaves = |state: &State, name: &str| state.trees.get(name).map_or(Leaves::One, leaves_of);
    let mut found = (false, false);
    for name in after.trees.keys() {
        match (leaves(before, name), leaves(&after, name)) {
            (Leaves::One, Leaves::Several) => found.0 = true,
            (Leaves::Several, Leaves::One) => found.1 = true,
            _ => {}
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    One,
    Unknown,
    Several,
}

/// The number of leaves that a tree must have, judged by its rows.
fn leaves_of(tree: &TreeModel) -> Leaves {
    let inline = |value: &[u8]| if value.len() < GEOMETRY.big_value_bytes { value.len() } else { 0 };
    let least: usize = tree.rows.values().map(|value| inline(value)).sum();
    let most: usize = tree.rows.iter().map(|(key, value)| key.len() + value.len().min(300) + 24).sum();
    if least > GEOMETRY.leaf_bytes_max {
        Leaves::Several
    } else if most < GEOMETRY.leaf_bytes_max / 2 {
        Leaves::One
    } else {
        Leaves::Unknown
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(KEY_COUNT);
    let mut key = format!("k{number:03}").into_bytes();
    if number.is_multiple_of(9) {
        key.extend_from_slice(&[b'-'; 30]);
    }
    key
}

fn value(random: &mut Random, from: usize, to: usize) -> Vec<u8> {
    let length = random.between(from, to);
    let salt = random.bits();
    let mut value = random.bits().to_le_bytes().to_vec();
    // Small numbers of both signs, so that sums neither overflow nor hide behind one large row.
    value[4..].fill(if salt & 1 == 0 { 0 } else { 0xff });
    let rest = length.saturating_sub(8) as u64;
    value.extend((0..rest).map(|at| (salt.wrapping_add(at * 7) % 251).to_le_bytes()[0]));
    value
}

fn small(draft: &mut Filling<'_>, state: &State, random: &mut Random) -> Result<()> {
    let trees: Vec<&TreeModel> =
        state.trees.iter().filter(|(name, _)| *name != "bulk").map(|(_, tree)| tree).collect();
    for _ in 0..random.between(1, 6) {
        let tree = *random.pick(&trees);
        let key = key(random);
        if random.chance(1, 3) {
            draft.delete(tree.id, key)?;
        } else {
            let value = value(random, 8, 40);
            draft.put(tree, key, value, false)?;
        }
    }
    Ok(())
}

/// Two to three segments in one record, in key order or in reverse.
fn bulk(draft: &mut Filling<'_>, state: &State, random: &mut Random) -> Result<()> {
    let Some(tree) = state.trees.get("bulk") else { return Ok(()) };
    let Geometry { leaf_bytes_max, block_bytes, .. } = draft.geometry;
    let scale = leaf_bytes_max.max(block_bytes).div_ceil(GEOMETRY.leaf_bytes_max).min(4);
    for at in 0..random.between(30, 36) * scale {
        let value = value(random, 180, 240);
        draft.put(tree, format!("b{:03}", at * 7 % (60 * scale)).into_bytes(), value, false)?;
    }
    Ok(())
}

fn shrink(draft: &mut Filling<'_>, state: &State, random: &mut Random) -> Result<()> {
    let Some(tree) = state.trees.get(if random.chance(2, 3) { "bulk" } else { "sums" }) else {
        return Ok(());
    };
    let kept = random.below(3);
    let keys: Vec<Vec<u8>> = tree.rows.keys().skip(kept).cloned().collect();
    for key in keys {
        draft.delete(tree.id, key)?;
    }
    if random.chance(1, 2) {
        let value = value(random, 8, 20);
        draft.put(tree, b"b999".to_vec(), value, false)?;
    }
    Ok(())
}

/// Values of one extent and of several, some replaced within the transaction.
fn big(draft: &mut Filling<'_>, state: &State, random: &mut Random) -> Result<()> {
    let trees: Vec<&TreeModel> = state.trees.values().collect();
    let tree = *random.pick(&trees);
    let same_key = format!("v{}", random.below(4)).into_bytes();
    for _ in 0..random.between(1, 4) {
        let length_max = *random.pick(&[400, 1300, 3000]);
        let value = value(random, GEOMETRY.big_value_bytes, length_max);
        let key =
            if random.chance(1, 3) { same_key.clone() } else { format!("v{}", random.below(4)).into_bytes() };
        draft.put(tree, key, value, random.chance(1, 2))?;
    }
    if random.chance(1, 3) {
        draft.delete(tree.id, format!("v{}", random.below(4)).into_bytes())?;
    }
    Ok(())
}

fn catalogue(draft: &mut Filling<'_>, state: &State, random: &mut Random) -> Result<()> {
    let name = format!("{TEMPORARY}{}", random.below(3));
    if state.trees.contains_key(&name) {
        draft.drop_tree(&name)?;
        if random.chance(2, 3) {
            return Ok(());
        }
    }
    let tree = draft.create(&name, random.chance(1, 2))?;
    // Sometimes more pages than one checkpoint reclaims, once the tree is dropped.
    let (row_count, bytes_min) = if random.chance(1, 4) { (60, 100) } else { (random.below(12), 8) };
    for _ in 0..row_count {
        let (key, value) = (key(random), value(random, bytes_min, 120));
        draft.put(&tree, key, value, false)?;
    }
    if random.chance(1, 2) {
        let value = value(random, GEOMETRY.big_value_bytes, 900);
        draft.put(&tree, b"big".to_vec(), value, true)?;
    }
    Ok(())
}
