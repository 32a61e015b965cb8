//! The arguments of `duramen find`.

use clap::{Args, ValueEnum};

use super::Target;
use crate::names::Names;

#[derive(Debug, Args)]
#[command(
    after_help = "A condition is a field, an operator (= != < <= > >=) and a value of the field's type, quoted or not. With the operator := \
                        the value is JSON. Or it is a field and words: `carrier in UA,AA`, `name contains Air`, \
                        `name starts with Jet`, `tailnum is null`, `tailnum is not null`. A field may be a part of one: \
                        `home.city`, `lines[0].price`, `tags[]` for every item. All conditions must hold; the word `or` \
                        between two begins an alternative, and parentheses group: `a=1 '(' b=2 or c=3 ')'`."
)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Conditions on fields: `carrier=UA 'delay>=60'`. With `--view` the start of the view's key may come
    /// first: `UA,EWR`
    #[arg(value_name = "CONDITION")]
    pub(crate) conditions: Vec<String>,

    /// Use this view
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,

    /// Order by these fields, `delay:desc` for the largest first, instead of along the access path
    #[arg(long, value_name = "FIELD[:desc],...", value_parser = Names::parse)]
    pub(crate) order_by: Vec<Names>,

    /// Show only these fields; a field may be a part of one, as in conditions. A name with a comma is in
    /// quotes, in all lists of fields: `--fields '"a,b",c'`
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse)]
    pub(crate) fields: Vec<Names>,

    /// Group the documents by these fields; shows a row for each group, with the number of its documents and
    /// the aggregates below
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) group_by: Vec<Names>,

    #[command(flatten)]
    pub(crate) aggregates: AggregateFlags,

    /// Join each document with the one of another collection whose key these fields have; its fields are then
    /// COLLECTION.FIELD. Documents without one are left out. `NAME:COLLECTION=...` gives it another name
    #[arg(long, value_name = "COLLECTION=FIELD,...")]
    pub(crate) join: Vec<String>,

    /// As --join, but documents without one are kept, with null there
    #[arg(long, value_name = "COLLECTION=FIELD,...")]
    pub(crate) left_join: Vec<String>,

    /// Reverse the order
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Print how many documents satisfy the conditions, instead of the documents
    #[arg(long, conflicts_with_all = ["reverse", "limit", "order_by", "fields", "group_by", "AggregateFlags"])]
    pub(crate) count: bool,

    /// Show at most this many documents
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,

    /// Write the results as CSV, with the collection's word for null, or as one JSON object per line, instead
    /// of a table
    #[arg(long, value_enum, conflicts_with_all = ["count", "explain", "json"])]
    pub(crate) format: Option<FindFormat>,

    /// Read as many documents as necessary; without this flag a query fails that reads more than 100,000 to
    /// find those that satisfy its conditions
    #[arg(long)]
    pub(crate) scan: bool,

    /// Threads that read documents to count or group them, at most 32; 1 unless given. One thread reads for
    /// --distinct and --quantile. Several pay off from some ten thousand documents on
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) threads: Option<u16>,

    /// Show the access path and the number of documents it would read, without reading any
    #[arg(long)]
    pub(crate) explain: bool,
}

/// Formats of results, besides the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindFormat {
    /// Comma-separated values, with column names in the first line; lists and maps as JSON
    Csv,
    /// One JSON object per line
    Ndjson,
}

/// Aggregates of all documents, or of each group.
#[derive(Debug, Args)]
pub(crate) struct AggregateFlags {
    /// The exact sums of these number fields, in each group or of all
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) sum: Vec<Names>,

    /// The means of these number fields
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) mean: Vec<Names>,

    /// The smallest values of these fields
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) min: Vec<Names>,

    /// The largest values of these fields
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) max: Vec<Names>,

    /// The exact numbers of distinct values of these fields
    #[arg(long, value_name = "FIELD,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) distinct: Vec<Names>,

    /// Exact quantiles: `dep_delay:0.5` is the median
    #[arg(long, value_name = "FIELD:PART,...", value_parser = Names::parse, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) quantile: Vec<Names>,
}
