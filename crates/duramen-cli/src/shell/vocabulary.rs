//! The words available in a shell: commands with their flags, collections, views, fields.
//!
//! Owns the completions at a position in a line. Independent of the terminal.

use clap::CommandFactory;
use duramen::{Code, Schema};

use super::command::{OWN, is_for_shells};
use crate::args::Cli;
use crate::database::candidates;
use crate::failure::{FAILED, Failure, Result};
use crate::names::list_item;
use crate::output::shell_word;

/// The words of a shell.
#[derive(Debug, Clone, Default)]
pub(super) struct Vocabulary {
    commands: Vec<Words>,
    pub(super) collections: Vec<Schema>,
    /// The collection set by `use`.
    pub(super) used: Option<String>,
}

/// A command and its possible arguments.
#[derive(Debug, Clone)]
struct Words {
    name: String,
    flags: Vec<String>,
    inner: Vec<String>,
    takes_collection: bool,
    usage: String,
}

impl Vocabulary {
    pub(super) fn of_commands() -> Vocabulary {
        let mut cli = Cli::command();
        cli.build();
        let mut commands: Vec<Words> =
            cli.get_subcommands().filter(|command| is_for_shells(command)).map(Words::of).collect();
        commands.extend(OWN.map(|(usage, _)| {
            let (name, usage) = usage.split_once(' ').unwrap_or((usage, ""));
            Words {
                name: name.to_owned(),
                flags: Vec::new(),
                inner: Vec::new(),
                takes_collection: name == "use",
                usage: usage.to_owned(),
            }
        }));
        Vocabulary { commands, ..Vocabulary::default() }
    }

    pub(super) fn command_names(&self) -> Vec<String> {
        self.commands.iter().map(|command| command.name.clone()).collect()
    }

    pub(super) fn has_collection(&self, name: &str) -> bool {
        self.collections.iter().any(|schema| schema.name() == name)
    }

    /// Refuses the name of an unknown collection.
    pub(super) fn check_collection(&self, name: &str) -> Result<()> {
        if self.has_collection(name) {
            return Ok(());
        }
        let message = format!("there is no collection {name}");
        let names = self.collection_names();
        Err(Failure::said(FAILED, Code::NoSuchTree, message, candidates("collections", name, &names)))
    }

    fn collection_names(&self) -> Vec<String> {
        self.collections.iter().map(|schema| schema.name().to_owned()).collect()
    }

    /// Completions of a text: where the word to replace begins, and the words.
    pub(super) fn completions(&self, text: &str) -> (usize, Vec<String>) {
        let start = text.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &text[start..];
        let before: Vec<&str> = text[..start].split_whitespace().collect();
        let mut offered: Vec<String> =
            self.offered(&before, word).into_iter().filter(|offer| offer.starts_with(word)).collect();
        offered.sort_unstable();
        offered.dedup();
        (start, offered)
    }

    fn offered(&self, before: &[&str], word: &str) -> Vec<String> {
        let Some(first) = before.first() else { return self.command_names() };
        let name = first.strip_prefix('.').unwrap_or(first);
        if name == "help" {
            return self.command_names();
        }
        let Some(command) = self.commands.iter().find(|command| command.name == name) else {
            return Vec::new();
        };
        if word.starts_with('-') {
            return command.flags.clone();
        }
        let schema = self.meant(before);
        let fields = || schema.iter().flat_map(|schema| schema.columns()).map(|column| column.name.clone());
        let as_items = || fields().map(|field| shell_word(&list_item(&field))).collect();
        match before.last() {
            Some(&("-c" | "--collection" | "use")) => return self.collection_names(),
            Some(&"--view") => return schema.iter().flat_map(|schema| views(schema)).collect(),
            Some(
                &("--sum" | "--min" | "--max" | "--value" | "--order-by" | "--fields" | "--group-by"
                | "--mean" | "--distinct" | "--top" | "--quantiles"),
            ) => {
                return as_items();
            }
            _ => {}
        }
        let mut offered = if before.len() == 1 { command.inner.clone() } else { Vec::new() };
        if command.takes_collection && before.len() <= 1 + usize::from(!command.inner.is_empty()) {
            offered.extend(self.collection_names());
        }
        if name == "find" {
            offered.extend(fields().map(|field| format!("{field}=")));
        }
        if name == "reference" {
            offered.extend(fields());
        }
        if name == "view" {
            offered.extend(schema.iter().flat_map(|schema| views(schema)));
        }
        offered
    }

