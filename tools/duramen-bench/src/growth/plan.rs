//! The arguments of `growth`, and the points that they define: engines and sizes.

use std::path::PathBuf;

use clap::Args;

use crate::compare::{check_disk, engines_of};
use crate::engine::{Result, Scope};
use crate::verdict::OURS;
use crate::workloads::SEED;

/// How to grow.
#[derive(Debug, Args)]
pub(crate) struct Growth {
    /// Rows, a point each. From `--key-order-from` on they are loaded in the order of their keys.
    #[arg(long, value_delimiter = ',', value_name = "ROWS", default_values_t = [100_000, 1_000_000, 10_000_000, 100_000_000])]
    pub sizes: Vec<u64>,
    /// Only these engines.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub engines: Vec<String>,
    /// Rivals have no larger points.
    #[arg(long, default_value_t = 1_000_000, value_name = "ROWS")]
    pub rival_rows_max: u64,
    /// Points of so many rows are loaded in the order of their keys, smaller ones in random order.
    #[arg(long, default_value_t = 100_000_000, value_name = "ROWS")]
    pub key_order_from: u64,
    /// A load is stopped after so long; what is there by then is measured.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit_minutes: u64,
    /// A load is stopped when its files take so many GB.
    #[arg(long, default_value_t = 40, value_name = "N")]
    pub limit_gb: u64,
    /// Bytes of the memory cgroup of a point in MiB, the kernel's cache of its files included.
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub cgroup_mib: u64,
    /// How long gets and commits are timed at each point.
    #[arg(long, default_value_t = 5.0, value_name = "N")]
    pub seconds: f64,
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Writes every figure to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes tables and charts to this file, which any browser opens offline.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What keys, values and order are drawn from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
}

/// One engine at one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    /// The engine.
    pub engine: String,
    /// Rows to load.
    pub rows: u64,
    /// Whether rows are loaded in key order.
    pub in_key_order: bool,
}

impl Point {
    /// The workload name of its results: `growth-1000000`.
    pub(crate) fn workload(&self) -> String {
        let order = if self.in_key_order { "-in-key-order" } else { "" };
        format!("growth-{}{order}", self.rows)
    }
}

/// Parses a workload name: the rows, and whether they were loaded in key order.
pub(crate) fn of_workload(name: &str) -> Option<(u64, bool)> {
    let size = name.strip_prefix("growth-")?;
    let random = size.strip_suffix("-in-key-order");
    Some((random.unwrap_or(size).parse().ok()?, random.is_some()))
}

impl Growth {
    /// All points: small sizes first, so that an aborted run has measured most.
    ///
    /// # Errors
    /// Unknown names, sizes that are not whole transactions, and a directory without durability.
    pub(crate) fn points(&self) -> Result<Vec<Point>> {
        check_disk(&self.dir)?;
        if let Some(size) = self.sizes.iter().find(|size| **size == 0 || !size.is_multiple_of(1000)) {
            return Err(format!("{size} rows: a size is a multiple of 1000, a transaction's rows").into());
        }
        let engines = engines_of(&self.engines)?;
        let names: Vec<&str> =
            engines.iter().filter(|entry| entry.scope == Scope::All).map(|entry| entry.name).collect();
        Ok(self.points_of(&names))
    }

    fn points_of(&self, engines: &[&str]) -> Vec<Point> {
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let mut points = Vec::new();
        for rows in sizes {
            let in_key_order = rows >= self.key_order_from;
            let fits = |name: &&&str| **name == OURS || rows <= self.rival_rows_max;
            let of_size = engines.iter().filter(fits);
            points.extend(of_size.map(|name| Point { engine: (*name).to_owned(), rows, in_key_order }));
        }
        points
    }

    /// The memory limit of a point's cgroup, in bytes.
    pub(crate) fn cgroup_bytes(&self) -> u64 {
        self.cgroup_mib << 20
    }

    /// How long a load may last.
    pub(crate) fn limit_seconds(&self) -> u64 {
        self.limit_minutes * 60
    }

    /// The maximum size of a point's files, in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_gb * 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    //! Rivals must be measured at the same size and in the same order as Duramen.
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        growth: Growth,
    }

    fn check(words: &[&str], expected: &[(&str, &str)]) {
        let parsed = Words::parse_from([&["growth"], words].concat()).growth;
        let points = parsed.points_of(&["duramen", "lmdb"]);
        let found: Vec<(String, &str)> =
            points.iter().map(|point| (point.workload(), point.engine.as_str())).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, engine)| (name.as_str(), *engine)).collect();
        assert_eq!(found, expected);
        for point in &points {
            assert_eq!(of_workload(&point.workload()), Some((point.rows, point.in_key_order)));
        }
    }

    #[test]
    fn growth_has_small_points_first_and_rivals_up_to_their_bound() {
        let both = |name| [(name, "duramen"), (name, "lmdb")];
        let [a, b] = both("growth-100000");
        let [c, d] = both("growth-1000000");
        let ours = [("growth-10000000", "duramen"), ("growth-100000000-in-key-order", "duramen")];
        check(&[], &[a, b, c, d, ours[0], ours[1]]);
        check(&["--sizes", "1000000,100000,1000000"], &[a, b, c, d]);
        check(&["--sizes", "1000000", "--rival-rows-max", "999000"], &[c]);
        let in_order = both("growth-100000-in-key-order");
        check(&["--sizes", "100000", "--key-order-from", "0"], &in_order);
    }
}
