//! The arguments of `duramen import` and `duramen export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use duramen::Durability;

use super::{DatabaseArgs, RangeFlags, Target, collection_name, column_name, levels};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The file to read, plain or gzipped; `-` for standard input
    pub(crate) file: PathBuf,

    /// The collection to load into; created if it does not exist
    #[arg(long, short, value_name = "NAME", value_parser = collection_name)]
    pub(crate) collection: String,

    /// Format of the input; by default the ending of the file's name decides
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,

    /// Character between the cells of CSV: one ASCII character, or `tab`. By default the comma; the tab if
    /// the name of the file ends in `.tsv`
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,

    /// Store the fields of nested objects of JSON as columns: `{"at":{"lat":1}}` gets the column `at.lat`
    #[arg(long)]
    pub(crate) flatten: bool,

    /// Columns of the key, in order; required for a new collection, unless `--assign-id` makes one. The list
    /// is a CSV record, as in `--sum` and `--type`: a name with a comma is in quotes, `--key '"a,b",c'`
    #[arg(long, value_name = "COLUMN,...")]
    pub(crate) key: Vec<String>,

    /// Give each row an id, in a column of this name, which is the key: for rows without a natural key. The
    /// ids go on after the largest one in the collection
    #[arg(long, value_name = "COLUMN", value_parser = column_name, conflicts_with = "key")]
    pub(crate) assign_id: Option<String>,

    /// The id of the first row, for `--assign-id`; with `--replace` it completes an import that was ended
    #[arg(long, value_name = "ID", requires = "assign_id")]
    pub(crate) first_id: Option<u64>,

    /// Keep the exact sums of these integer columns for every range
    #[arg(long, value_name = "COLUMN,...")]
    pub(crate) sum: Vec<String>,

    /// Type of a column, instead of the inferred one: int, float, text, bool, time or any. All rows of a
    /// file decide, of standard input the first 10,000; what made a column text is printed
    #[arg(long = "type", value_name = "COLUMN=TYPE,...")]
    pub(crate) types: Vec<String>,

    /// Text that stands for null in CSV, instead of the empty cell; may be repeated: `--null NA --null ''`.
    /// By default that of the collection, else the empty cell
    #[arg(long, value_name = "TEXT")]
    pub(crate) null: Vec<String>,

    /// Rows per transaction. By default 1,000, or fewer if they take 1 MiB
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: Option<u32>,

    /// What a commit waits for
    #[arg(long, value_parser = levels(), default_value_t = Durability::Disk)]
    pub(crate) durability: Durability,

    /// Transactions that commit concurrently
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,

    /// Replace documents whose key exists already, instead of failing
    #[arg(long)]
    pub(crate) replace: bool,

    /// Print `ack BATCH ROWS_TOTAL SEQ` to standard output after each commit; with `--json` an object
    #[arg(long)]
    pub(crate) ack: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) range: RangeFlags,

    /// Format of the output
    #[arg(long, value_enum)]
    pub(crate) format: Format,

    /// Character between the cells of CSV: one ASCII character, or `tab`. By default the comma
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,

    /// Write the fields of nested objects as columns of CSV: `{"at":{"lat":1}}` gets the column `at.lat`.
    /// Lists are written as JSON. Reads the documents twice
    #[arg(long)]
    pub(crate) flatten: bool,

    /// Text that stands for null in CSV; by default that of the collection, else the empty cell
    #[arg(long, value_name = "TEXT")]
    pub(crate) null: Option<String>,
}

/// Formats of documents outside a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values, with column names in the first line
    Csv,
    /// One JSON object per line
    Ndjson,
    /// One JSON array of objects
    Json,
    /// Parquet, in builds with the feature `parquet`
    Parquet,
}

/// The character between cells, as one byte.
fn delimiter(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        _ if text.eq_ignore_ascii_case("tab") || text == "\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("it is one ASCII character that is no letter, digit, quote or line end; or the word tab"),
    }
}
