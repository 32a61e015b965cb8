//! Turns a line of the shell into a command: inserts the database and the collection where they were left
//! out.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::Shell;
use crate::args::{Cli, Command};
use crate::at;
use crate::database::candidates;
use crate::failure::{Failure, Result};

/// The shell's own commands.
pub(super) const OWN: [(&str, &str); 3] = [
    ("use COLLECTION", "Leave the collection out from now on"),
    ("help [COMMAND]", "List the commands, or show the usage of one"),
    ("exit", "End the shell; ^D does too"),
];

/// The meaning of a line.
pub(super) enum Parsed {
    /// It is empty.
    Nothing,
    /// The shell is to end.
    End,
    /// Help on a command, or on all.
    Help(Option<String>),
    /// A collection to leave out from now on.
    Use(String),
    /// A command, with its flags for JSON and for no notes.
    Command { command: Box<Command>, json: bool, quiet: bool },
}

/// Reads the words of one line.
pub(super) fn parse(words: Vec<String>, shell: &Shell<'_>) -> Result<Parsed> {
    let mut words = words.into_iter();
    let Some(first) = words.next() else { return Ok(Parsed::Nothing) };
    let name = first.strip_prefix('.').unwrap_or(&first);
    let mut rest: Vec<String> = words.collect();
    match name {
        "exit" | "quit" => return Ok(Parsed::End),
        "help" => return Ok(Parsed::Help(rest.into_iter().next())),
        "use" => {
            return match rest.pop() {
                Some(collection) if rest.is_empty() => Ok(Parsed::Use(collection)),
                _ => Err(Failure::usage("use takes the name of one collection", "use COLLECTION")),
            };
        }
        _ => {}
    }
    if !shell.vocabulary.command_names().iter().any(|known| known == name) {
        return Err(unknown(name, shell));
    }
    check_input(name, &rest)?;
    let words = completed(name, rest, shell);
    let cli = Cli::try_parse_from(&words).map_err(|error| refused(&error, &words, shell))?;
    if cli.at.is_some() {
        return Err(Failure::usage(
            "a line of a shell works on the shell's database, and --at names a server",
            "end the shell, and give --at to the command",
        ));
    }
    let mut command = Box::new(cli.command);
    at::give(&mut command, shell.args.database.at.as_ref())?;
    if let Some(database) = command.database_mut() {
        database.freshness = cli.max_age.unwrap_or(shell.args.database.freshness);
        database.session = Some(shell.session.clone());
        database.wal = database.wal.take().or_else(|| shell.args.database.wal.clone());
    }
    Ok(Parsed::Command { command, json: cli.json, quiet: cli.quiet })
}

/// Refuses a command that would read standard input, which holds the lines of the shell.
fn check_input(name: &str, rest: &[String]) -> Result<()> {
    let asks_for_help = rest.iter().any(|word| word == "--help" || word == "-h");
    let reads_it = match name {
        _ if asks_for_help => false,
        "put" => !rest.iter().any(|word| word.starts_with('{')),
        "import" => rest.iter().any(|word| word == "-"),
        _ => false,
    };
    if reads_it {
        return Err(Failure::usage(
            format!("{name} cannot read standard input in a shell"),
            "name a file, or write the document after the command: put {\"id\": 1}",
        ));
    }
    Ok(())
}

/// The words with the database and, if needed and known, the collection.
fn completed(name: &str, rest: Vec<String>, shell: &Shell<'_>) -> Vec<String> {
    let mut words = vec!["duramen".to_owned(), name.to_owned()];
    let mut rest = rest.into_iter().peekable();
    let cli = Cli::command();
    let mut command = cli.find_subcommand(name).expect("its name was looked up");
    while let Some(inner) = rest.peek().and_then(|word| command.find_subcommand(word)) {
        command = inner;
        words.extend(rest.next());
    }
    let wants = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    if wants("db") {
        words.push(shell.args.database.db.display().to_string());
    }
    let is_said = rest.clone().any(|word| word.starts_with("-c") || word.starts_with("--collection"));
    if wants("collection") && !is_said {
        let only_the_database = command.get_positionals().count() == 1;
        let names_one = |word: &String| {
            !word.starts_with('-') && (only_the_database || shell.vocabulary.has_collection(word))
        };
        let collection = rest.next_if(names_one).or_else(|| shell.collection.clone());
        words.extend(collection.map(|collection| format!("--collection={collection}")));
    }
    words.extend(rest);
    words
}

/// The parser's error, reworded for a shell.
fn refused(error: &clap::Error, words: &[String], shell: &Shell<'_>) -> Failure {
    match crate::refuse(error, words, shell.out) {
        // Help was requested and printed.
        Ok(()) => Failure::Exit(0),
        Err(failure) if is_without_collection(error) => {
            failure.hinted("name a collection after the command, or `use` one for all that follow")
        }
        Err(failure) => failure,
    }
}

/// Whether no collection was named, nor is one in use.
fn is_without_collection(error: &clap::Error) -> bool {
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let names = |value: &ContextValue| value.to_string().contains("--collection");
    is_missing && error.get(ContextKind::InvalidArg).is_some_and(names)
}

/// The error for an unknown command.
pub(super) fn unknown(name: &str, shell: &Shell<'_>) -> Failure {
    let names = shell.vocabulary.command_names();
    Failure::usage(format!("there is no command {name}"), candidates("commands", name, &names))
}

/// Whether a command is available in a shell.
pub(super) fn is_for_shells(command: &clap::Command) -> bool {
    !command.is_hide_set()
        && !matches!(command.get_name(), "shell" | "serve" | "demo" | "completions" | "help")
}
