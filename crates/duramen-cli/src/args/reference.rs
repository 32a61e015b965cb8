//! The arguments of `duramen reference`.

use clap::{Args, Subcommand, ValueEnum};
use duramen::{Durability, OnDelete};

use super::{DatabaseArgs, Target, collection_name, column_name, levels};

#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    #[command(subcommand)]
    pub(crate) what: ReferenceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReferenceCommand {
    /// Make a field refer to the documents of a collection, and check the documents that exist; every program
    /// that writes to the database keeps it
    Add(ReferenceAddArgs),
    /// Drop the reference of a field; the documents stay
    Drop(ReferenceDropArgs),
    /// List the references of one or all collections, and how far they are checked
    List(ReferenceListArgs),
}

impl ReferenceArgs {
    pub(crate) fn database_mut(&mut self) -> &mut DatabaseArgs {
        match &mut self.what {
            ReferenceCommand::Add(args) => &mut args.target.database,
            ReferenceCommand::Drop(args) => &mut args.target.database,
            ReferenceCommand::List(args) => &mut args.database,
        }
    }
}

/// What a delete does to the documents that refer to the deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActionWord {
    /// Refuse the delete
    Restrict,
    /// Delete them too
    Cascade,
    /// Make their field null; of a list, remove the item
    Clear,
}

impl From<ActionWord> for OnDelete {
    fn from(word: ActionWord) -> OnDelete {
        match word {
            ActionWord::Restrict => OnDelete::Restrict,
            ActionWord::Cascade => OnDelete::Cascade,
            ActionWord::Clear => OnDelete::Clear,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceAddArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The field whose values are keys of the other collection; a document without it refers to nothing
    #[arg(value_parser = column_name)]
    pub(crate) field: String,

    /// The collection that it refers to
    #[arg(value_parser = collection_name)]
    pub(crate) to: String,

    /// What deleting a document there does to the documents that refer to it
    #[arg(long, value_enum, default_value_t = ActionWord::Restrict)]
    pub(crate) on_delete: ActionWord,

    /// The field is a list: each of its items is a key
    #[arg(long)]
    pub(crate) each: bool,

    /// Replace a reference of this field with another definition
    #[arg(long)]
    pub(crate) replace: bool,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceDropArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The field whose reference goes
    pub(crate) field: String,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceListArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection; by default all
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: Option<String>,
}
