//! Syncs per commit, counted from outside by strace, independently of the engine's own counters.
//!
//! It counts `fsync`, `fdatasync`, `msync` with `MS_SYNC`, `sync_file_range`, and writes with `RWF_DSYNC` or
//! `RWF_SYNC`. Those of opening and closing are included, spread over thousands of commits. Writes to a file
//! opened with `O_DSYNC` are not seen.

use std::collections::BTreeMap;
use std::fs;

use crate::child;
use crate::engine::Result;
use crate::job::{Job, Outcome};

const CALLS: &str = "trace=fsync,fdatasync,msync,sync_file_range,pwritev2";

/// Runs W1 or W2 under strace.
///
/// # Errors
/// That strace is missing, and errors of the run.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 syncs")]
pub(crate) fn count(job: &Job) -> Result<Outcome> {
    let trace = job.dir.with_extension("strace");
    let path = trace.to_string_lossy();
    let arguments = ["-f", "--seccomp-bpf", "-e", CALLS, "-e", "signal=none", "-o", &path];
    let outcome = child::run_under("strace", &arguments, job)
        .map_err(|failed| format!("no count: {failed}; is strace installed?"))?;
    let text = fs::read_to_string(&trace)?;
    let counted = counted(&text);
    fs::remove_file(&trace)?;
    let commits = outcome.figures.get("commits in all").copied().ok_or("commits were not counted")?;
    let syncs: u64 = counted.values().sum();
    let kinds: Vec<String> = counted.iter().map(|(call, count)| format!("{count} {call}")).collect();
    Ok(Outcome::default()
        .with("syncs each", syncs as f64 / commits)
        .with("commits", commits)
        .noting(kinds.join(", ")))
}

/// How often each call that waits for the disk was made.
fn counted(trace: &str) -> BTreeMap<&str, u64> {
    let mut counted = BTreeMap::new();
    for line in trace.lines() {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        let name = call.split('(').next().unwrap_or_default();
        let waits = match name {
            "fsync" | "fdatasync" | "sync_file_range" => true,
            "msync" => line.contains("MS_SYNC"),
            "pwritev2" => line.contains("RWF_DSYNC") || line.contains("RWF_SYNC"),
            _ => false,
        };
        if waits && call.contains('(') {
            *counted.entry(name).or_default() += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    //! A sync that is missed or counted twice would misjudge an engine.
    use super::*;

    #[test]
    fn calls_that_wait_are_counted_once_each() {
        let trace = "12 fdatasync(3 <unfinished ...>\n13 pwritev2(4, [{iov_base=\"a\"}], 1, 0, RWF_DSYNC) = 1\n\
                     12 <... fdatasync resumed>) = 0\n13 pwritev2(4, [{iov_base=\"a\"}], 1, 0, 0) = 1\n\
                     12 msync(0x7f, 4096, MS_ASYNC) = 0\n12 msync(0x7f, 4096, MS_SYNC) = 0\n";
        let expected = [("fdatasync", 1), ("msync", 1), ("pwritev2", 1)];
        assert_eq!(counted(trace).into_iter().collect::<Vec<_>>(), expected);
    }
}
