//! The expected contents of a database of flights, derived from the lines of the CSV alone.
//!
//! Owns the oracle of the killed imports. Each import adds its own mark to the distances, so that a document
//! shows which import stored it last, and a batch that was not replaced is noticed. Never queries the
//! database for the truth.

use std::collections::BTreeMap;

/// One line of the input, parsed. The field order of the key is the order of the database.
struct Line {
    key: (String, String, u64, String),
    dep_delay: Option<i64>,
    distance: i64,
    /// The text before and after the distance.
    around: (String, String),
}

/// The input, and which part of it is stored.
pub(super) struct Ledger {
    header: String,
    lines: Vec<Line>,
    /// Indices of `lines` in order of their keys.
    sorted: Vec<usize>,
    /// The mark of the import that last stored each line; `None` for a deleted one. Lines beyond the end are
    /// not stored.
    marks: Vec<Option<i64>>,
}

/// Rows and sums of a range.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) rows: u64,
    pub(super) dep_delay: i128,
    pub(super) nulls: u64,
    pub(super) distance: i128,
}

impl Ledger {
    /// From the plain text of a CSV without quotes.
    pub(super) fn new(text: &str) -> Ledger {
        let (header, rest) = text.split_once('\n').unwrap();
        let names: Vec<&str> = header.split(',').collect();
        let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
        let (carrier, time_hour, flight, origin) =
            (at("carrier"), at("time_hour"), at("flight"), at("origin"));
        let (dep_delay, distance) = (at("dep_delay"), at("distance"));
        let line = |text: &str| {
            let cells: Vec<&str> = text.split(',').collect();
            assert_eq!(cells.len(), names.len(), "{text}");
            let key = (
                cells[carrier].to_owned(),
                cells[time_hour].to_owned(),
                cells[flight].parse().unwrap(),
                cells[origin].to_owned(),
            );
            Line {
                key,
                dep_delay: (cells[dep_delay] != "NA").then(|| cells[dep_delay].parse().unwrap()),
                distance: cells[distance].parse().unwrap(),
                around: (cells[..distance].join(","), cells[distance + 1..].join(",")),
            }
        };
        let lines: Vec<Line> = rest.lines().map(line).collect();
        let mut sorted: Vec<usize> = (0..lines.len()).collect();
        sorted.sort_by(|a, b| lines[*a].key.cmp(&lines[*b].key));
        assert!(sorted.windows(2).all(|two| lines[two[0]].key < lines[two[1]].key), "a key names one row");
        Ledger { header: header.to_owned(), lines, sorted, marks: Vec::new() }
    }

    /// Rows of the input.
    pub(super) fn input_rows(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Rows that are stored.
    pub(super) fn stored_rows(&self) -> u64 {
        self.marks.iter().flatten().count() as u64
    }

    /// Resets to an empty database.
    pub(super) fn forget(&mut self) {
        self.marks.clear();
    }

    fn text(&self, index: usize, mark: i64) -> String {
        let Line { around: (before, after), distance, .. } = &self.lines[index];
        format!("{before},{},{after}", distance + mark)
    }

    /// The input with the mark added to its distances; mark 0 gives the original.
    pub(super) fn marked_input(&self, mark: i64) -> String {
        let mut text = format!("{}\n", self.header);
        for index in 0..self.lines.len() {
            text.push_str(&self.text(index, mark));
            text.push('\n');
        }
        text
    }

    /// The number of rows in an export that an import with this mark has stored. No row was deleted.
    ///
    /// [`Ledger::check_export`] checks that they are the first lines of the input, once the ledger has
    /// [taken](Ledger::take) them.
    pub(super) fn rows_of(&self, mark: i64, exported: &str) -> u64 {
        let stored = exported.lines().count().saturating_sub(1);
        let indices = self.sorted.iter().filter(|index| **index < stored);
        let own =
            indices.zip(exported.lines().skip(1)).filter(|(index, line)| self.text(**index, mark) == *line);
        own.count() as u64
    }

    /// Records that an import with this mark has stored the first lines. Later lines keep their marks.
    pub(super) fn take(&mut self, mark: i64, rows: u64) {
        let rows = usize::try_from(rows).unwrap();
        self.marks.resize(self.marks.len().max(rows), None);
        self.marks[..rows].fill(Some(mark));
    }

    /// Records that these lines were deleted.
    pub(super) fn delete(&mut self, indices: &[usize]) {
        indices.iter().for_each(|index| self.marks[*index] = None);
    }

    /// The mark of a stored line.
    fn mark(&self, index: usize) -> Option<i64> {
        self.marks.get(index).copied().flatten()
    }

    /// Checks that an export has every expected document, in key order, and no others.
    pub(super) fn check_export(&self, exported: &str) {
        let mut found = exported.lines();
        assert_eq!(found.next(), Some(self.header.as_str()));
        for index in self.stored() {
            let wanted = self.mark(index).map(|mark| self.text(index, mark));
            assert_eq!(found.next(), wanted.as_deref(), "line {} of the input", index + 2);
        }
        assert_eq!(found.next(), None, "more than was imported");
    }

    /// Indices of the stored lines, in order of the keys.
    pub(super) fn stored(&self) -> impl Iterator<Item = usize> {
        self.sorted.iter().copied().filter(|index| self.mark(*index).is_some())
    }

    /// The key of a line, as the library takes it.
    pub(super) fn key(&self, index: usize) -> (&str, &str, u64, &str) {
        let (carrier, time_hour, flight, origin) = &self.lines[index].key;
        (carrier, time_hour, *flight, origin)
    }

    /// The stored distance of a line.
    pub(super) fn distance(&self, index: usize) -> i64 {
        self.lines[index].distance + self.mark(index).unwrap_or_default()
    }

    /// The expected totals by carrier.
    pub(super) fn totals(&self) -> BTreeMap<&str, Totals> {
        let mut found: BTreeMap<&str, Totals> = BTreeMap::new();
        for (line, mark) in self.lines.iter().zip(&self.marks) {
            let Some(mark) = mark else { continue };
            let totals = found.entry(&line.key.0).or_default();
            totals.rows += 1;
            totals.dep_delay += i128::from(line.dep_delay.unwrap_or(0));
            totals.nulls += u64::from(line.dep_delay.is_none());
            totals.distance += i128::from(line.distance + mark);
        }
        found
    }
}

impl std::iter::Sum for Totals {
    fn sum<I: Iterator<Item = Totals>>(all: I) -> Totals {
        all.fold(Totals::default(), |a, b| Totals {
            rows: a.rows + b.rows,
            dep_delay: a.dep_delay + b.dep_delay,
            nulls: a.nulls + b.nulls,
            distance: a.distance + b.distance,
        })
    }
}
