//! The arguments of `duramen find`.

use clap::Args;

use super::Target;

#[derive(Debug, Args)]
#[command(
    after_help = "A condition is FIELD, an operator and a value: = != < <= > >=, the value read by the type of the field's \
                        column; or := and a JSON value, `tailnum:=null` for documents without one. All must hold."
)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// What the fields must be: `carrier=UA 'delay>=60'`; with `--view` the start of its key may stand first:
    /// `UA,EWR`
    #[arg(value_name = "CONDITION")]
    pub(crate) conditions: Vec<String>,

    /// Go along this view
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,

    /// Last first, in the order of the way that is taken
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Show at most this many
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,

    /// Read as many documents as it takes; without, more than 100,000 are refused
    #[arg(long)]
    pub(crate) scan: bool,

    /// Say which way would be taken and how many documents it reads, and read none
    #[arg(long)]
    pub(crate) explain: bool,
}
