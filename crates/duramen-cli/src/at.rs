//! `--at`: the server that a command asks, in the place of a database's directory.
//!
//! The argument DB is then left out. It is put back here, so that the parser needs no second form of each
//! command.

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory as _, Parser as _};
use duramen_client::Address;

use crate::args::{Cli, ClusterCommand, Command, ReferenceCommand};
use crate::failure::{Failure, Result};
use crate::shell;

/// The flag, and the variables that stand for it and for the token.
const FLAG: &str = "--at";
const VARIABLE: &str = "DURAMEN_AT";
const TOKEN: &str = "DURAMEN_TOKEN";

/// In the place of the database. No command that asks a server looks at it.
const PLACEHOLDER: &str = "SERVED";

/// Parses the words of the command line.
pub(crate) fn parse(words: Vec<OsString>) -> std::result::Result<Cli, clap::Error> {
    if words.iter().any(|word| is_flag(word)) {
        return Cli::try_parse_from(with_database(&words));
    }
    let words = shell::with_word(words.into_iter());
    let typed = Cli::try_parse_from(&words);
    let Some(address) = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty()) else {
        return typed;
    };
    let mut typed = typed;
    // A command that names a database means that one, and one that asks no server needs none.
    let is_local = match &mut typed {
        Ok(cli) => cli.command.database_mut().is_none_or(|database| database.db.exists()),
        Err(_) => false,
    };
    match Cli::try_parse_from(with_database(&words)) {
        Ok(asked) if !is_local && is_served(&asked.command) => Ok(Cli { at: Some(address), ..asked }),
        _ => typed,
    }
}

/// Gives the address of `--at` to the command, and how old what it reads may be.
pub(crate) fn set(cli: &mut Cli) -> Result<()> {
    if let (Some(freshness), Some(database)) = (cli.max_age, cli.command.database_mut()) {
        database.freshness = freshness;
    }
    let Some(at) = &cli.at else { return Ok(()) };
    let address = Address::parse(at)?.or_token(std::env::var(TOKEN).ok());
    give(&mut cli.command, Some(&address))
}

/// Gives a command the address of its server, if there is one.
pub(crate) fn give(command: &mut Command, address: Option<&Address>) -> Result<()> {
    let Some(address) = address else { return Ok(()) };
    if !is_served(command) {
        return Err(Failure::usage(
            "what it asks for is read from the files of a database, and no server is asked for it",
            "run it where the database is, with its directory in the place of --at",
        ));
    }
    if let Some(database) = command.database_mut() {
        database.at = Some(address.clone());
    }
    Ok(())
}

/// Whether a command can ask a server.
fn is_served(command: &Command) -> bool {
    match command {
        Command::Cluster(args) => !matches!(args.what, ClusterCommand::Detach(_)),
        Command::Inspect(args) => !args.space && args.tree.is_none(),
        Command::Reference(args) => matches!(args.what, ReferenceCommand::List(_)),
        Command::Backup(_)
        | Command::Collections(_)
        | Command::Count(_)
        | Command::Del(_)
        | Command::Drop(_)
        | Command::Export(_)
        | Command::Find(_)
        | Command::Get(_)
        | Command::Import(_)
        | Command::Put(_)
        | Command::Reduce(_)
        | Command::Scan(_)
        | Command::Shell(_)
        | Command::Token(_)
        | Command::Top(_)
        | Command::User(_)
        | Command::View(_)
        | Command::Watch(_) => true,
        _ => false,
    }
}

fn is_flag(word: &OsStr) -> bool {
    word == FLAG || word.as_encoded_bytes().starts_with(b"--at=")
}

/// The words with something in the place of the database.
fn with_database(words: &[OsString]) -> Vec<OsString> {
    let mut found = Vec::with_capacity(words.len() + 1);
    let cli = Cli::command();
    let (mut command, mut is_value, mut is_inserted) = (&cli, false, false);
    let mut words = words.iter().peekable();
    found.extend(words.next().cloned());
    while let Some(word) = words.next() {
        found.push(word.clone());
        if std::mem::take(&mut is_value) || is_inserted {
            continue;
        }
        is_value = word == FLAG;
        let Some(inner) = command.find_subcommand(word) else { continue };
        command = inner;
        let goes_on = words.peek().is_some_and(|next| command.find_subcommand(next).is_some());
        if !goes_on && command.get_arguments().any(|argument| argument.get_id() == "db") {
            found.push(PLACEHOLDER.into());
            is_inserted = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    //! A word that is taken for a database, or a database for a word, is another command.
    use super::*;

    fn with(words: &str) -> String {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        with_database(&words).join(OsStr::new(" ")).into_string().expect("text")
    }

    #[test]
    fn the_database_is_put_behind_the_command() {
        assert_eq!(with("duramen --at h:1 count -c f"), "duramen --at h:1 count SERVED -c f");
        assert_eq!(with("duramen count --at=h:1 -c f"), "duramen count SERVED --at=h:1 -c f");
        assert_eq!(with("duramen --at count put -c f {}"), "duramen --at count put SERVED -c f {}");
        assert_eq!(with("duramen --at x view list -c f"), "duramen --at x view list SERVED -c f");
        assert_eq!(with("duramen --at x explain E0101"), "duramen --at x explain E0101");
    }
}
