//! Finds the next readable row after a corrupt node, by the numbers of rows.
//!
//! The nodes above a corrupt one record how many rows it has. So a row after it can be reached by its number.

use super::error::{Error, ErrorKind, Result};
use super::{Direction, KeyRange, Source, TreeId};

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Called with the key and the value of a row.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Whether an error is of the disk: an I/O error or corruption.
pub(crate) fn is_of_disk(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io)
}

/// Visits every row of a tree that can be read, around corrupt nodes. Returns the first error that corruption
/// caused.
///
/// # Errors
/// Errors that are no corruption; the error of `visit`.
pub(crate) fn readable_rows(
    source: &dyn Source,
    tree: TreeId,
    visit: &mut Visit<'_>,
) -> Result<Option<Error>> {
    let (mut first, mut from, mut index) = (None, Vec::new(), 0);
    loop {
        let begun = from.clone();
        let Err(error) = rows_from(source, tree, from, &mut index, visit)? else { return Ok(first) };
        first.get_or_insert(error);
        let Some((number, key)) = readable_from(source, tree, index)? else { return Ok(first) };
        // Rows come in order of their keys. If they do not, their numbers are of no use.
        if key <= begun {
            return Ok(first);
        }
        (index, from) = (number, key);
    }
}

/// Visits the rows from a key on, and counts them. The inner error is corruption.
fn rows_from(
    source: &dyn Source,
    tree: TreeId,
    from: Vec<u8>,
    index: &mut u64,
    visit: &mut Visit<'_>,
) -> Result<std::result::Result<(), Error>> {
    let corruption = |error: Error| if error.is_corruption() { Ok(Err(error)) } else { Err(error) };
    let mut rows = match source.cursor(tree, KeyRange { from, to: None }, Direction::Forward) {
        Err(error) => return corruption(error),
        Ok(rows) => rows,
    };
    loop {
        match rows.next() {
            Ok(Some((key, value))) => visit(key, value)?,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return corruption(error),
        }
        *index += 1;
    }
}

/// The first readable row with at least `index` rows before it, as their number and its key; `None` if there
/// is none.
///
/// All rows below one corrupt node fail with the same message, which names the node's offset. So the end of
/// the node is found by bisection, and no readable row is skipped. It costs O(log n) lookups a corrupt node.
pub(crate) fn readable_from(
    source: &dyn Source,
    tree: TreeId,
    mut index: u64,
) -> Result<Option<(u64, Vec<u8>)>> {
    let end = match source.count(tree, &ALL) {
        Err(error) if is_of_disk(&error) => return Ok(None),
        end => end?,
    };
    while index < end {
        let why = match source.nth(tree, index) {
            Err(error) if is_of_disk(&error) => error,
            found => return Ok(found?.map(|(key, _)| (index, key))),
        };
        index = first_after(index, end, &mut |index| match source.nth(tree, index) {
            Err(error) if is_of_disk(&error) => Ok(error.message() == why.message()),
            found => found.map(|_| false),
        })?;
    }
    Ok(None)
}

/// The first number from `inside` on for which `is_inside` is false; at most `end`.
fn first_after(mut inside: u64, end: u64, is_inside: &mut dyn FnMut(u64) -> Result<bool>) -> Result<u64> {
    let mut step = 1;
    let mut outside = loop {
        let next = inside.saturating_add(step).min(end);
        if next == end || !is_inside(next)? {
            break next;
        }
        (inside, step) = (next, step.saturating_mul(2));
    };
    while outside - inside > 1 {
        let middle = u64::midpoint(inside, outside);
        if is_inside(middle)? { inside = middle } else { outside = middle }
    }
    Ok(outside)
}

#[cfg(test)]
mod tests {
    //! The end of every run of rows is found, wherever the steps land.
    use super::*;

    #[test]
    fn the_end_of_a_run_is_found() {
        for first in 0..20 {
            for after in first + 1..=40 {
                let mut is_inside = |index| Ok((first..after).contains(&index));
                assert_eq!(first_after(first, 40, &mut is_inside).unwrap(), after, "{first}..{after}");
            }
        }
    }
}
