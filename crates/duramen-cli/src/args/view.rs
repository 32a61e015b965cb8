//! The arguments of `duramen view`.

use clap::{Args, Subcommand};

use duramen::Durability;

use super::{DatabaseArgs, Target, collection_name, levels};
use crate::names::Names;

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

    /// Fields of the view's key, in order, or parts of them (home.city); FIELD:desc puts the largest first. A
    /// name with a comma is in quotes: '"a,b",c'. A document without one of them has no row, unless --nulls
    /// is given
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, required = true)]
    pub(crate) key: Vec<Names>,

    /// The last field of the key is a list: store one row for each of its different items; a value inside of
    /// each is lines[].product
    #[arg(long)]
    pub(crate) each: bool,

    /// Documents without a key field have a row, too; null is before all other values
    #[arg(long)]
    pub(crate) nulls: bool,

    /// Keep the exact sums of these integer fields for every range
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) sum: Vec<Names>,

    /// Keep the smallest values of these fields for every range
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) min: Vec<Names>,

    /// Keep the largest values of these fields for every range
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) max: Vec<Names>,

    /// Keep the five largest values of each of these fields for every range
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) top: Vec<Names>,

    /// Count the distinct values of these fields for every range, within a few percent
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) distinct: Vec<Names>,

    /// Keep the quantiles of these number fields for every range, within half a percent
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) quantiles: Vec<Names>,

    /// Refuse two documents with the same key in this view
    #[arg(long)]
    pub(crate) unique: bool,

    /// Replace a view of this name with another definition; the old one answers queries until this one is
    /// built
    #[arg(long)]
    pub(crate) replace: bool,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
}

#[derive(Debug, Args)]
pub(crate) struct ViewNamedArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The name of the view
    pub(crate) name: String,

    /// What the commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,
}

#[derive(Debug, Args)]
pub(crate) struct ViewListArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The collection; by default all
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: Option<String>,
}
