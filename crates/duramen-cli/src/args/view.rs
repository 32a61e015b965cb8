//! The arguments of `duramen view`.

use clap::{Args, Subcommand};

use super::{DatabaseArgs, Level, Target, collection_name, column_name};

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    #[command(subcommand)]
    pub(crate) what: ViewCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// Add a view to a collection and build it; every program that opens the database keeps it current
    Add(ViewAddArgs),
    /// Drop a view with its rows; the documents stay
    Drop(ViewNamedArgs),
    /// Build a view anew beside the one there is, which answers meanwhile
    Rebuild(ViewNamedArgs),
    /// List the views of a collection, or of all, and how far they are
    List(ViewListArgs),
}

impl ViewArgs {
    pub(crate) fn database_mut(&mut self) -> &mut DatabaseArgs {
        match &mut self.what {
            ViewCommand::Add(args) => &mut args.target.database,
            ViewCommand::Drop(args) | ViewCommand::Rebuild(args) => &mut args.target.database,
            ViewCommand::List(args) => &mut args.database,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ViewAddArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The view's name
    pub(crate) name: String,

    /// Fields that make its key, in order; a document without one of them has no row
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, required = true)]
    pub(crate) key: Vec<String>,

    /// The last field of the key is a list: a row for each of its items
    #[arg(long)]
    pub(crate) each: bool,

    /// Integer fields whose exact sums are kept for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) sum: Vec<String>,

    /// Fields whose smallest value is kept for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) min: Vec<String>,

    /// Fields whose largest value is kept for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) max: Vec<String>,

    /// Fields whose five largest values are kept
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = super::column_name)]
    pub(crate) top: Vec<String>,

    /// Fields whose different values are counted, within a few percent
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = super::column_name)]
    pub(crate) distinct: Vec<String>,

    /// Number fields whose quantiles are kept, within half a percent
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = super::column_name)]
    pub(crate) quantiles: Vec<String>,

    /// Refuse two documents with the same key
    #[arg(long)]
    pub(crate) unique: bool,

    /// Take the place of a view of this name with other terms, which answers until this one is built
    #[arg(long)]
    pub(crate) replace: bool,

    /// What the commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,
}

#[derive(Debug, Args)]
pub(crate) struct ViewNamedArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The view
    pub(crate) name: String,

    /// What the commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,
}

#[derive(Debug, Args)]
pub(crate) struct ViewListArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection; all if left out
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: Option<String>,
}
