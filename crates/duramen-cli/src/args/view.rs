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
    /// Add a view to a collection and build it; every program that writes to the database keeps it current
    Add(ViewAddArgs),
    /// Drop a view and its rows; the documents stay
    Drop(ViewNamedArgs),
    /// Rebuild a view; the existing one answers queries meanwhile
    Rebuild(ViewNamedArgs),
    /// List the views of one or all collections, with their progress
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

    /// The name of the view
    pub(crate) name: String,

    /// Fields of the view's key, in order; a document without one of them has no row, unless --nulls is given
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, required = true)]
    pub(crate) key: Vec<String>,

    /// The last field of the key is a list: store one row for each of its items
    #[arg(long)]
    pub(crate) each: bool,

    /// Documents without a key field have a row, too; null is before all other values
    #[arg(long, conflicts_with = "each")]
    pub(crate) nulls: bool,

    /// Keep the exact sums of these integer fields for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) sum: Vec<String>,

    /// Keep the smallest values of these fields for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) min: Vec<String>,

    /// Keep the largest values of these fields for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) max: Vec<String>,

    /// Keep the five largest values of each of these fields for every range
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = super::column_name)]
    pub(crate) top: Vec<String>,

    /// Count the distinct values of these fields for every range, within a few percent
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = super::column_name)]
    pub(crate) distinct: Vec<String>,

    /// Keep the quantiles of these number fields for every range, within half a percent
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = super::column_name)]
    pub(crate) quantiles: Vec<String>,

    /// Refuse two documents with the same key in this view
    #[arg(long)]
    pub(crate) unique: bool,

    /// Replace a view of this name with another definition; the old one answers queries until this one is
    /// built
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

    /// The name of the view
    pub(crate) name: String,

    /// What the commit waits for
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub(crate) durability: Level,
}

#[derive(Debug, Args)]
pub(crate) struct ViewListArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection; by default all
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: Option<String>,
}
