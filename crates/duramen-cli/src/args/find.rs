//! The arguments of `duramen find`.

use clap::Args;

use super::Target;

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

    /// Reverse the order, which is that of the access path
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Print how many documents satisfy the conditions, instead of the documents
    #[arg(long, conflicts_with_all = ["reverse", "limit"])]
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
