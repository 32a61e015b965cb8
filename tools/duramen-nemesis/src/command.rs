//! The command line, and how a command ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Handle;

use crate::failure::{Result, failed};
use crate::{identity, power, room, run};

/// Runs clusters of real processes, and checks every answer of their clients. Exit codes: 3 something was
/// wrong; 2 it cannot run here.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Faults(run::FaultArgs),
    Identity(identity::IdentityArgs),
    /// Founds a cluster with a node at each directory, and stops it
    Found(power::Place),
    /// Starts a cluster that was founded, and lets clients use it until the power goes
    Load(power::Use),
    /// Starts what survived, lets it go on, and compares it with the history
    Check(power::CheckArgs),
}

pub(crate) fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Faults(args) => run::main(&args),
        Command::Identity(args) => identity::main(&args),
        Command::Found(place) => power::found(&place),
        Command::Load(args) => power::load(&args),
        Command::Check(args) => power::check(&args),
    }
}

/// Prepares something and runs it in a network namespace of its own, where clients are as well. It returns
/// what was wrong.
pub(crate) fn in_room<T>(
    work: &Path,
    prepare: impl FnOnce(&Handle) -> Result<T>,
    run: impl FnOnce(T) -> Result<Vec<String>>,
) -> ExitCode {
    // Before there is any other thread.
    let entered = room::enter().and_then(|()| room::enter_mounts());
    let runtime = entered.and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(|error| failed("start", &"a runtime", &error))
    });
    let prepared = runtime.and_then(|runtime| Ok((prepare(runtime.handle())?, runtime)));
    let (prepared, runtime) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            eprintln!("nemesis: {why}");
            return ExitCode::from(2);
        }
    };
    let done = run(prepared);
    // Links end with it.
    drop(runtime);
    let wrong = done.unwrap_or_else(|why| vec![why]);
    if wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    for what in wrong.iter().take(20) {
        eprintln!("WRONG: {what}");
    }
    eprintln!("{} wrong; see {}", wrong.len(), work.display());
    ExitCode::from(3)
}

/// Makes a directory, which must be empty if it is there, and returns its whole path.
pub(crate) fn empty_directory(path: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(path).map_err(|error| failed("make", &path.display(), &error))?;
    let whole = path.canonicalize().map_err(|error| failed("find", &path.display(), &error))?;
    let is_empty = std::fs::read_dir(&whole).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty { Ok(whole) } else { Err(format!("{} is not empty", whole.display())) }
}
