//! The joins of a query, and warnings of those that find nothing.

use duramen::Schema;
use duramen::find::Join;
use duramen_proto::v1;

use super::text_numbers::Warning;
use crate::args::FindArgs;
use crate::backend::Reading;
use crate::failure::{Failure, Result};
use crate::names::listed;
use crate::numbers::grouped;

/// So many documents are read for each join.
const SAMPLE_MAX: u64 = 1000;

/// The joins of a query.
pub(super) fn of(db: &Reading, args: &FindArgs) -> Result<Vec<v1::Join>> {
    let inner = args.join.iter().map(|text| (text, false));
    let joins = inner.chain(args.left_join.iter().map(|text| (text, true)));
    let join = |(text, or_null): (&String, bool)| {
        Join::parse(text).map_err(|error| Failure::usage(error.message(), error.hint()))?;
        // The error of an unknown collection suggests similar names.
        db.schema(collection_of(text))?;
        Ok(v1::Join { text: text.clone(), or_null })
    };
    joins.map(join).collect()
}

/// The collection in the text of a join: `planes` in `planes=tailnum` and in `plane:planes=tailnum`.
fn collection_of(text: &str) -> &str {
    let before = text.split('=').next().unwrap_or_default();
    before.split_once(':').map_or(before, |(_, collection)| collection)
}

/// The warnings about joins in which no document has a counterpart, as when two fields are swapped.
pub(super) fn warnings(db: &Reading, stored: &Schema, args: &FindArgs) -> Result<Vec<Warning>> {
    let mut warnings = Vec::new();
    for (flag, texts) in [("--join", &args.join), ("--left-join", &args.left_join)] {
        for text in texts {
            // Later joins may use fields of earlier ones; their errors are those of the query itself.
            let query = v1::Find {
                collection: stored.name().to_owned(),
                joins: vec![v1::Join { text: text.clone(), or_null: false }],
                limit: Some(1),
                read_max: SAMPLE_MAX,
                ..v1::Find::default()
            };
            let Ok(sample) = db.sample(&query) else { continue };
            if !sample.documents.is_empty() || sample.read_count == 0 {
                continue;
            }
            let which = match sample.is_complete {
                true => "no document has".to_owned(),
                false => format!("none of the first {} documents has", grouped(sample.read_count)),
            };
            let collection = collection_of(text);
            let key = listed(db.schema(collection)?.key_columns());
            warnings.push(Warning::new(
                format!("{flag} {text}: {which} a counterpart"),
                format!("the key of {collection} is {key}: name fields with these values, in this order"),
            ));
        }
    }
    Ok(warnings)
}
