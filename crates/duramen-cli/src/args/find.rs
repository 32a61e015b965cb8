//! The arguments of `duramen find`.

use clap::Args;

use super::{Target, column_name};

#[derive(Debug, Args)]
#[command(
    after_help = "A condition is a field, an operator (= != < <= > >=) and a value of the field's type. With the operator := \
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
    #[arg(long, value_name = "FIELD[:desc],...", value_delimiter = ',')]
    pub(crate) order_by: Vec<String>,

    /// Show only these fields; a field may be a part of one, as in conditions
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name)]
    pub(crate) fields: Vec<String>,

    /// Group the documents by these fields; shows a row for each group, with the number of its documents and
    /// the aggregates below
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) group_by: Vec<String>,

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

    /// Read as many documents as necessary; without this flag a query that reads more than 100,000 fails
    #[arg(long)]
    pub(crate) scan: bool,

    /// Show the access path and the number of documents it would read, without reading any
    #[arg(long)]
    pub(crate) explain: bool,
}

/// Aggregates of all documents, or of each group.
#[derive(Debug, Args)]
pub(crate) struct AggregateFlags {
    /// The exact sums of these number fields, in each group or of all
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) sum: Vec<String>,

    /// The means of these number fields
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) mean: Vec<String>,

    /// The smallest values of these fields
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) min: Vec<String>,

    /// The largest values of these fields
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) max: Vec<String>,

    /// The exact numbers of distinct values of these fields
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = column_name, conflicts_with_all = ["fields", "reverse"])]
    pub(crate) distinct: Vec<String>,

    /// Exact quantiles: `dep_delay:0.5` is the median
    #[arg(long, value_name = "FIELD:PART,...", value_delimiter = ',', conflicts_with_all = ["fields", "reverse"])]
    pub(crate) quantile: Vec<String>,
}
