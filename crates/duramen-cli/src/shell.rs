//! `duramen shell`, or `duramen DB`: commands without the database's name and, after `use`, without the
//! collection's.
//!
//! Owns the loop: a line from a terminal, a script or `--execute` is run as a command of the command line.
//! All commands share one open database, which is read-only until a command writes. The prompt then shows
//! that other processes are locked out. While another process has it open, each asks that one.

mod command;
mod editor;
mod history;
mod script;
mod vocabulary;
mod words;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::CommandFactory;

use crate::args::{Cli, DatabaseArgs, ShellArgs};
use crate::backend::Reading;
use crate::database::Session;
use crate::failure::{Failure, Result};
use crate::output::{Output, new_table};
use crate::signals::Signals;
use command::Parsed;
use vocabulary::Vocabulary;

/// Inserts the word `shell` before a database in the place of a command. A word that could be both is a
/// command.
pub(crate) fn with_word(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let first = words.iter().skip(1).position(|word| !word.to_string_lossy().starts_with('-'));
    let Some(at) = first.map(|at| at + 1) else { return words };
    let word = words[at].to_string_lossy();
    let is_command = word == "help" || Cli::command().find_subcommand(&*word).is_some();
    let path = std::path::Path::new(&words[at]);
    let is_database = path.is_dir() || word.ends_with(".duramen") || word.contains(std::path::MAIN_SEPARATOR);
    if !is_command && is_database {
        words.insert(at, "shell".into());
    }
    words
}

/// Runs the command.
pub(crate) fn run(args: &ShellArgs, out: Output) -> Result<()> {
    let mut shell = Shell::open(args, out)?;
    let ran = if !args.execute.is_empty() {
        script::execute(&mut shell, &args.execute, args.keep_going)
    } else if std::io::stdin().is_terminal() {
        editor::converse(&mut shell)
    } else {
        script::from_standard_input(&mut shell, args.keep_going)
    };
    ran.and(shell.session.close())
}

/// Whether another line is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Line,
    End,
}

/// A running shell.
struct Shell<'a> {
    args: &'a ShellArgs,
    session: Session,
    /// The collection set by `use`.
    collection: Option<String>,
    vocabulary: Vocabulary,
    out: Output,
}

impl<'a> Shell<'a> {
    /// Opens the database for reading, or asks its server, so that errors are reported before the first line.
    fn open(args: &'a ShellArgs, out: Output) -> Result<Shell<'a>> {
        let mut shell = Shell {
            args,
            session: Session::default(),
            collection: None,
            vocabulary: Vocabulary::of_commands(),
            out,
        };
        shell.learn()?;
        Ok(shell)
    }

    /// Reloads the collections, which the last command may have changed.
    fn learn(&mut self) -> Result<()> {
        let args = DatabaseArgs {
            db: self.args.database.db.clone(),
            wal: self.args.database.wal.clone(),
            session: Some(self.session.clone()),
            at: self.args.database.at.clone(),
            freshness: self.args.database.freshness,
        };
        self.vocabulary.collections = Reading::open(&args)?.schemas(None)?;
        let is_there = |name: &String| self.vocabulary.has_collection(name);
        self.collection = self.collection.take().filter(is_there);
        Ok(())
    }

    /// The prompt: the database, the collection in use, and whether other processes are locked out.
    fn prompt(&self) -> String {
        let name = match &self.args.database.at {
            Some(address) => address.to_string(),
            None => {
                let path = &self.args.database.db;
                path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
        };
        let collection = self.collection.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        let writing = if self.session.is_writing() { " (writing)" } else { "" };
        crate::output::printable(&format!("{name}{collection}{writing}> "))
    }

    /// Runs one line.
    fn line(&mut self, words: Vec<String>) -> Result<Next> {
        match command::parse(words, self)? {
            Parsed::Nothing => Ok(Next::Line),
            Parsed::End => Ok(Next::End),
            Parsed::Help(topic) => self.help(topic.as_deref()).map(|()| Next::Line),
            Parsed::Use(collection) => {
                self.vocabulary.check_collection(&collection)?;
                self.collection = Some(collection);
                Ok(Next::Line)
            }
            Parsed::Command { command, json, quiet } => {
                let out = Output::new(json || self.out.is_json(), quiet || self.out.is_quiet());
                // From here on ^C stops the command, not the shell.
                Signals::watch()?;
                let ran = crate::run(&command, out);
                Signals::rest();
                if let Err(failure) = &ran {
                    out.failure(failure);
                }
                // The command is done, whatever comes of this: the next one tells, if it fails, too.
                let _ = self.learn();
                // It was printed already, in the form that the line requested.
                ran.map(|()| Next::Line).map_err(|failure| match failure {
                    Failure::Said(said) => Failure::Exit(said.exit),
                    other => other,
                })
            }
        }
    }

    fn help(&self, topic: Option<&str>) -> Result<()> {
        let mut cli = Cli::command();
        if let Some(topic) = topic {
            let Some(found) = cli.find_subcommand_mut(topic) else {
                return Err(command::unknown(topic, self));
            };
            return self.out.line(found.render_long_help().to_string().trim_end());
        }
        let mut table = new_table(&["command", ""]);
        for inner in cli.get_subcommands().filter(|inner| command::is_for_shells(inner)) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            table.add_row([inner.get_name().to_owned(), about]);
        }
        for (name, about) in command::OWN {
            table.add_row([name.to_owned(), about.to_owned()]);
        }
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(110);
        self.out.table(&table)?;
        self.out.note("the database is left out, and the collection after `use`; `help COMMAND` has more");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! A word that could be a command is one, whatever the directory contains.
    use super::*;

    fn check(words: &[&str], expected: &[&str]) {
        let given = words.iter().map(Into::into);
        assert_eq!(with_word(given), expected.iter().map(OsString::from).collect::<Vec<_>>());
    }

    #[test]
    fn a_database_where_a_command_stands_is_opened_in_a_shell() {
        check(&["duramen", "x.duramen"], &["duramen", "shell", "x.duramen"]);
        check(&["duramen", "--json", "./x", "-e", "a"], &["duramen", "--json", "shell", "./x", "-e", "a"]);
        check(&["duramen", "count", "x.duramen"], &["duramen", "count", "x.duramen"]);
        check(&["duramen", "help"], &["duramen", "help"]);
        check(&["duramen", "cuont"], &["duramen", "cuont"]);
        check(&["duramen"], &["duramen"]);
    }
}
