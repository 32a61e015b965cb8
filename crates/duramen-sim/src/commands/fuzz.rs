//! `fuzz`: hostile bytes for everything that decodes.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use duramen_sim::fuzz::{Target, search};
use duramen_sim::kind_counts::KindCounts;

use super::Length;

/// Address space of the process: inputs take kilobytes, and the databases that they edit a hundred.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// An input that takes longer ends the process, where the search itself takes that long.
const HANG: Duration = Duration::from_secs(60);

/// Gives hostile bytes to everything that decodes; the time is divided among the targets
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    #[command(flatten)]
    length: Length,
    /// Only this target
    #[arg(long, value_parser = target)]
    target: Option<Target>,
    /// Runs the bytes of this file once, and nothing else
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

fn target(name: &str) -> Result<Target, String> {
    let names = Target::ALL.map(Target::name).join(", ");
    Target::ALL.into_iter().find(|target| target.name() == name).ok_or(format!("the targets are {names}"))
}

impl Fuzz {
    pub(crate) fn run(&self) -> Result<(), String> {
        if let (Some(path), Some(target)) = (&self.input, self.target) {
            let input = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            target.run(&input);
            println!("survived");
            return Ok(());
        }
        bound_memory()?;
        let targets = self.target.map_or(Target::ALL.to_vec(), |target| vec![target]);
        let time = self.length.time() / u32::try_from(targets.len()).expect("few targets");
        let (mut inputs, mut counts) = (0, KindCounts::default());
        for target in targets {
            let name = target.name();
            let kept = std::env::temp_dir().join(format!("duramen-fuzz-{name}-{}", std::process::id()));
            let path = kept.display();
            println!("{name}: the input under way is in {path}");
            let again = format!("again: cargo run -p duramen-sim -- fuzz --target {name} --input {path}");
            let (seed, search) = (self.length.seed, |begins: &dyn Fn(u64)| {
                search(target, self.length.seed, time, &kept, begins)
            });
            let searched = if time < HANG { search(&|_| ()) } else { watched(name, seed, &again, search) };
            let count = searched.map_err(|what| format!("{what}\n{again}"))?;
            std::fs::remove_file(&kept).map_err(|error| format!("{path}: {error}"))?;
            println!("{name}: {count} inputs");
            inputs += count;
            counts.extend([(count, name)]);
        }
        println!("figures: inputs={inputs} next_seed={}", self.length.seed + 1);
        println!("{counts}");
        counts.verdict()
    }
}

/// Searches beside a thread that ends the process if one input takes too long: an endless loop reports
/// nothing itself.
fn watched<T>(target: &str, seed: u64, again: &str, search: impl FnOnce(&dyn Fn(u64)) -> T) -> T {
    let (begun, heard) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = 0;
            loop {
                match heard.recv_timeout(HANG) {
                    Ok(begun) => number = begun,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!(
                            "{target}: input {number} of seed {seed} has no end after {HANG:?}\n{again}"
                        );
                        std::process::abort();
                    }
                }
            }
        });
        let searched = search(&|number| begun.send(number).expect("the watch listens until the end"));
        // The watching thread ends when its channel closes.
        drop(begun);
        searched
    })
}

/// Limits memory: the process ends where a decoder trusts a length that nothing justifies.
#[cfg(unix)]
fn bound_memory() -> Result<(), String> {
    let limit = rustix::process::Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).map_err(|error| error.to_string())
}

#[cfg(not(unix))]
fn bound_memory() -> Result<(), String> {
    Ok(())
}
