//! Arguments of `bench sync` that would have no effect: refused, so that no user believes they influenced a
//! figure.

use super::Parts;
use crate::args::BenchSyncArgs;
use crate::failure::{Failure, Result};

/// Refuses an argument without effect on the requested measurements. The parser checks those of a job.
pub(super) fn check(args: &BenchSyncArgs) -> Result<()> {
    if args.mix {
        return Ok(());
    }
    let parts = Parts::of(args);
    let has_turns = parts.strategies || parts.parallel;
    let alone = "leave --every and --parallel out";
    for (is_said, is_used, word, advice) in [
        (args.total_mib.is_some(), parts.every, "--total-mib", "use --every"),
        (args.trials.is_some(), parts.every, "--trials", "use --every"),
        (!args.threads.is_empty(), parts.parallel, "--threads", "use --parallel"),
        (args.turn_records.is_some(), parts.strategies, "--turn-records", alone),
        (args.turn_ms.is_some(), has_turns, "--turn-ms", "leave --every out, or use --parallel too"),
        (
            args.rounds.is_some(),
            has_turns,
            "--rounds",
            "leave --every out, or use --parallel too; for --every use --trials",
        ),
    ] {
        if is_said && !is_used {
            let text = format!("{word} has no effect on what is measured here");
            return Err(Failure::usage(text, format!("{advice}, or leave {word} out")));
        }
    }
    Ok(())
}
