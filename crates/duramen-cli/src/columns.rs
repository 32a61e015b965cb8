//! Columns that a command adds to a collection, and probable mistakes in their names.

use duramen::{Document, Schema, Value, doc};

/// How similar the name of a missing column must be, by Jaro and Winkler.
const NEAR: f64 = 0.8;

/// How the columns of some rows differ from those of their collection.
#[derive(Debug, Default)]
pub(crate) struct ColumnChange {
    collection: String,
    /// New columns, each with the nearest of the missing ones.
    new: Vec<(String, Option<String>)>,
    /// Columns of the collection that no row has.
    missing: Vec<String>,
}

impl ColumnChange {
    /// Compares the columns of rows with those of the stored collection.
    pub(crate) fn of<'a>(stored: &Schema, columns: impl IntoIterator<Item = &'a str>) -> ColumnChange {
        let columns: Vec<&str> = columns.into_iter().collect();
        let known = stored.columns().iter().map(|column| &column.name);
        // Rows without a column of the key are refused.
        let may_miss = known.filter(|known| !stored.key_columns().contains(known)).map(String::as_str);
        let missing: Vec<&str> = may_miss.filter(|known| !columns.contains(known)).collect();
        // A column that the rows have is no misspelling of another one.
        let near = |name: &str| {
            let lower = name.to_lowercase();
            let same = stored.columns().iter().find(|column| column.name.to_lowercase() == lower);
            if let Some(column) = same {
                return Some(column.name.clone());
            }
            let likeness = |known: &str| strsim::jaro_winkler(&lower, &known.to_lowercase());
            let near = missing.iter().map(|known| (likeness(known), *known));
            let nearest = near.max_by(|a, b| a.0.total_cmp(&b.0));
            nearest.filter(|(likeness, _)| *likeness >= NEAR).map(|(_, known)| known.to_owned())
        };
        let new = columns.iter().filter(|column| stored.kind(column).is_none());
        ColumnChange {
            collection: stored.name().to_owned(),
            new: new.map(|name| ((*name).to_owned(), near(name))).collect(),
            missing: missing.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Warnings of new columns that are probably misspelt.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let probable = self.new.iter().filter_map(|(name, near)| Some((name, near.as_ref()?)));
        probable
            .map(|(name, near)| format!("new column {name} in {} (did you mean {near}?)", self.collection))
    }

    /// A note of the other new columns.
    pub(crate) fn note_of_new(&self) -> Option<String> {
        let new: Vec<&str> =
            self.new.iter().filter(|(_, near)| near.is_none()).map(|(name, _)| name.as_str()).collect();
        (!new.is_empty()).then(|| format!("new in {}: {}", self.collection, new.join(", ")))
    }

    /// A note of the columns that no row has.
    pub(crate) fn note_of_missing(&self) -> Option<String> {
        let missing = &self.missing;
        (!missing.is_empty())
            .then(|| format!("in no row, so null, of {}: {}", self.collection, missing.join(", ")))
    }

    /// Adds the columns to a summary.
    pub(crate) fn write(&self, summary: &mut Document) {
        let new = |(name, near): &(String, Option<String>)| {
            let mut column = doc! { "column": name.as_str() };
            if let Some(near) = near {
                column.set("did_you_mean", near.as_str());
            }
            Value::from(column)
        };
        summary.set("new_columns", self.new.iter().map(new).collect::<Vec<_>>());
        let missing = self.missing.iter().map(|name| Value::from(name.as_str()));
        summary.set("missing_columns", missing.collect::<Vec<_>>());
    }
}
