//! The format of the input: as the flags say, or the name of the file.

use crate::args::{Format, ImportArgs};
use crate::failure::{Failure, Result};

/// The format of the input and the delimiter of its cells.
pub(super) fn format_and_delimiter(args: &ImportArgs) -> Result<(Format, u8)> {
    let guess = guess_format(args);
    let format = args.format.or(guess.map(|(format, _)| format)).ok_or_else(|| unknown_format(args))?;
    let delimiter = args.delimiter.or(guess.map(|(_, delimiter)| delimiter)).unwrap_or(b',');
    check_built(format)?;
    if args.delimiter.is_some() && format != Format::Csv {
        return Err(Failure::usage("--delimiter is for CSV", "leave it out, or use --format csv"));
    }
    if args.flatten && format == Format::Csv {
        return Err(Failure::usage("--flatten is for JSON", "leave it out: CSV has no nested objects"));
    }
    Ok((format, delimiter))
}

/// Refuses a format that this build leaves out.
pub(crate) fn check_built(format: Format) -> Result<()> {
    if format == Format::Parquet && !cfg!(feature = "parquet") {
        return Err(Failure::usage(
            "this build of duramen has no Parquet",
            "build it with `cargo build --release -p duramen-cli --features parquet`, or use another format",
        ));
    }
    Ok(())
}

/// The format and the delimiter that the name of the file tells.
fn guess_format(args: &ImportArgs) -> Option<(Format, u8)> {
    let name = args.file.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let by_end = [
        (".csv", (Format::Csv, b',')),
        (".tsv", (Format::Csv, b'\t')),
        (".ndjson", (Format::Ndjson, b',')),
        (".jsonl", (Format::Ndjson, b',')),
        (".json", (Format::Json, b',')),
        (".parquet", (Format::Parquet, b',')),
    ];
    by_end.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
}

fn unknown_format(args: &ImportArgs) -> Failure {
    Failure::usage(
        format!("the name of {} does not tell its format", args.file.display()),
        "add --format csv, --format ndjson or --format json",
    )
}

/// The hint of another delimiter, if the header has more of it.
pub(super) fn probable_delimiter(columns: &[&String], delimiter: u8) -> Option<String> {
    let count = |other: char| columns.iter().map(|column| column.matches(other).count()).sum::<usize>();
    let (other, count) = [';', '\t', '|', ',']
        .map(|other| (other, count(other)))
        .into_iter()
        .rev()
        .max_by_key(|(_, count)| *count)?;
    if count < columns.len() {
        return None;
    }
    let shown = |delimiter: char| if delimiter == '\t' { "tab".to_owned() } else { format!("'{delimiter}'") };
    let flag = format!("use --delimiter {}", shown(other));
    Some(match columns {
        [only] => format!("its only column is {only:?}: {flag}"),
        _ => format!("its header has more of {} than of {}: {flag}", shown(other), shown(delimiter.into())),
    })
}
