//! The arguments of `duramen find`.

use clap::Args;

use super::Target;

#[derive(Debug, Args)]
#[command(
    after_help = "A condition is a field, an operator (= != < <= > >=) and a value of the field's type. With the operator := \
                        the value is JSON: `tailnum:=null` finds documents without the field. All conditions must hold."
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
