//! The joins of a query, and warnings of those that find nothing.

use duramen::find::{Find, Join, Step};
use duramen::{Reads, Schema, Snapshot};

use super::text_numbers::Warning;
use crate::args::FindArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::names::listed;
use crate::numbers::grouped;

/// So many documents are read for each join.
const SAMPLE_MAX: u64 = 1000;

/// The query with its joins.
pub(super) fn joined<'a>(snapshot: &Snapshot, find: Find<'a>, args: &FindArgs) -> Result<Find<'a>> {
    let joins =
        args.join.iter().map(|text| (text, false)).chain(args.left_join.iter().map(|text| (text, true)));
    joins.into_iter().try_fold(find, |find, (text, is_left)| {
        let join = parse(text)?;
        // The error of an unknown collection suggests similar names.
        database::schema(snapshot, collection_of(text))?;
        Ok(find.join(if is_left { join.or_null() } else { join }))
    })
}

fn parse(text: &str) -> Result<Join> {
    Join::parse(text).map_err(|error| Failure::usage(error.message(), error.hint()))
}

/// The collection in the text of a join: `planes` in `planes=tailnum` and in `plane:planes=tailnum`.
fn collection_of(text: &str) -> &str {
    let before = text.split('=').next().unwrap_or_default();
    before.split_once(':').map_or(before, |(_, collection)| collection)
}

/// The warnings about joins in which no document has a counterpart, as when two fields are swapped.
pub(super) fn warnings(snapshot: &Snapshot, stored: &Schema, args: &FindArgs) -> Result<Vec<Warning>> {
    let mut warnings = Vec::new();
    for (flag, texts) in [("--join", &args.join), ("--left-join", &args.left_join)] {
        for text in texts {
            // Later joins may use fields of earlier ones; their errors are those of the query itself.
            let find = snapshot.documents(stored.name()).find([]).join(parse(text)?);
            let Ok(mut documents) = find.iter() else { continue };
            let step = documents.next_within(SAMPLE_MAX)?;
            let count = documents.read_count();
            if matches!(step, Step::Found(_)) || count == 0 {
                continue;
            }
            let which = match step {
                Step::End => "no document has".to_owned(),
                _ => format!("none of the first {} documents has", grouped(count)),
            };
            let collection = collection_of(text);
            let key = listed(database::schema(snapshot, collection)?.key_columns());
            warnings.push(Warning::new(
                format!("{flag} {text}: {which} a counterpart"),
                format!("the key of {collection} is {key}: name fields with these values, in this order"),
            ));
        }
    }
    Ok(warnings)
}