    /// The collection of a line: named in it, or set by `use`, or the only one.
    fn meant(&self, before: &[&str]) -> Option<&Schema> {
        let find = |name: &str| self.collections.iter().find(|schema| schema.name() == name);
        let named = before.iter().skip(1).find_map(|word| find(word));
        let used = || self.used.as_deref().and_then(find);
        let only = || self.collections.first().filter(|_| self.collections.len() == 1);
        named.or_else(used).or_else(only)
    }

    /// The arguments still missing after a command's name.
    pub(super) fn hint(&self, text: &str) -> Option<String> {
        let name = text.strip_suffix(' ')?;
        let command = self.commands.iter().find(|command| command.name == name)?;
        (!command.usage.is_empty()).then(|| command.usage.clone())
    }
}

fn views(schema: &Schema) -> Vec<String> {
    schema.views().iter().map(|view| view.name().to_owned()).collect()
}

impl Words {
    fn of(command: &clap::Command) -> Words {
        let all = std::iter::once(command).chain(command.get_subcommands());
        let arguments: Vec<&clap::Arg> = all.flat_map(clap::Command::get_arguments).collect();
        let flags = arguments.iter().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}"));
        let usage = command.clone().render_usage().to_string();
        let usage = usage.replace("<DB>", "").replace("--collection <NAME>", "[COLLECTION]");
        let after = usage.split_once(command.get_name()).map_or("", |(_, after)| after);
        Words {
            name: command.get_name().to_owned(),
            flags: flags.collect(),
            inner: command
                .get_subcommands()
                .map(|inner| inner.get_name().to_owned())
                .filter(|name| name != "help")
                .collect(),
            takes_collection: arguments.iter().any(|arg| arg.get_id() == "collection"),
            usage: after.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Each completion must be valid at its position.
    use super::*;
    use duramen::ViewSpec;
    use duramen::schema::ColumnType;

    fn words() -> Vocabulary {
        let flights = Schema::new("flights")
            .key(["carrier"])
            .column("carrier", ColumnType::Text)
            .column("delay", ColumnType::Int)
            .view(ViewSpec::new("by_delay", ["delay"]));
        let mut words = Vocabulary::of_commands();
        words.collections = vec![flights, Schema::new("planes").key(["tailnum"])];
        words
    }

    fn check(text: &str, expected: &[&str]) {
        let (start, offered) = words().completions(text);
        assert_eq!(offered, expected, "{text}");
        assert_eq!(start, text.rfind(' ').map_or(0, |at| at + 1), "{text}");
    }

    #[test]
    fn each_place_has_words_of_its_own() {
        check("cou", &["count"]);
        check("count f", &["flights"]);
        check("use ", &["flights", "planes"]);
        check("count -c pl", &["planes"]);
        check("find flights de", &["delay="]);
        check("scan flights --rev", &["--reverse"]);
        check("help exi", &["exit"]);
        check("nonsense ", &[]);
    }

    #[test]
    fn a_command_tells_what_it_wants() {
        assert_eq!(words().hint("get ").as_deref(), Some("[OPTIONS] [COLLECTION] --key <VALUE,...>"));
        assert_eq!(words().hint("use ").as_deref(), Some("COLLECTION"));
        assert_eq!(words().hint("get x"), None);
    }
}
