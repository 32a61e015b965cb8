//! The binary `duramen`: parses the arguments, runs one command, reports the outcome.
//!
//! Exit codes are in `failure`. Everything that prints is in `output`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `parquet` | import and export of Parquet; off by default, because its crates take minutes to compile |

#![allow(
    clippy::disallowed_methods,
    reason = "a program has files, threads and a clock of its own; those of a database stay behind the library"
)]

mod args;
mod at;
mod audit;
mod backend;
mod backup;
mod bench;
mod byte_tree;
mod cluster;
mod columns;
mod compact;
mod database;
mod definitions;
mod demo;
mod describe;
mod doctor;
mod drop;
mod explain;
mod export;
mod failure;
mod file_system;
mod find;
mod flatten;
mod import;
mod keys;
mod man;
mod names;
mod numbers;
mod output;
mod progress;
mod read;
mod reference;
mod repair;
mod serve;
mod shell;
mod signals;
mod space;
mod synonyms;
mod top;
mod tree;
mod users;
mod view;
mod watch;
mod write;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use args::{BenchCommand, Command};
use failure::{Failure, Result};
use output::Output;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let (out, result) = match at::parse(std::env::args_os().collect()) {
        Ok(mut cli) => {
            let out = Output::new(cli.json, cli.quiet);
            (out, at::set(&mut cli).and_then(|()| run(&cli.command, out)))
        }
        Err(error) => {
            let json = std::env::args_os().any(|word| word == "--json");
            let out = Output::new(json, false);
            (out, refuse(&error, &words(std::env::args_os()), out))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out.failure(&failure);
            ExitCode::from(failure.exit())
        }
    }
}

/// Runs one command.
pub(crate) fn run(command: &Command, out: Output) -> Result<()> {
    match command {
        Command::Shell(args) => shell::run(args, out),
        Command::Import(args) => import::run(args, out),
        Command::Export(args) => export::run(args, out),
        Command::Get(args) => read::get(args, out),
        Command::Put(args) => write::put(args, out),
        Command::Del(args) => write::del(args, out),
        Command::Drop(args) => drop::run(args, out),
        Command::Scan(args) => read::scan(args, out),
        Command::Find(args) => find::run(args, out),
        Command::Count(args) => read::count(args, out),
        Command::Reduce(args) => read::reduce(args, out),
        Command::View(args) => view::run(args, out),
        Command::Reference(args) => reference::run(args, out),
        Command::Collections(args) => describe::collections(args, out),
        Command::Inspect(args) if args.space => space::inspect(&args.database, out),
        Command::Inspect(args) => match &args.tree {
            Some(tree) => tree::inspect(&args.database, tree, out),
            None => describe::inspect(&args.database, out),
        },
        Command::Check(args) => describe::check(args, out),
        Command::Watch(args) => watch::run(args, out),
        Command::Top(args) => top::run(args, out),
        Command::Serve(args) => serve::run(args, out),
        Command::User(args) => users::user(args, out),
        Command::Token(args) => users::token(args, out),
        Command::Audit(args) => audit::run(args, out),
        Command::Cluster(args) => cluster::run(args, out),
        Command::Backup(args) => backup::run(args, out),
        Command::Compact(args) => compact::run(args, out),
        Command::Repair(args) => repair::run(args, out),
        Command::Doctor(args) => doctor::doctor(args, out),
        Command::Bench(args) => match &args.what {
            BenchCommand::Sync(args) => bench::sync(args, out),
        },
        Command::Demo(args) => demo::run(args, out),
        Command::DemoWriter(args) => demo::writer::run(&args.db, out),
        Command::Explain(args) => explain::run(args, out),
        Command::Man(args) => man::man(args, out),
        Command::Completions(args) => man::completions(args, out),
    }
}

/// Help and version are results; other parser errors become errors of this program.
pub(crate) fn refuse(error: &clap::Error, words: &[String], out: Output) -> Result<()> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => out.line(error.render().to_string().trim_end()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            out.note(error.render().to_string().trim_end());
            Err(Failure::Exit(failure::USAGE))
        }
        _ => Err(usage(error, words)),
    }
}

fn words(words: impl Iterator<Item = std::ffi::OsString>) -> Vec<String> {
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The parser's first sentence, and its suggestion.
fn usage(error: &clap::Error, words: &[String]) -> Failure {
    let rendered = error.render().to_string();
    let mut lines = rendered.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("the arguments are wrong");
    let mut message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    if message.ends_with(':') {
        let listed: Vec<&str> = lines.clone().take_while(|line| !line.starts_with("Usage")).collect();
        message = format!("{message} {}", listed.join(" "));
    }
    if let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(instead) = synonyms::command_instead(command)
    {
        return Failure::usage(message, instead);
    }
    let suggested =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let near = suggested.into_iter().find_map(|kind| error.get(kind)).map(ToString::to_string);
    // An option that takes any text lists no values.
    let values = error.get(ContextKind::ValidValue).map(ToString::to_string);
    let values = values.filter(|all| !all.is_empty()).map(|all| format!("the values are {all}"));
    let usage = rendered
        .lines()
        .find(|line| line.starts_with("Usage:"))
        .map(|line| line.replacen("Usage:", "usage:", 1));
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => Some(option),
        _ => None,
    };
    if let Some(instead) = unknown.and_then(|option| synonyms::instead(option, words)) {
        return Failure::usage(message, instead);
    }
    if let Some(hint) = synonyms::without(words).filter(|_| error.kind() == ErrorKind::ArgumentConflict) {
        return Failure::usage(message, hint);
    }
    let hint = match (near, values, usage) {
        (Some(near), Some(values), _) => format!("did you mean {near}? {values}"),
        (Some(near), None, _) => format!("did you mean {near}?"),
        (None, Some(values), _) => values,
        (None, None, Some(usage)) => usage,
        (None, None, None) => "see `duramen --help`".to_owned(),
    };
    Failure::usage(message, hint)
}
