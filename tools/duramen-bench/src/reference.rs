//! The right answers for ranges and sums, derived from the seed alone.

use crate::data::{Digest, Rows};
use crate::engine::Total;

/// The first rows of a data set, in key order.
pub(crate) struct Reference {
    rows: Rows,
    sorted: Vec<(u64, u64)>,
}

impl Reference {
    /// The first `count` rows.
    pub(crate) fn new(rows: Rows, count: u64) -> Reference {
        let mut sorted: Vec<_> = (0..count).map(|row| (rows.head(row), row)).collect();
        sorted.sort_unstable();
        Reference { rows, sorted }
    }

    fn from(&self, head: u64) -> &[(u64, u64)] {
        &self.sorted[self.sorted.partition_point(|(known, _)| *known < head)..]
    }

    /// The digest of a range of `limit` rows from a key.
    pub(crate) fn range(&self, from: u64, limit: usize) -> Digest {
        let (mut digest, mut value) = (Digest::default(), Vec::new());
        for (head, row) in self.from(from).iter().take(limit) {
            self.rows.value(*row, &mut value);
            digest.add(*head, &value);
        }
        digest
    }

    /// Count and sum of a range.
    pub(crate) fn total(&self, from: u64, to: u64) -> Total {
        let within = self.from(from).iter().take_while(|(head, _)| *head < to);
        within.fold(Total::default(), |total, (_, row)| Total {
            count: total.count + 1,
            sum: total.sum + i128::from(self.rows.number(*row)),
        })
    }
}
